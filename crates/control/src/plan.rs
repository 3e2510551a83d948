//! What follows from the world for one policy: orders to be written, enactments to be removed, and what the policy says
//! of itself.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use knmstate_api::{
    NodeNetworkConfigurationEnactmentSpec, NodeNetworkConfigurationPolicyStatus, Permit,
    condition::whole_second,
};
use knmstate_core::{
    enactment,
    objections::{Candidate, NodeFacts},
    order::{Source, order},
    policy_status::{self, Summary},
    rollout::{self, Terms, canaries, facts::enactment_facts},
    selection::selects,
    templates::render,
};

use crate::{
    judgement::{Refusal, refusal_here},
    world::{
        Handler, Node, Origin, Policy, World,
        pools::{Known, POOLS_API, asks_for_pools},
    },
};

/// What is to be done about one policy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Orders that differ from those that are there, by node.
    pub orders: BTreeMap<String, Arc<NodeNetworkConfigurationEnactmentSpec>>,
    /// Nodes whose enactment is to go, with its UID.
    pub removals: BTreeMap<String, String>,
    /// The status that the policy is to have; `None` when it has none.
    pub status: Option<NodeNetworkConfigurationPolicyStatus>,
    /// When to decide anew though nothing has happened.
    pub again_at: Option<Timestamp>,
}

/// Decides about one policy.
pub fn plan(world: &World, origin: &Origin, now: Timestamp) -> Plan {
    let Some(policy) = world.policy(origin) else {
        return Plan { removals: all_but(world, origin, |_| false), ..Plan::default() };
    };
    if let Some(why) = objection_to(world, origin, policy) {
        // What it was before it was changed stays in force.
        let status = status_if_new(origin, policy, &Summary::Failed(why), 0, now);
        return Plan { status, ..Plan::default() };
    }
    let pools = match (asks_for_pools(policy), world.pools()) {
        (false, _) => None,
        (true, Known::Pools(pools)) => Some(world.pools_for(pools, origin, now)),
        // Not read yet. What is there stays until then.
        (true, Known::Nothing) => return Plan::default(),
        (true, Known::NoSuchKind) => {
            let why =
                format!("rollout.through is MachineConfigPool, but this cluster has none ({POOLS_API})");
            let status = status_if_new(origin, policy, &Summary::Failed(why), 0, now);
            return Plan { status, ..Plan::default() };
        }
    };
    let selected = selected(world, origin, policy);
    let (wanted, refusal) = render_all(policy, origin, &selected);
    let handlers = world.handlers(now);
    let handler_of = |name: &str| handlers.get(name).copied().unwrap_or_else(|| world.no_handler());
    let firsts = match policy.spec.rollout.as_ref().and_then(|rollout| rollout.canary.as_ref()) {
        Some(canary) => {
            let able = selected.iter().filter(|(name, _)| !matches!(handler_of(name), Handler::Gone { .. }));
            canaries(canary, able.map(|(name, node)| (*name, &*node.labels)))
        }
        None => BTreeSet::new(),
    };
    let nodes = wanted.keys().map(|name| {
        let is_canary = firsts.contains(name);
        ((*name).clone(), facts_of(selected[*name], handler_of(name), is_canary))
    });
    let nodes: BTreeMap<String, rollout::Node> = nodes.collect();
    let enactments = world.enactments.of(origin).filter_map(|(name, enactment)| {
        let wanted = wanted.get(name)?;
        let facts = enactment_facts(enactment.order().map(|order| &**order), &enactment.status, wanted);
        Some((name.clone(), facts))
    });
    let terms = Terms { policy: &policy.spec, pools: pools.as_ref(), now };
    let decision = rollout::decide(&terms, &nodes, &enactments.collect());

    let replaced = handlers.values().filter_map(|handler| match handler {
        Handler::Replaced { until, .. } => Some(*until),
        Handler::Runs | Handler::Gone { .. } => None,
    });
    let again_at = decision.again_at.into_iter().chain(replaced).min();
    let orders = wanted
        .into_iter()
        .filter_map(|(name, order)| {
            let permit = *decision.permits.get(name)?;
            let known = world.enactments.get(origin.label(), name).and_then(|one| one.order());
            new_order(order, permit, known.map(|known| &**known), now).map(|order| (name.clone(), order))
        })
        .collect();
    let said = || {
        let enactments = world.enactments.of(origin).filter(|(name, _)| nodes.contains_key(*name));
        let missing: Vec<(&str, &str)> = enactments
            .filter_map(|(name, one)| Some((&**name, enactment::missing(&one.status.conditions)?)))
            .collect();
        Summary::of(&decision.tally).held_up(&decision.remarks).without(&missing)
    };
    let summary = refusal.map_or_else(said, Summary::Failed);
    let status = status_if_new(origin, policy, &summary, decision.tally.holding, now);
    Plan { orders, removals: all_but(world, origin, |name| selected.contains_key(name)), status, again_at }
}

fn selected<'a>(world: &'a World, origin: &Origin, policy: &Policy) -> BTreeMap<&'a String, &'a Node> {
    let is_for = |name: &String, node: &Node| match origin {
        Origin::Policy(_) => selects(&policy.spec, &node.labels),
        Origin::NodeState(only) => only == name,
    };
    world.nodes.iter().filter(|(name, node)| is_for(name, node)).collect()
}

/// The order of each node, permitted by none; and why some nodes have none.
fn render_all<'a>(
    policy: &Policy,
    origin: &Origin,
    selected: &BTreeMap<&'a String, &'a Node>,
) -> (BTreeMap<&'a String, NodeNetworkConfigurationEnactmentSpec>, Option<String>) {
    let source = Source { name: origin.label(), uid: Some(&policy.uid), generation: policy.generation };
    let mut orders = BTreeMap::new();
    let mut refusal = None;
    for (name, node) in selected {
        match render(&policy.spec, name, &node.labels) {
            Ok(desired) => {
                orders.insert(*name, order(name, source, &policy.spec, desired, Permit::Wait));
            }
            Err(why) => {
                refusal.get_or_insert(why.to_string());
            }
        }
    }
    (orders, refusal)
}

/// Why a policy cannot be carried out beside the others. Asked as long as none of its nodes has an order of this
/// generation: what has begun goes on, and it is for others to fit in. Of two that are new the older one comes first.
fn objection_to(world: &World, origin: &Origin, policy: &Policy) -> Option<String> {
    if has_begun(world, origin, policy) {
        return None;
    }
    let candidate = Candidate { name: origin.label(), spec: &policy.spec };
    let is_before = |name: &String, other: &Policy| {
        (other.created, name.as_str()) < (policy.created, origin.label())
            || has_begun(world, &Origin::Policy(name.clone()), other)
    };
    let others = world.policies.iter().filter(|(name, other)| is_before(name, other));
    let others: Vec<_> = others.map(|(name, other)| Candidate { name, spec: &other.spec }).collect();
    let nodes = world.nodes.iter().filter(|(name, _)| match origin {
        Origin::Policy(_) => true,
        Origin::NodeState(only) => only == *name,
    });
    let nodes: Vec<_> = nodes.map(|(name, node)| NodeFacts { name, labels: &node.labels }).collect();
    refusal_here(&candidate, &others, &nodes).map(Refusal::into_message)
}

/// Whether any node has an order of the present generation, or kubernetes-nmstate has carried it out there.
fn has_begun(world: &World, origin: &Origin, policy: &Policy) -> bool {
    world.enactments.of(origin).any(|(_, enactment)| match enactment.order() {
        Some(order) => {
            order.policy_generation == policy.generation && order.policy_uid.as_ref() == Some(&policy.uid)
        }
        None => enactment.status.policy_generation == policy.generation,
    })
}

/// Enactments of nodes that are not to have one.
fn all_but(world: &World, origin: &Origin, stays: impl Fn(&String) -> bool) -> BTreeMap<String, String> {
    let leaving = world.enactments.of(origin).filter(|(node, _)| !stays(node));
    leaving.map(|(node, enactment)| (node.clone(), enactment.uid.clone())).collect()
}

fn facts_of(node: &Node, handler: Handler, is_canary: bool) -> rollout::Node {
    let missing_since = match handler {
        Handler::Runs => None,
        Handler::Replaced { since, .. } => Some(since),
        Handler::Gone { since } => since,
    };
    let unready_since = node.since.filter(|_| !node.is_ready);
    rollout::Node {
        away_since: [missing_since, unready_since].into_iter().flatten().min(),
        is_ready: node.is_ready,
        has_handler: !matches!(handler, Handler::Gone { .. }),
        is_canary,
    }
}

/// The order with its permit; `None` when that is what is there.
fn new_order(
    order: NodeNetworkConfigurationEnactmentSpec,
    permit: Permit,
    known: Option<&NodeNetworkConfigurationEnactmentSpec>,
    now: Timestamp,
) -> Option<Arc<NodeNetworkConfigurationEnactmentSpec>> {
    // One that only plans is never permitted.
    let permit = if order.mode == knmstate_api::Mode::Plan { Permit::Wait } else { permit };
    let same_generation = |known: &&NodeNetworkConfigurationEnactmentSpec| {
        (known.policy_generation, &known.policy_uid) == (order.policy_generation, &order.policy_uid)
    };
    let permit_time = match known.filter(same_generation) {
        Some(known) if known.permit == permit => known.permit_time.clone(),
        _ => (permit != Permit::Wait).then(|| whole_second(now)),
    };
    let order = NodeNetworkConfigurationEnactmentSpec { permit, permit_time, ..order };
    (known != Some(&order)).then(|| Arc::new(order))
}

/// The status of a policy, if it is to have another one.
fn status_if_new(
    origin: &Origin,
    policy: &Policy,
    summary: &Summary,
    holding: usize,
    now: Timestamp,
) -> Option<NodeNetworkConfigurationPolicyStatus> {
    let Origin::Policy(_) = origin else { return None };
    Some(status(policy, summary, holding, now)).filter(|status| *status != policy.status)
}

/// The status of a policy. Times move only when something else does.
fn status(
    policy: &Policy,
    summary: &Summary,
    holding: usize,
    now: Timestamp,
) -> NodeNetworkConfigurationPolicyStatus {
    let holding = i32::try_from(holding).unwrap_or(i32::MAX);
    let is_over = matches!(summary, Summary::Succeeded(_) | Summary::NoMatch);
    let counts = (holding > 0 && !is_over).then(|| (policy.generation.to_string(), holding));
    let mut conditions = policy.status.conditions.clone();
    if !policy_status::says(&conditions, summary) {
        policy_status::set(&mut conditions, summary, now);
    }
    NodeNetworkConfigurationPolicyStatus {
        conditions,
        unavailable_node_count_map: counts.into_iter().collect(),
        ..NodeNetworkConfigurationPolicyStatus::default()
    }
}

#[cfg(test)]
mod tests;
