//! Rollouts through the MachineConfigPools of OpenShift.

use super::*;
use crate::pools::{Member, Pool};

proptest! {
    /// No pool ever has more nodes unavailable than its limit, whatever makes them unavailable. No node begins in a pool
    /// that is paused, or without a pool.
    #[test]
    fn the_limits_of_pools_hold(
        all in prop::collection::vec((any_node(), any_enactment(), 0..3_usize, any::<bool>()), 0..12),
        limits in prop::collection::vec((1..4_i32, prop::bool::weighted(0.2)), 2),
        tolerated in prop::option::of(0..4_i32),
    ) {
        let policy = policy(json!({"rollout": {"through": "MachineConfigPool", "maxFailures": tolerated}}));
        let name = |number: usize| format!("n{number:02}");
        let nodes: BTreeMap<_, _> =
            all.iter().enumerate().map(|(number, (node, ..))| (name(number), node.clone())).collect();
        let before: BTreeMap<_, _> = all.iter().enumerate()
            .filter_map(|(number, (_, enactment, ..))| Some((name(number), enactment.clone()?))).collect();
        let members: BTreeMap<_, _> = all.iter().enumerate()
            .map(|(number, (_, _, pool, is_missing))| (name(number), (*pool, *is_missing))).collect();
        let pools = pools(&limits, &members);
        let context = RolloutContext { policy: &policy, pools: Some(&pools), now: NOW };
        let decision = decide(&context, &nodes, &before);

        let phase_of = |name: &String| phase(before.get(name));
        let begun: Vec<&String> = decision.permits.iter()
            .filter(|(name, permit)| **permit == Permit::Apply && phase_of(name) == NodePhase::Waiting)
            .map(|(name, _)| name).collect();
        for (number, (limit, paused)) in limits.iter().enumerate() {
            let is_here = |name: &&String| members[*name].0 == number;
            let begun: Vec<_> = begun.iter().copied().filter(is_here).collect();
            if begun.is_empty() {
                continue;
            }
            prop_assert!(!paused);
            prop_assert!(begun.iter().all(|name| !members[*name].1), "{begun:?} were unavailable");
            let is_failed = |name: &String| phase_of(name) == NodePhase::Failed;
            let is_missing = |name: &&String| {
                members[*name].1 || is_failed(name) || matches!(phase_of(name), NodePhase::Applying { .. })
            };
            let missing: Vec<_> = nodes.keys().filter(is_here)
                .filter(is_missing)
                .filter(|name| members[*name].1 || decision.permits.contains_key(*name)).collect();
            let goes_on = begun.len() == 1 && missing.iter().all(|name| is_failed(name));
            let limit = usize::try_from(*limit).unwrap();
            prop_assert!(missing.len() + begun.len() <= limit || goes_on, "{missing:?} and {begun:?} of {limit}");
        }
        prop_assert!(begun.iter().all(|name| members[*name].0 < limits.len()), "a node without a pool has begun");
        for (name, enactment) in &before {
            if let Some(order) = enactment.order.as_ref().filter(|order| order.is_current && order.permit != Permit::Wait) {
                prop_assert_eq!(decision.permits[name], order.permit);
            }
        }
    }

    /// A rollout through pools ends, in the order of the pools and within their limits.
    #[test]
    fn a_rollout_through_pools_ends(count in 1..12_usize, limits in prop::collection::vec(1..4_i32, 2)) {
        let policy = policy(json!({"rollout": {"through": "MachineConfigPool"}}));
        let nodes = nodes(count);
        let members = nodes.keys().enumerate().map(|(number, name)| (name.clone(), (number % 2, false))).collect();
        let limits: Vec<_> = limits.into_iter().map(|limit| (limit, false)).collect();
        let pools = pools(&limits, &members);
        let context = RolloutContext { policy: &policy, pools: Some(&pools), now: NOW };
        let mut enactments = BTreeMap::new();
        for _ in 0..=count {
            let decision = decide(&context, &nodes, &enactments);
            prop_assert_eq!(&decision.remarks, &Vec::<String>::new());
            enactments = decision.permits.iter().map(|(name, permit)| {
                (name.clone(), if *permit == Permit::Apply { done() } else { ordered(*permit, NodeOutcome::Unfinished) })
            }).collect();
        }
        prop_assert_eq!(decide(&context, &nodes, &enactments).tally.available, count);
    }
}

/// Pools by their limit and whether they are paused; nodes by the number of their pool, which may not exist, and whether
/// they are unavailable.
fn pools(limits: &[(i32, bool)], members: &BTreeMap<String, (usize, bool)>) -> Pools {
    let labels = |pool: usize| BTreeMap::from([("pool".to_owned(), pool.to_string())]);
    let pools = limits.iter().enumerate().map(|(number, (limit, paused))| {
        let node_selector = serde_json::from_value(json!({"matchLabels": labels(number)})).unwrap();
        let max_unavailable = serde_json::from_value(json!(limit)).unwrap();
        (number.to_string(), Pool { node_selector, paused: *paused, max_unavailable })
    });
    let labelled: BTreeMap<_, _> = members.iter().map(|(name, (pool, _))| (name, labels(*pool))).collect();
    let members = members.iter().map(|(name, (_, is_unavailable))| Member {
        name,
        labels: &labelled[name],
        created: None,
        is_unavailable: *is_unavailable,
    });
    Pools::new(&pools.collect(), members)
}
