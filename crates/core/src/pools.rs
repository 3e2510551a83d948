//! The MachineConfigPools of OpenShift: the pool of each node, and which nodes of a pool may begin next.
//!
//! The rules are those of the machine-config operator, so that a policy changes nodes in the same order and at the same
//! rate as an update of the cluster, and the two together stay within the limits.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString};

use crate::{limit, selection::meets};

/// The label by which nodes are ordered.
const ZONE_LABEL: &str = "topology.kubernetes.io/zone";
/// The pools that every cluster has; all others are custom pools.
const MASTER: &str = "master";
const WORKER: &str = "worker";

/// A MachineConfigPool: its spec as far as a rollout depends on it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pool {
    pub node_selector: Option<LabelSelector>,
    pub paused: bool,
    pub max_unavailable: Option<IntOrString>,
}

/// A node, as far as pools depend on it.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    pub name: &'a str,
    pub labels: &'a BTreeMap<String, String>,
    pub created: Option<Timestamp>,
    /// Whether it is not Ready, not schedulable, being updated by its pool, or being changed by another policy.
    pub is_unavailable: bool,
}

/// All pools with their nodes.
#[derive(Clone, Debug, Default)]
pub struct Pools {
    states: BTreeMap<String, PoolState>,
    placements: BTreeMap<String, Placement>,
    /// Nodes without a pool, with the reason.
    unassigned: BTreeMap<String, String>,
}

#[derive(Clone, Debug)]
struct PoolState {
    paused: bool,
    limit: usize,
    unavailable: BTreeSet<String>,
}

#[derive(Clone, Debug)]
struct Placement {
    pool: String,
    /// The sort key: by zone, nodes without a zone last; then the oldest first.
    position: (bool, String, Option<Timestamp>),
}

/// Which nodes may begin, and why others may not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Choice<'a> {
    pub nodes: Vec<&'a String>,
    pub remarks: Vec<String>,
}

impl Pools {
    /// Assigns each node to its pool.
    pub fn new<'a>(pools: &BTreeMap<String, Pool>, nodes: impl IntoIterator<Item = Member<'a>>) -> Self {
        let mut all = Self::default();
        let mut sizes: BTreeMap<&str, usize> = BTreeMap::new();
        let mut unavailable: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for node in nodes {
            let pool = match pool_of(pools, &node) {
                Ok(pool) => pool,
                Err(why) => {
                    all.unassigned.insert(node.name.to_owned(), why);
                    continue;
                }
            };
            *sizes.entry(pool).or_default() += 1;
            if node.is_unavailable {
                unavailable.entry(pool).or_default().insert(node.name.to_owned());
            }
            let zone = node.labels.get(ZONE_LABEL);
            let position = (zone.is_none(), zone.cloned().unwrap_or_default(), node.created);
            all.placements.insert(node.name.to_owned(), Placement { pool: pool.to_owned(), position });
        }
        for (name, pool) in pools {
            let state = PoolState {
                paused: pool.paused,
                limit: limit::of_pool(pool.max_unavailable.as_ref(), sizes.remove(&**name).unwrap_or(0)),
                unavailable: unavailable.remove(&**name).unwrap_or_default(),
            };
            all.states.insert(name.clone(), state);
        }
        all
    }

    /// Whether these nodes alone reach the limit of a pool.
    pub(crate) fn reach_a_limit<'a>(&self, nodes: impl Iterator<Item = &'a String>) -> bool {
        let mut lost: BTreeMap<&str, usize> = BTreeMap::new();
        for placement in nodes.filter_map(|node| self.placements.get(node)) {
            *lost.entry(&placement.pool).or_default() += 1;
        }
        lost.iter().any(|(pool, count)| self.states.get(*pool).is_some_and(|pool| *count >= pool.limit))
    }

    /// Which of the candidates may begin in addition to the nodes that hold a slot, including failed ones.
    pub(crate) fn choose<'a>(
        &self,
        candidates: impl Iterator<Item = &'a String>,
        holding: &BTreeSet<&String>,
        failed: &BTreeSet<&String>,
    ) -> Choice<'a> {
        let mut choice = Choice::default();
        let mut by_pool: BTreeMap<&String, Vec<(&Placement, &'a String)>> = BTreeMap::new();
        let mut unassigned: BTreeMap<&String, Vec<&String>> = BTreeMap::new();
        for node in candidates {
            match (self.placements.get(node), self.unassigned.get(node)) {
                (Some(placement), _) => by_pool.entry(&placement.pool).or_default().push((placement, node)),
                (None, Some(why)) => unassigned.entry(why).or_default().push(node),
                // A node that was added since.
                (None, None) => {}
            }
        }
        for (name, waiting) in by_pool {
            let Some(pool) = self.states.get(name) else { continue };
            if pool.paused {
                choice.remarks.push(format!("MachineConfigPool {name:?} is paused"));
                continue;
            }
            let is_here = |node: &&&String| {
                self.placements.get(**node).is_some_and(|placement| placement.pool == *name)
            };
            let missing: BTreeSet<&String> =
                pool.unavailable.iter().chain(holding.iter().filter(is_here).copied()).collect();
            // If more failures are tolerated than the limit, one slot stays free, or the rollout would not continue.
            let at_least = usize::from(missing.iter().all(|node| failed.contains(*node)));
            let free = pool.limit.saturating_sub(missing.len()).max(at_least);
            if free == 0 && !holding.iter().filter(is_here).any(|node| !failed.contains(*node)) {
                choice.remarks.push(format!(
                    "MachineConfigPool {name:?} has reached its maxUnavailable: {}",
                    some_of(&missing.iter().copied().collect::<Vec<_>>())
                ));
            }
            let (not_ready, mut able): (Vec<_>, Vec<_>) =
                waiting.into_iter().partition(|(_, node)| pool.unavailable.contains(*node));
            if free > 0 && able.is_empty() {
                let not_ready: Vec<_> = not_ready.into_iter().map(|(_, node)| node).collect();
                choice
                    .remarks
                    .push(format!("{}: not Ready, not schedulable or being updated", some_of(&not_ready)));
            }
            able.sort_by_key(|(placement, node)| (&placement.position, *node));
            choice.nodes.extend(able.into_iter().take(free).map(|(_, node)| node));
        }
        for (why, nodes) in unassigned {
            choice.remarks.push(format!("{}: {why}", some_of(&nodes)));
        }
        choice
    }
}

/// The pool of a node, or why it has none.
fn pool_of<'a>(pools: &'a BTreeMap<String, Pool>, node: &Member<'_>) -> Result<&'a str, String> {
    let matching: Vec<&str> = pools
        .iter()
        .filter(|(_, pool)| pool.node_selector.as_ref().is_some_and(|wanted| selects(wanted, node.labels)))
        .map(|(name, _)| &**name)
        .collect();
    let has = |wanted: &str| matching.iter().copied().find(|name| *name == wanted);
    let custom: Vec<&str> =
        matching.iter().copied().filter(|name| ![MASTER, WORKER].contains(name)).collect();
    match (has(MASTER), &custom[..], has(WORKER)) {
        (Some(master), _, _) => Ok(master),
        (None, [only], _) => Ok(only),
        (None, [], Some(worker)) => Ok(worker),
        (None, [], None) => Err("in no MachineConfigPool".to_owned()),
        (None, several, _) => Err(format!("in more than one MachineConfigPool ({})", several.join(", "))),
    }
}

/// An empty selector selects nothing here, unlike elsewhere in Kubernetes.
fn selects(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let is_empty = selector.match_labels.as_ref().is_none_or(BTreeMap::is_empty)
        && selector.match_expressions.as_ref().is_none_or(Vec::is_empty);
    !is_empty && meets(selector, labels)
}

/// The first names, and the number of the others.
fn some_of(names: &[&String]) -> String {
    const SHOWN: usize = 3;
    let shown: Vec<&str> = names.iter().take(SHOWN).map(|name| name.as_str()).collect();
    match names.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests;
