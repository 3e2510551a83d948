//! Rollouts: which nodes of a policy may begin, which wait, and when the rollout is over.
//!
//! Every decision is derived from the current enactments; no count is stored anywhere. So a controller can crash at any
//! instant, and the next leader makes the same decision. That needs two rules:
//!
//! - A permit that was granted for a generation of a policy is never revoked: `Wait` becomes `Apply` or `Abort`, and both
//!   are final.
//! - A node that was permitted and has not finished keeps its permit in the next generation: it may be applying its
//!   order, and one more node in its place would exceed the limit.

mod facts;

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use knmstate_api::{NodeNetworkConfigurationPolicySpec, Permit, rollout::Canary};

pub use self::facts::{enactment_facts, is_about};
use crate::{limit, pools::Pools, selection::meets};

/// How long a rollout waits for a node that is not healthy, unless the policy sets a deadline.
const NODE_TIMEOUT: SignedDuration = SignedDuration::from_mins(10);

/// How often a rollout that waits for a pool is decided again.
const POOL_RECHECK: SignedDuration = SignedDuration::from_mins(1);

/// A node that a policy selects.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// Since when its kubelet or its handler is gone. `None` for a healthy node.
    pub away_since: Option<Timestamp>,
    /// Whether it is Ready. Others do not count in the progress of the rollout.
    pub is_ready: bool,
    /// Whether it runs a handler. Others take no part in the rollout.
    pub has_handler: bool,
    /// Whether it is a canary.
    pub is_canary: bool,
}

/// The enactment of a policy on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Enactment {
    /// `None` for one that kubernetes-nmstate has created.
    pub order: Option<Order>,
    /// The result for the current generation.
    pub outcome: NodeOutcome,
}

/// The facts about an order that a rollout depends on.
#[expect(clippy::struct_excessive_bools, reason = "facts that are independent of each other")]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Order {
    pub permit: Permit,
    pub permit_time: Option<Timestamp>,
    /// Whether it is of the current generation.
    pub is_current: bool,
    /// Whether it differs from the order of the current generation in nothing but its generation and permit.
    pub is_same_request: bool,
    /// Whether the node has applied it, or has finally failed: it no longer works on it.
    pub is_finished: bool,
    /// Whether the node has applied it.
    pub is_applied: bool,
}

/// The result of a node for the current generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum NodeOutcome {
    /// No final result yet: the node waits, or applies its order.
    #[default]
    Unfinished,
    Available {
        since: Option<Timestamp>,
    },
    Failed,
    Aborted,
}

/// What a rollout depends on apart from its nodes.
#[derive(Clone, Debug)]
pub struct RolloutContext<'a> {
    pub policy: &'a NodeNetworkConfigurationPolicySpec,
    /// The MachineConfigPools, if the policy is rolled out through them.
    pub pools: Option<&'a Pools>,
    pub now: Timestamp,
}

/// What a rollout decides for the nodes of its policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// The permit of each node that gets an order. Other nodes get none.
    pub permits: BTreeMap<String, Permit>,
    pub tally: Tally,
    /// Reasons why nodes wait, other than nodes that are at work.
    pub remarks: Vec<String>,
    /// When to decide again even if nothing changes.
    pub again_at: Option<Timestamp>,
}

/// The number of nodes of a policy by their phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Nodes that take part in the rollout.
    pub nodes: usize,
    /// The Ready ones among them.
    pub ready: usize,
    pub available: usize,
    pub failed: usize,
    pub aborted: usize,
    /// Nodes that wait for their permit.
    pub pending: usize,
    /// Nodes that hold a slot: they apply their order, or have failed.
    pub holding: usize,
}

/// The phase of a node in a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodePhase {
    /// Permitted to apply its order, without a final result.
    Applying {
        since: Option<Timestamp>,
    },
    Done {
        since: Option<Timestamp>,
    },
    Failed,
    Aborted,
    /// Without a permit.
    Waiting,
}

/// Decides for all nodes of a policy. `nodes` are those that it selects, by name.
pub fn decide(
    context: &RolloutContext<'_>,
    nodes: &BTreeMap<String, Node>,
    enactments: &BTreeMap<String, Enactment>,
) -> Decision {
    let mut decision = Decision::default();
    let mut candidates = Vec::new();
    let mut phases = BTreeMap::new();
    for (name, node) in nodes {
        let enactment = enactments.get(name);
        // A node keeps its enactment while its handler is replaced; a node without both cannot begin.
        if enactment.is_none() && !node.has_handler {
            continue;
        }
        let phase = phase(enactment);
        phases.insert(name, phase);
        let permit = match phase {
            NodePhase::Applying { .. } | NodePhase::Done { .. } | NodePhase::Failed => Permit::Apply,
            NodePhase::Aborted => Permit::Abort,
            NodePhase::Waiting => Permit::Wait,
        };
        decision.permits.insert(name.clone(), permit);
        if phase == NodePhase::Waiting {
            candidates.push((name, node));
        }
    }
    let holding = count(&mut decision, context, nodes, &phases);
    let failed: BTreeSet<&String> = failed(&phases).collect();

    let limit = limit(context, decision.tally.nodes);
    let verdict = verdict(context, nodes, &phases, &decision.tally, limit);
    let may_begin: Vec<&String> = match verdict {
        Verdict::Stop => {
            for (name, _) in candidates {
                decision.permits.insert(name.clone(), Permit::Abort);
                decision.tally.pending -= usize::from(nodes[name].has_handler);
                decision.tally.aborted += usize::from(nodes[name].has_handler);
            }
            return decision;
        }
        Verdict::Hold { until } => {
            decision.decide_again(until);
            Vec::new()
        }
        Verdict::CanariesOnly => begin_in_order(candidates.into_iter().filter(|(_, node)| node.is_canary)),
        Verdict::Go => begin_in_order(candidates.into_iter()),
    };
    let may_begin = match context.pools {
        Some(pools) => {
            let choice = pools.choose(may_begin.into_iter(), &holding, &failed);
            if !choice.remarks.is_empty() {
                // A change of the pool triggers a decision; this time is for changes that were missed.
                decision.decide_again(context.now.checked_add(POOL_RECHECK).ok());
            }
            decision.remarks = choice.remarks;
            choice.nodes
        }
        None => may_begin,
    };
    // Failed nodes keep their slots. If more failures are tolerated than there are slots, one slot stays free, or the
    // rollout would neither continue nor stop.
    let at_least = usize::from(decision.tally.holding == failed.len());
    let free = limit.saturating_sub(decision.tally.holding).max(at_least);
    for name in may_begin.into_iter().take(free) {
        decision.permits.insert(name.clone(), Permit::Apply);
        decision.tally.pending -= 1;
        decision.tally.holding += 1;
    }
    decision
}

impl Decision {
    fn decide_again(&mut self, at: Option<Timestamp>) {
        self.again_at = [self.again_at, at].into_iter().flatten().min();
    }
}

fn phase(enactment: Option<&Enactment>) -> NodePhase {
    let Some(enactment) = enactment else { return NodePhase::Waiting };
    let Some(order) = &enactment.order else {
        // Taken over from kubernetes-nmstate: what it has applied is not applied again; other nodes wait.
        return match enactment.outcome {
            NodeOutcome::Available { since } => NodePhase::Done { since },
            NodeOutcome::Unfinished | NodeOutcome::Failed | NodeOutcome::Aborted => NodePhase::Waiting,
        };
    };
    if !order.is_current {
        return match order.permit {
            // The node finds that its network matches, and changes nothing.
            Permit::Apply if order.is_applied && order.is_same_request => NodePhase::Done { since: None },
            Permit::Apply if !order.is_finished => NodePhase::Applying { since: order.permit_time },
            _ => NodePhase::Waiting,
        };
    }
    match (order.permit, enactment.outcome) {
        (Permit::Wait | Permit::Restore, _) => NodePhase::Waiting,
        (Permit::Abort, _) => NodePhase::Aborted,
        (Permit::Apply, NodeOutcome::Available { since }) => NodePhase::Done { since },
        (Permit::Apply, NodeOutcome::Failed) => NodePhase::Failed,
        (Permit::Apply, NodeOutcome::Unfinished | NodeOutcome::Aborted) => {
            NodePhase::Applying { since: order.permit_time }
        }
    }
}

/// Counts the nodes; returns those that hold a slot.
fn count<'a>(
    decision: &mut Decision,
    context: &RolloutContext<'_>,
    nodes: &BTreeMap<String, Node>,
    phases: &BTreeMap<&'a String, NodePhase>,
) -> BTreeSet<&'a String> {
    let mut holding = BTreeSet::new();
    for (&name, phase) in phases {
        let node = &nodes[name];
        if let NodePhase::Applying { since } = phase {
            match given_up_at(context, node, *since) {
                Some(time) if time <= context.now => {}
                later => {
                    decision.decide_again(later);
                    holding.insert(name);
                }
            }
        }
        if *phase == NodePhase::Failed {
            holding.insert(name);
        }
        if !node.has_handler {
            continue;
        }
        let tally = &mut decision.tally;
        tally.nodes += 1;
        tally.ready += usize::from(node.is_ready);
        match phase {
            NodePhase::Applying { .. } => {}
            NodePhase::Done { .. } => tally.available += 1,
            NodePhase::Failed => tally.failed += 1,
            NodePhase::Aborted => tally.aborted += 1,
            NodePhase::Waiting => tally.pending += 1,
        }
    }
    decision.tally.holding = holding.len();
    holding
}

fn failed<'a>(phases: &BTreeMap<&'a String, NodePhase>) -> impl Iterator<Item = &'a String> {
    phases.iter().filter(|(_, phase)| **phase == NodePhase::Failed).map(|(name, _)| *name)
}

/// How many nodes may hold a slot at the same time. With pools there is no limit unless the policy sets one.
fn limit(context: &RolloutContext<'_>, nodes: usize) -> usize {
    match (context.pools, &context.policy.max_unavailable) {
        (Some(_), None) => usize::MAX,
        (_, wanted) => limit::at_once(wanted.as_ref(), nodes),
    }
}

/// When the rollout stops waiting for a node that was permitted at this time; `None` if it waits without limit: for a
/// healthy node of a policy without a deadline.
fn given_up_at(context: &RolloutContext<'_>, node: &Node, permitted: Option<Timestamp>) -> Option<Timestamp> {
    let deadline = context.policy.rollout.as_ref().and_then(|rollout| rollout.progress_deadline);
    if let (Some(deadline), Some(permitted)) = (deadline, permitted) {
        return permitted.checked_add(deadline.as_std()).ok();
    }
    let away = node.away_since?;
    let since = permitted.map_or(away, |permitted| permitted.max(away));
    since.checked_add(NODE_TIMEOUT).ok()
}

/// What happens to nodes without a permit.
enum Verdict {
    Go,
    CanariesOnly,
    Hold { until: Option<Timestamp> },
    Stop,
}

fn verdict(
    context: &RolloutContext<'_>,
    nodes: &BTreeMap<String, Node>,
    phases: &BTreeMap<&String, NodePhase>,
    tally: &Tally,
    limit: usize,
) -> Verdict {
    let rollout = context.policy.rollout.as_ref();
    let tolerated = rollout
        .and_then(|rollout| rollout.max_failures.as_ref())
        .and_then(|failures| limit::tolerated(failures, tally.nodes));
    // The default is the limit of nodes at work: failed nodes keep their slots, and then none is left.
    let is_over = match tolerated {
        Some(tolerated) => tally.failed > tolerated,
        None => {
            tally.failed >= limit || context.pools.is_some_and(|pools| pools.reach_a_limit(failed(phases)))
        }
    };
    if is_over {
        return Verdict::Stop;
    }
    let Some(rollout) = rollout else { return Verdict::Go };
    let canaries = || phases.iter().filter(|(name, _)| nodes[**name].is_canary).map(|(_, phase)| *phase);
    if canaries().any(|phase| phase == NodePhase::Failed) {
        return Verdict::Stop;
    }
    if rollout.paused {
        return Verdict::Hold { until: None };
    }
    if canaries().any(|phase| !matches!(phase, NodePhase::Done { .. })) {
        return Verdict::CanariesOnly;
    }
    let soak = rollout.canary.as_ref().and_then(|canary| canary.soak);
    let last = canaries().filter_map(|phase| match phase {
        NodePhase::Done { since } => since,
        _ => None,
    });
    let soaked = soak.and_then(|soak| last.max()?.checked_add(soak.as_std()).ok());
    match soaked {
        Some(time) if time > context.now => Verdict::Hold { until: Some(time) },
        _ => Verdict::Go,
    }
}

/// Healthy nodes come first: another one may keep its slot for a long time.
fn begin_in_order<'a>(candidates: impl Iterator<Item = (&'a String, &'a Node)>) -> Vec<&'a String> {
    let mut candidates: Vec<_> = candidates.filter(|(_, node)| node.has_handler).collect();
    candidates.sort_by_key(|(name, node)| (!node.is_ready || node.away_since.is_some(), *name));
    candidates.into_iter().map(|(name, _)| name).collect()
}

/// Which of the selected nodes are canaries.
pub fn canaries<'a>(
    canary: &Canary,
    nodes: impl IntoIterator<Item = (&'a String, &'a BTreeMap<String, String>)>,
) -> BTreeSet<&'a String> {
    let mut nodes: Vec<_> = nodes.into_iter().collect();
    nodes.sort();
    match (&canary.selector, canary.count) {
        (Some(selector), _) => {
            nodes.into_iter().filter(|(_, labels)| meets(selector, labels)).map(|(name, _)| name).collect()
        }
        (None, count) => {
            let count = count.and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
            nodes.into_iter().take(count).map(|(name, _)| name).collect()
        }
    }
}

#[cfg(test)]
mod tests;
