//! The plan for one policy, from the cluster state: the orders to write, the enactments to remove, and the status of the
//! policy.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use knmstate_api::{
    NodeNetworkConfigurationEnactmentSpec, NodeNetworkConfigurationPolicyStatus, Permit, whole_second,
};
use knmstate_core::{
    enactment,
    order::{OrderSource, order},
    policy_status::{self, Summary},
    rollout::{self, RolloutContext, canaries, enactment_facts},
    selects,
    templates::render,
};

use crate::{
    cluster_state::{
        ClusterState, Handler, Node, Origin, Policy,
        pools::{KnownPools, POOLS_API, needs_pools},
    },
    judge::{JudgedPolicy, Question},
};

/// What to write for one policy.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PolicyPlan {
    /// New and changed orders, by node.
    pub orders: BTreeMap<String, Arc<NodeNetworkConfigurationEnactmentSpec>>,
    /// Nodes whose enactment is to be removed, and its UID.
    pub removals: BTreeMap<String, String>,
    /// The new status of the policy; `None` if it stays.
    pub status: Option<NodeNetworkConfigurationPolicyStatus>,
    /// When to plan again even if nothing changes.
    pub again_at: Option<Timestamp>,
}

/// Plans one policy. `refusal` is the answer to its [`question`].
pub(crate) fn plan_policy(
    cluster: &ClusterState,
    origin: &Origin,
    refusal: Option<String>,
    now: Timestamp,
) -> PolicyPlan {
    if cluster.is_unreadable(origin) {
        return plan_unreadable(cluster, origin, now);
    }
    let Some(policy) = cluster.policy(origin) else {
        return PolicyPlan { removals: all_but(cluster, origin, |_| false), ..PolicyPlan::default() };
    };
    if let Some(why) = refusal {
        // Orders of its previous generation stay.
        let status = status_if_new(origin, policy, &Summary::Failed(why), 0, now);
        return PolicyPlan { status, ..PolicyPlan::default() };
    }
    let pools = match (needs_pools(policy), cluster.pools()) {
        (false, _) => None,
        (true, KnownPools::Pools(pools)) => Some(cluster.pools_for(pools, origin, now)),
        // The pools have not been listed yet. Nothing changes until then.
        (true, KnownPools::NotRead) => return PolicyPlan::default(),
        (true, KnownPools::NoSuchKind) => {
            let why =
                format!("rollout.through is MachineConfigPool, but this cluster has none ({POOLS_API})");
            let status = status_if_new(origin, policy, &Summary::Failed(why), 0, now);
            return PolicyPlan { status, ..PolicyPlan::default() };
        }
    };
    let selected = selected(cluster, origin, policy);
    let (wanted, refusal) = render_all(policy, origin, &selected);
    let handlers = cluster.handlers(now);
    let handler_of = |name: &str| handlers.get(name).copied().unwrap_or_else(|| cluster.no_handler());
    let canary_nodes = match policy.spec.rollout.as_ref().and_then(|rollout| rollout.canary.as_ref()) {
        Some(canary) => {
            let able = selected.iter().filter(|(name, _)| !matches!(handler_of(name), Handler::Gone { .. }));
            canaries(canary, able.map(|(name, node)| (*name, &*node.labels)))
        }
        None => BTreeSet::new(),
    };
    let nodes = wanted.keys().map(|name| {
        let is_canary = canary_nodes.contains(name);
        ((*name).clone(), facts_of(selected[*name], handler_of(name), is_canary))
    });
    let nodes: BTreeMap<String, rollout::Node> = nodes.collect();
    let enactments = cluster.enactments.of(origin).filter_map(|(name, enactment)| {
        let wanted = wanted.get(name)?;
        let facts = enactment_facts(enactment.order().map(|order| &**order), &enactment.status, wanted);
        Some((name.clone(), facts))
    });
    let context = RolloutContext { policy: &policy.spec, pools: pools.as_ref(), now };
    let decision = rollout::decide(&context, &nodes, &enactments.collect());

    let replaced = handlers.values().filter_map(|handler| match handler {
        Handler::Replaced { until, .. } => Some(*until),
        Handler::Runs | Handler::Gone { .. } => None,
    });
    let again_at = decision.again_at.into_iter().chain(replaced).min();
    let orders = wanted
        .into_iter()
        .filter_map(|(name, order)| {
            let permit = *decision.permits.get(name)?;
            let known = cluster.enactments.get(origin.label(), name).and_then(|one| one.order());
            new_order(order, permit, known.map(|known| &**known), now).map(|order| (name.clone(), order))
        })
        .collect();
    let summarize = || {
        let enactments = cluster.enactments.of(origin).filter(|(name, _)| nodes.contains_key(*name));
        let missing: Vec<(&str, &str)> = enactments
            .filter_map(|(name, one)| Some((&**name, enactment::missing(&one.status.conditions)?)))
            .collect();
        Summary::of(&decision.tally).with_remarks(&decision.remarks).with_missing(&missing)
    };
    let summary = refusal.map_or_else(summarize, Summary::Failed);
    let status = status_if_new(origin, policy, &summary, decision.tally.holding, now);
    PolicyPlan {
        orders,
        // A node that cannot be read may be selected.
        removals: all_but(cluster, origin, |name| {
            selected.contains_key(name) || cluster.nodes.is_unreadable(name)
        }),
        status,
        again_at,
    }
}

/// Orders stay as they are: what cannot be read is not what was deleted.
fn plan_unreadable(cluster: &ClusterState, origin: &Origin, now: Timestamp) -> PolicyPlan {
    let status = cluster.policy(origin).and_then(|policy| {
        let why = policy.unreadable?;
        let why = format!("the spec cannot be read: {why}; nodes keep what they have of this policy");
        status_if_new(origin, policy, &Summary::Failed(why), 0, now)
    });
    PolicyPlan { status, ..PolicyPlan::default() }
}

fn selected<'a>(
    cluster: &'a ClusterState,
    origin: &Origin,
    policy: &Policy,
) -> BTreeMap<&'a String, &'a Node> {
    let is_for = |name: &String, node: &Node| match origin {
        Origin::Policy(_) => selects(&policy.spec, &node.labels),
        Origin::NodeState(only) => only == name,
    };
    cluster.nodes.iter().filter(|(name, node)| is_for(name, node)).collect()
}

/// The order of each node, without permits; and why a node has none.
fn render_all<'a>(
    policy: &Policy,
    origin: &Origin,
    selected: &BTreeMap<&'a String, &'a Node>,
) -> (BTreeMap<&'a String, NodeNetworkConfigurationEnactmentSpec>, Option<String>) {
    let source = OrderSource { name: origin.label(), uid: Some(&policy.uid), generation: policy.generation };
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

/// What has to be judged before a policy is planned: whether it is valid and fits the others. `None` once one of its nodes
/// has an order of this generation: a policy that has begun goes on, and later ones have to fit it. Of two new ones the
/// older one comes first.
pub(crate) fn question(cluster: &ClusterState, origin: &Origin) -> Option<Question> {
    let policy = cluster.policy(origin)?;
    if has_begun(cluster, origin, policy) {
        return None;
    }
    let is_before = |name: &String, other: &Policy| {
        (other.created, name.as_str()) < (policy.created, origin.label())
            || has_begun(cluster, &Origin::Policy(name.clone()), other)
    };
    let others = cluster.policies.iter().filter(|(name, other)| is_before(name, other));
    let nodes = selected(cluster, origin, policy);
    Some(Question {
        policy: judged(origin.label(), policy),
        others: others.map(|(name, other)| judged(name, other)).collect(),
        nodes: nodes.into_iter().map(|(name, node)| (name.clone(), node.labels.clone())).collect(),
    })
}

fn judged(name: &str, policy: &Policy) -> JudgedPolicy {
    JudgedPolicy {
        name: name.to_owned(),
        uid: policy.uid.clone(),
        generation: policy.generation,
        spec: policy.spec.clone(),
    }
}

/// Whether any node has an order of the current generation, or a result of it from kubernetes-nmstate.
fn has_begun(cluster: &ClusterState, origin: &Origin, policy: &Policy) -> bool {
    cluster.enactments.of(origin).any(|(_, enactment)| match enactment.order() {
        Some(order) => {
            order.policy_generation == policy.generation && order.policy_uid.as_ref() == Some(&policy.uid)
        }
        None => enactment.status.policy_generation == policy.generation,
    })
}

/// The enactments of nodes that should not have one.
fn all_but(
    cluster: &ClusterState,
    origin: &Origin,
    stays: impl Fn(&String) -> bool,
) -> BTreeMap<String, String> {
    let leaving = cluster.enactments.of(origin).filter(|(node, _)| !stays(node));
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

/// The order with its permit; `None` if the node already has exactly that.
fn new_order(
    order: NodeNetworkConfigurationEnactmentSpec,
    permit: Permit,
    known: Option<&NodeNetworkConfigurationEnactmentSpec>,
    now: Timestamp,
) -> Option<Arc<NodeNetworkConfigurationEnactmentSpec>> {
    // A dry run never gets a permit.
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

/// The status of a policy, if it changes.
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

/// The status of a policy. Its times change only with something else.
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
    if !policy_status::is_set(&conditions, summary) {
        policy_status::set_conditions(&mut conditions, summary, now);
    }
    NodeNetworkConfigurationPolicyStatus {
        conditions,
        unavailable_node_count_map: counts.into_iter().collect(),
        ..NodeNetworkConfigurationPolicyStatus::default()
    }
}

#[cfg(test)]
pub(crate) mod tests;
