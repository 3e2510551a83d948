//! The MachineConfigPools of OpenShift: which one a node is in, and which nodes of one may be changed next.
//!
//! The rules are those of the machine-config operator, so that a policy takes nodes away in the same order and at the
//! same rate as an update of the cluster does, and never beside one.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString};

use crate::{limit, selection::meets};

/// Where nodes are, for the order in which they go.
const ZONE_LABEL: &str = "topology.kubernetes.io/zone";
/// The pools that every cluster has; others are custom ones.
const MASTER: &str = "master";
const WORKER: &str = "worker";

/// A pool, as an admin has made it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pool {
    pub node_selector: Option<LabelSelector>,
    pub paused: bool,
    pub max_unavailable: Option<IntOrString>,
}

/// What of a node matters to pools.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    pub name: &'a str,
    pub labels: &'a BTreeMap<String, String>,
    pub created: Option<Timestamp>,
    /// Whether workloads cannot count on it: it is not Ready or not schedulable, its pool is updating it, or another
    /// policy is changing it.
    pub is_unavailable: bool,
}

/// All pools with their nodes.
#[derive(Clone, Debug, Default)]
pub struct Pools {
    states: BTreeMap<String, State>,
    places: BTreeMap<String, Place>,
    /// Nodes that are in no pool, and why.
    strays: BTreeMap<String, String>,
}

#[derive(Clone, Debug)]
struct State {
    paused: bool,
    limit: usize,
    unavailable: BTreeSet<String>,
}

#[derive(Clone, Debug)]
struct Place {
    pool: String,
    /// By zone, those without one last; then the oldest first.
    turn: (bool, String, Option<Timestamp>),
}

/// Who may begin, and why others may not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice<'a> {
    pub nodes: Vec<&'a String>,
    pub remarks: Vec<String>,
}

impl Pools {
    /// Puts each node into its pool.
    pub fn new<'a>(pools: &BTreeMap<String, Pool>, nodes: impl IntoIterator<Item = Member<'a>>) -> Self {
        let mut all = Self::default();
        let mut sizes: BTreeMap<&str, usize> = BTreeMap::new();
        let mut unavailable: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for node in nodes {
            let pool = match pool_of(pools, &node) {
                Ok(pool) => pool,
                Err(why) => {
                    all.strays.insert(node.name.to_owned(), why);
                    continue;
                }
            };
            *sizes.entry(pool).or_default() += 1;
            if node.is_unavailable {
                unavailable.entry(pool).or_default().insert(node.name.to_owned());
            }
            let zone = node.labels.get(ZONE_LABEL);
            let turn = (zone.is_none(), zone.cloned().unwrap_or_default(), node.created);
            all.places.insert(node.name.to_owned(), Place { pool: pool.to_owned(), turn });
        }
        for (name, pool) in pools {
            let state = State {
                paused: pool.paused,
                limit: limit::of_pool(pool.max_unavailable.as_ref(), sizes.remove(&**name).unwrap_or(0)),
                unavailable: unavailable.remove(&**name).unwrap_or_default(),
            };
            all.states.insert(name.clone(), state);
        }
        all
    }

    /// Whether as many of these nodes are in one pool as that may lack.
    pub(crate) fn are_used_up_by<'a>(&self, nodes: impl Iterator<Item = &'a String>) -> bool {
        let mut lost: BTreeMap<&str, usize> = BTreeMap::new();
        for place in nodes.filter_map(|node| self.places.get(node)) {
            *lost.entry(&place.pool).or_default() += 1;
        }
        lost.iter().any(|(pool, count)| self.states.get(*pool).is_some_and(|pool| *count >= pool.limit))
    }

    /// Which of the candidates may begin beside those that hold a slot already, the failed ones among them.
    pub(crate) fn choose<'a>(
        &self,
        candidates: impl Iterator<Item = &'a String>,
        holding: &BTreeSet<&String>,
        failed: &BTreeSet<&String>,
    ) -> Choice<'a> {
        let mut choice = Choice::default();
        let mut by_pool: BTreeMap<&String, Vec<(&Place, &'a String)>> = BTreeMap::new();
        let mut strays: BTreeMap<&String, Vec<&String>> = BTreeMap::new();
        for node in candidates {
            match (self.places.get(node), self.strays.get(node)) {
                (Some(place), _) => by_pool.entry(&place.pool).or_default().push((place, node)),
                (None, Some(why)) => strays.entry(why).or_default().push(node),
                // It has come since.
                (None, None) => {}
            }
        }
        for (name, waiting) in by_pool {
            let Some(pool) = self.states.get(name) else { continue };
            if pool.paused {
                choice.remarks.push(format!("MachineConfigPool {name:?} is paused"));
                continue;
            }
            let is_here = |node: &&&String| self.places.get(**node).is_some_and(|place| place.pool == *name);
            let missing: BTreeSet<&String> =
                pool.unavailable.iter().chain(holding.iter().filter(is_here).copied()).collect();
            // Where more failures are tolerated than may be missing, one goes on all the same.
            let at_least = usize::from(missing.iter().all(|node| failed.contains(*node)));
            let free = pool.limit.saturating_sub(missing.len()).max(at_least);
            if free == 0 && !holding.iter().filter(is_here).any(|node| !failed.contains(*node)) {
                choice.remarks.push(format!(
                    "MachineConfigPool {name:?} has enough nodes unavailable: {}",
                    some_of(&missing.iter().copied().collect::<Vec<_>>())
                ));
            }
            let (missed, mut able): (Vec<_>, Vec<_>) =
                waiting.into_iter().partition(|(_, node)| pool.unavailable.contains(*node));
            if free > 0 && able.is_empty() {
                let missed: Vec<_> = missed.into_iter().map(|(_, node)| node).collect();
                choice
                    .remarks
                    .push(format!("{}: not Ready, not schedulable or being updated", some_of(&missed)));
            }
            able.sort_by_key(|(place, node)| (&place.turn, *node));
            choice.nodes.extend(able.into_iter().take(free).map(|(_, node)| node));
        }
        for (why, nodes) in strays {
            choice.remarks.push(format!("{}: {why}", some_of(&nodes)));
        }
        choice
    }
}

/// The pool that a node is in, or why it is in none.
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

/// A selector without any demand selects nothing here, unlike elsewhere.
fn selects(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let is_empty = selector.match_labels.as_ref().is_none_or(BTreeMap::is_empty)
        && selector.match_expressions.as_ref().is_none_or(Vec::is_empty);
    !is_empty && meets(selector, labels)
}

/// A few names, and how many more there are.
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
