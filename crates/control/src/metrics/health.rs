//! Figures that alerts are made of: each names the policy or the node that somebody has to look at.
//!
//! What is a time is given as one, and not as how long ago: so it need not be asked for in time.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use knmstate_api::{
    ConditionList,
    reasons::{enactment::FAILING, policy::PROGRESSING},
};
use knmstate_core::enactment::is_rolled_back;

use super::Gauges;
use crate::world::{Origin, Policy, World};

pub(super) fn gauges(world: &World) -> [Gauges; 4] {
    [
        Gauges {
            name: "knmstate_policy_status",
            help: "The condition that a policy shows: 1 for this one, and no series for the others",
            values: world
                .policies
                .iter()
                .filter_map(|(name, policy)| {
                    let shown = policy.status.conditions.first_true()?;
                    Some((vec![("policy", name.clone()), ("status", shown.type_.clone())], 1))
                })
                .collect(),
        },
        Gauges {
            name: "knmstate_rollout_progress_timestamp_seconds",
            help: "When a node of a policy that is progressing last began or ended, and canaries have soaked",
            values: world
                .policies
                .iter()
                .filter_map(|(name, policy)| {
                    let at = last_progress(world, name, policy)?;
                    Some((vec![("policy", name.clone())], seconds(at)))
                })
                .collect(),
        },
        Gauges {
            name: "knmstate_enactment_rolled_back_timestamp_seconds",
            help: "When a change was rolled back on a node that has not been carried out since",
            values: world
                .enactments
                .iter()
                .filter(|(_, _, one)| is_rolled_back(&one.status.conditions))
                .filter_map(|(policy, node, one)| {
                    let at = told_at(&one.status.conditions, FAILING)?;
                    Some((vec![("node", node.clone()), ("policy", policy.clone())], seconds(at)))
                })
                .collect(),
        },
        Gauges {
            name: "knmstate_node_reporting",
            help: "Whether a Ready node has a handler that is ready and has reported the node's network",
            values: world
                .reporting()
                .map(|(node, reports)| (vec![("node", node.clone())], u64::from(reports)))
                .collect(),
        },
    ]
}

/// When something last happened in a rollout that is to go on by itself; `None` for one that is over or paused.
fn last_progress(world: &World, name: &str, policy: &Policy) -> Option<Timestamp> {
    let rollout = policy.spec.rollout.as_ref();
    if !policy.status.conditions.is_true(PROGRESSING) || rollout.is_some_and(|rollout| rollout.paused) {
        return None;
    }
    let conditions = &policy.status.conditions;
    let began = conditions.get(PROGRESSING).and_then(|condition| condition.last_transition_time.as_ref());
    let origin = Origin::Policy(name.to_owned());
    let of_nodes = world.enactments.of(&origin).flat_map(|(_, one)| {
        let permitted = one.order().and_then(|order| order.permit_time.as_ref()).map(|time| time.0);
        let shown = one.status.conditions.first_true();
        let said = shown.and_then(|condition| condition.last_transition_time.as_ref()).map(|time| time.0);
        [permitted, said].into_iter().flatten()
    });
    let last = began.map(|time| time.0).into_iter().chain(of_nodes).max()?;
    let soak = rollout.and_then(|rollout| rollout.canary.as_ref()?.soak);
    Some(soak.and_then(|soak| last.checked_add(soak.as_std()).ok()).unwrap_or(last))
}

/// When a condition was last told anew.
fn told_at(conditions: &ConditionList, type_: &str) -> Option<Timestamp> {
    let condition = conditions.get(type_)?;
    [&condition.last_heartbeat_time, &condition.last_transition_time]
        .into_iter()
        .flatten()
        .map(|Time(time)| *time)
        .max()
}

fn seconds(time: Timestamp) -> u64 {
    u64::try_from(time.as_second()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use knmstate_client::watch::Seen;
    use serde_json::{Value, json};

    use super::*;
    use crate::world::testing::{changed, enactment, node, pod, policy, ready_pod};

    fn values(world: &World, name: &str) -> Vec<(String, u64)> {
        let gauges = gauges(world).into_iter().find(|gauges| gauges.name == name).unwrap();
        let labels = |labels: Vec<(&str, String)>| {
            labels.into_iter().map(|(_, value)| value).collect::<Vec<_>>().join("/")
        };
        gauges.values.into_iter().map(|(of, value)| (labels(of), value)).collect()
    }

    fn condition(type_: &str, at: &str, message: &str) -> Value {
        json!([{"type": type_, "status": "True", "message": message, "lastTransitionTime": at}])
    }

    /// A policy that is progressing since the tenth second, with this about its rollout.
    fn rolling_out(rollout: &Value) -> World {
        let mut world = World::default();
        let mut one = policy("p", 1, &json!({"rollout": rollout}));
        let conditions = condition("Progressing", "1970-01-01T00:00:10Z", "");
        one.status = serde_json::from_value(json!({"conditions": conditions})).unwrap();
        world.see_policies(changed(one));
        world
    }

    #[test]
    fn progress_is_whatever_last_happened_on_a_node() {
        const NAME: &str = "knmstate_rollout_progress_timestamp_seconds";
        let mut world = rolling_out(&json!({}));
        assert_eq!(values(&world, NAME), [("p".to_owned(), 10)]);
        let permitted = json!({"permit": "Apply", "permitTime": "1970-01-01T00:00:20Z"});
        world.see_enactments(changed(enactment("a", "p", 1, Some(permitted.clone()), &json!({}))));
        assert_eq!(values(&world, NAME), [("p".to_owned(), 20)]);
        let done = json!({"conditions": condition("Available", "1970-01-01T00:00:30Z", "")});
        world.see_enactments(changed(enactment("a", "p", 2, Some(permitted), &done)));
        assert_eq!(values(&world, NAME), [("p".to_owned(), 30)]);
        assert_eq!(values(&rolling_out(&json!({"paused": true})), NAME), []);
        let soaking = rolling_out(&json!({"canary": {"count": 1, "soak": "5m"}}));
        assert_eq!(values(&soaking, NAME), [("p".to_owned(), 310)]);
    }

    #[test]
    fn what_was_rolled_back_is_named_until_it_is_carried_out() {
        const NAME: &str = "knmstate_enactment_rolled_back_timestamp_seconds";
        let mut world = World::default();
        for (version, type_, why, expected) in [
            (1, "Failing", "probe \"dns\" failed; rolled back: the network is as it was before", 1),
            (2, "Failing", "no such interface", 0),
            (3, "Available", "", 0),
        ] {
            let status = json!({"conditions": condition(type_, "1970-01-01T00:00:30Z", why)});
            world.see_enactments(changed(enactment("a", "p", version, Some(json!({})), &status)));
            let found = values(&world, NAME);
            assert_eq!(found, vec![("a/p".to_owned(), 30); expected], "{why}");
        }
    }

    #[test]
    fn a_node_reports_by_a_ready_handler_and_a_state() {
        const NAME: &str = "knmstate_node_reporting";
        let now = Timestamp::UNIX_EPOCH;
        let mut world = World::default();
        for (name, ready) in
            [("bare", "True"), ("down", "False"), ("fine", "True"), ("new", "True"), ("old", "True")]
        {
            world.see_nodes(changed(node(name, &json!({}), ready)));
        }
        let states = ["down", "fine", "old", "removed"].map(|name| {
            let state = json!({"apiVersion": "nmstate.io/v1beta1", "kind": "NodeNetworkState",
                "metadata": {"name": name}});
            kube::core::DeserializeGuard(Ok(serde_json::from_value(state).unwrap()))
        });
        world.see_node_states(Seen::All(states.into()));
        for name in ["fine", "new"] {
            world.see_handlers(changed(ready_pod(&format!("pod-{name}"), name)), now);
        }
        let none = |name: &str, reports: u64| (name.to_owned(), reports);
        assert_eq!(values(&world, NAME), [none("fine", 1), none("new", 0), none("old", 0)]);
        world.see_handlers(changed(pod("pod-fine", "fine")), now);
        assert_eq!(values(&world, NAME), [none("fine", 0), none("new", 0), none("old", 0)]);
    }
}
