//! How a policy spreads over its nodes: who may begin, who waits, and when it is over.
//!
//! Everything is derived from the enactments as they are, and nothing is counted anywhere else: whoever decides can die
//! at any instant, and the next one comes to the same decision. That holds because
//!
//! - a permit, once given for a generation of a policy, is never taken back: `Wait` becomes `Apply` or `Abort`, and both
//!   stay;
//! - a node that was permitted and has not finished keeps its permit in the next generation. It may be in the middle of
//!   its work, and to let another one begin in its place would be one too many.

pub mod facts;

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use knmstate_api::{NodeNetworkConfigurationPolicySpec, Permit, rollout::Canary};

pub use self::facts::{enactment_facts, speaks_of};
use crate::{limit, pools::Pools, selection::meets};

/// How long a node that went away may hold up a rollout, unless the policy says otherwise.
pub const PATIENCE: SignedDuration = SignedDuration::from_mins(10);

/// How long a rollout that pools hold up may go without a look.
const POOL_LOOK: SignedDuration = SignedDuration::from_mins(1);

/// A node that a policy is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// Since when nobody can expect anything of it: its kubelet or its handler is gone. `None` for a node that is well.
    pub away_since: Option<Timestamp>,
    /// Whether it is Ready. One that is not is left out of the count of a rollout's progress.
    pub is_ready: bool,
    /// Whether it runs a handler. One that does not takes no part.
    pub has_handler: bool,
    /// Whether it goes first, where only some do.
    pub is_canary: bool,
}

/// The enactment of a policy on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Enactment {
    /// `None` if kubernetes-nmstate has made it.
    pub order: Option<Order>,
    /// What the node says of the present generation.
    pub stage: Stage,
}

/// What of an order matters for a rollout.
#[expect(clippy::struct_excessive_bools, reason = "facts that are independent of each other")]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Order {
    pub permit: Permit,
    pub permit_time: Option<Timestamp>,
    /// Whether it is of the present generation.
    pub is_current: bool,
    /// Whether it asks for what the present generation asks for.
    pub asks_the_same: bool,
    /// Whether the node has carried it out, or has failed with it for good: it is not at work on it.
    pub is_finished: bool,
    /// Whether the node has carried it out.
    pub is_carried_out: bool,
}

/// How far a node is with the present generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Stage {
    /// It has said nothing, or nothing that lasts: it waits, or it is at work.
    #[default]
    Open,
    Available {
        since: Option<Timestamp>,
    },
    Failed,
    Aborted,
}

/// What a policy says about its rollout.
#[derive(Clone, Debug)]
pub struct Terms<'a> {
    pub policy: &'a NodeNetworkConfigurationPolicySpec,
    /// The pools that it goes through, where it says so.
    pub pools: Option<&'a Pools>,
    pub now: Timestamp,
}

/// What follows for the nodes of a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// The permit of each node that is to have an order. Others are to have none.
    pub permits: BTreeMap<String, Permit>,
    pub tally: Tally,
    /// What holds up nodes that wait, beside those that are at work.
    pub remarks: Vec<String>,
    /// When to decide anew though nothing has happened.
    pub again_at: Option<Timestamp>,
}

/// Where the nodes of a policy stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Nodes that take part.
    pub nodes: usize,
    /// Those of them that are Ready.
    pub ready: usize,
    pub available: usize,
    pub failed: usize,
    pub aborted: usize,
    /// Nodes that wait for their turn.
    pub pending: usize,
    /// Nodes that hold a slot: at work, or failed.
    pub holding: usize,
}

/// Where a node stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It may work, and nothing is heard of it yet.
    AtWork {
        since: Option<Timestamp>,
    },
    Done {
        since: Option<Timestamp>,
    },
    Failed,
    Aborted,
    /// It has no permit.
    Candidate,
}

/// Decides about all nodes of a policy. `nodes` are those that it selects, by name.
pub fn decide(
    terms: &Terms<'_>,
    nodes: &BTreeMap<String, Node>,
    enactments: &BTreeMap<String, Enactment>,
) -> Decision {
    let mut decision = Decision::default();
    let mut candidates = Vec::new();
    let mut standings = BTreeMap::new();
    for (name, node) in nodes {
        let enactment = enactments.get(name);
        // Its enactment stays while its handler is replaced, but without one there is nobody to begin.
        if enactment.is_none() && !node.has_handler {
            continue;
        }
        let standing = standing(enactment);
        standings.insert(name, standing);
        let permit = match standing {
            Standing::AtWork { .. } | Standing::Done { .. } | Standing::Failed => Permit::Apply,
            Standing::Aborted => Permit::Abort,
            Standing::Candidate => Permit::Wait,
        };
        decision.permits.insert(name.clone(), permit);
        if standing == Standing::Candidate {
            candidates.push((name, node));
        }
    }
    let holding = count(&mut decision, terms, nodes, &standings);
    let failed: BTreeSet<&String> = failed(&standings).collect();

    let limit = limit(terms, decision.tally.nodes);
    let verdict = verdict(terms, nodes, &standings, &decision.tally, limit);
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
            decision.look_again(until);
            Vec::new()
        }
        Verdict::CanariesOnly => begin_in_order(candidates.into_iter().filter(|(_, node)| node.is_canary)),
        Verdict::Go => begin_in_order(candidates.into_iter()),
    };
    let may_begin = match terms.pools {
        Some(pools) => {
            let choice = pools.choose(may_begin.into_iter(), &holding, &failed);
            if !choice.remarks.is_empty() {
                // Whatever it waits for is seen when it happens; should it not be, then at this time.
                decision.look_again(terms.now.checked_add(POOL_LOOK).ok());
            }
            decision.remarks = choice.remarks;
            choice.nodes
        }
        None => may_begin,
    };
    // Failed nodes keep their slots. Where more of them are tolerated than there are slots, one is left all the same:
    // else the rollout would neither go on nor stop.
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
    fn look_again(&mut self, at: Option<Timestamp>) {
        self.again_at = [self.again_at, at].into_iter().flatten().min();
    }
}

fn standing(enactment: Option<&Enactment>) -> Standing {
    let Some(enactment) = enactment else { return Standing::Candidate };
    let Some(order) = &enactment.order else {
        // Taken over from kubernetes-nmstate: what it has done is not done again, what it has not, waits its turn.
        return match enactment.stage {
            Stage::Available { since } => Standing::Done { since },
            Stage::Open | Stage::Failed | Stage::Aborted => Standing::Candidate,
        };
    };
    if !order.is_current {
        return match order.permit {
            // To say so costs the node a look at its network, and nothing else.
            Permit::Apply if order.is_carried_out && order.asks_the_same => Standing::Done { since: None },
            Permit::Apply if !order.is_finished => Standing::AtWork { since: order.permit_time },
            _ => Standing::Candidate,
        };
    }
    match (order.permit, enactment.stage) {
        (Permit::Wait | Permit::Restore, _) => Standing::Candidate,
        (Permit::Abort, _) => Standing::Aborted,
        (Permit::Apply, Stage::Available { since }) => Standing::Done { since },
        (Permit::Apply, Stage::Failed) => Standing::Failed,
        (Permit::Apply, Stage::Open | Stage::Aborted) => Standing::AtWork { since: order.permit_time },
    }
}

/// Counts, and says who holds a slot.
fn count<'a>(
    decision: &mut Decision,
    terms: &Terms<'_>,
    nodes: &BTreeMap<String, Node>,
    standings: &BTreeMap<&'a String, Standing>,
) -> BTreeSet<&'a String> {
    let mut holding = BTreeSet::new();
    for (&name, standing) in standings {
        let node = &nodes[name];
        if let Standing::AtWork { since } = standing {
            match given_up_at(terms, node, *since) {
                Some(time) if time <= terms.now => {}
                later => {
                    decision.look_again(later);
                    holding.insert(name);
                }
            }
        }
        if *standing == Standing::Failed {
            holding.insert(name);
        }
        if !node.has_handler {
            continue;
        }
        let tally = &mut decision.tally;
        tally.nodes += 1;
        tally.ready += usize::from(node.is_ready);
        match standing {
            Standing::AtWork { .. } => {}
            Standing::Done { .. } => tally.available += 1,
            Standing::Failed => tally.failed += 1,
            Standing::Aborted => tally.aborted += 1,
            Standing::Candidate => tally.pending += 1,
        }
    }
    decision.tally.holding = holding.len();
    holding
}

fn failed<'a>(standings: &BTreeMap<&'a String, Standing>) -> impl Iterator<Item = &'a String> {
    standings.iter().filter(|(_, standing)| **standing == Standing::Failed).map(|(name, _)| *name)
}

/// How many nodes may hold a slot at once. Where pools say that, a policy need not.
fn limit(terms: &Terms<'_>, nodes: usize) -> usize {
    match (terms.pools, &terms.policy.max_unavailable) {
        (Some(_), None) => usize::MAX,
        (_, wanted) => limit::at_once(wanted.as_ref(), nodes),
    }
}

/// When a rollout no longer waits for a node that may work since then; `None` for one that is well, when the policy sets
/// no deadline: that one will report.
fn given_up_at(terms: &Terms<'_>, node: &Node, permitted: Option<Timestamp>) -> Option<Timestamp> {
    let deadline = terms.policy.rollout.as_ref().and_then(|rollout| rollout.progress_deadline);
    if let (Some(deadline), Some(permitted)) = (deadline, permitted) {
        return permitted.checked_add(deadline.as_std()).ok();
    }
    let away = node.away_since?;
    let since = permitted.map_or(away, |permitted| permitted.max(away));
    since.checked_add(PATIENCE).ok()
}

/// What is done about those that have no permit.
enum Verdict {
    Go,
    CanariesOnly,
    Hold { until: Option<Timestamp> },
    Stop,
}

fn verdict(
    terms: &Terms<'_>,
    nodes: &BTreeMap<String, Node>,
    standings: &BTreeMap<&String, Standing>,
    tally: &Tally,
    limit: usize,
) -> Verdict {
    let rollout = terms.policy.rollout.as_ref();
    let tolerated = rollout
        .and_then(|rollout| rollout.max_failures.as_ref())
        .and_then(|failures| limit::tolerated(failures, tally.nodes));
    // As many as may be at work at once, unless said otherwise: failed nodes keep their slots, and none is left then.
    let is_over = match tolerated {
        Some(tolerated) => tally.failed > tolerated,
        None => {
            tally.failed >= limit || terms.pools.is_some_and(|pools| pools.are_used_up_by(failed(standings)))
        }
    };
    if is_over {
        return Verdict::Stop;
    }
    let Some(rollout) = rollout else { return Verdict::Go };
    let canaries =
        || standings.iter().filter(|(name, _)| nodes[**name].is_canary).map(|(_, standing)| *standing);
    if canaries().any(|standing| standing == Standing::Failed) {
        return Verdict::Stop;
    }
    if rollout.paused {
        return Verdict::Hold { until: None };
    }
    if canaries().any(|standing| !matches!(standing, Standing::Done { .. })) {
        return Verdict::CanariesOnly;
    }
    let soak = rollout.canary.as_ref().and_then(|canary| canary.soak);
    let last = canaries().filter_map(|standing| match standing {
        Standing::Done { since } => since,
        _ => None,
    });
    let soaked = soak.and_then(|soak| last.max()?.checked_add(soak.as_std()).ok());
    match soaked {
        Some(time) if time > terms.now => Verdict::Hold { until: Some(time) },
        _ => Verdict::Go,
    }
}

/// Nodes that are well come first: one that is not may keep its slot for long.
fn begin_in_order<'a>(candidates: impl Iterator<Item = (&'a String, &'a Node)>) -> Vec<&'a String> {
    let mut candidates: Vec<_> = candidates.filter(|(_, node)| node.has_handler).collect();
    candidates.sort_by_key(|(name, node)| (!node.is_ready || node.away_since.is_some(), *name));
    candidates.into_iter().map(|(name, _)| name).collect()
}

/// Which of the selected nodes go first.
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
