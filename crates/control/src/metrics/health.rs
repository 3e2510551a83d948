//! The metrics of the alerts, with the policy or node concerned as a label.
//!
//! Times are exported as timestamps and not as ages, so that their values do not depend on when they are scraped.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use knmstate_api::{
    ConditionList,
    reasons::{enactment::FAILING, policy::PROGRESSING},
};
use knmstate_core::enactment::is_rolled_back;

use super::Gauges;
use crate::cluster_state::{ClusterState, Origin, Policy};

pub(super) fn gauges(cluster: &ClusterState) -> [Gauges; 5] {
    [
        Gauges {
            name: "knmstate_policy_status",
            help: "1 for the condition that a policy shows; no series for the others",
            values: cluster
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
            help: "When a node last began or finished a progressing policy, or its canaries have soaked",
            values: cluster
                .policies
                .iter()
                .filter_map(|(name, policy)| {
                    let at = last_progress(cluster, name, policy)?;
                    Some((vec![("policy", name.clone())], seconds(at)))
                })
                .collect(),
        },
        Gauges {
            name: "knmstate_enactment_rolled_back_timestamp_seconds",
            help: "When a node rolled back a change that it has not applied since",
            values: cluster
                .enactments
                .iter()
                .filter(|(_, _, one)| is_rolled_back(&one.status.conditions))
                .filter_map(|(policy, node, one)| {
                    let at = reported_at(&one.status.conditions, FAILING)?;
                    Some((vec![("node", node.clone()), ("policy", policy.clone())], seconds(at)))
                })
                .collect(),
        },
        Gauges {
            name: "knmstate_node_reporting",
            help: "Whether a Ready node has a handler that is ready and has reported the node's network",
            values: cluster
                .reporting()
                .map(|(node, reports)| (vec![("node", node.clone())], u64::from(reports)))
                .collect(),
        },
        Gauges {
            name: "knmstate_node_changes_set_aside",
            help: "Number of changes that a node could not roll back and has given up; no series for other nodes",
            values: cluster
                .networks()
                .filter(|(_, network)| network.set_aside > 0)
                .map(|(node, network)| (vec![("node", node.clone())], network.set_aside))
                .collect(),
        },
    ]
}

/// When a rollout last made progress; `None` if it is over or paused.
fn last_progress(cluster: &ClusterState, name: &str, policy: &Policy) -> Option<Timestamp> {
    let rollout = policy.spec.rollout.as_ref();
    if !policy.status.conditions.is_true(PROGRESSING) || rollout.is_some_and(|rollout| rollout.paused) {
        return None;
    }
    let conditions = &policy.status.conditions;
    let began = conditions.get(PROGRESSING).and_then(|condition| condition.last_transition_time.as_ref());
    let origin = Origin::Policy(name.to_owned());
    let of_nodes = cluster.enactments.of(&origin).flat_map(|(_, one)| {
        let permitted = one.order().and_then(|order| order.permit_time.as_ref()).map(|time| time.0);
        let shown = one.status.conditions.first_true();
        let reported = shown.and_then(|condition| condition.last_transition_time.as_ref()).map(|time| time.0);
        [permitted, reported].into_iter().flatten()
    });
    let last = began.map(|time| time.0).into_iter().chain(of_nodes).max()?;
    let soak = rollout.and_then(|rollout| rollout.canary.as_ref()?.soak);
    Some(soak.and_then(|soak| last.checked_add(soak.as_std()).ok()).unwrap_or(last))
}

/// When a condition was last written.
fn reported_at(conditions: &ConditionList, type_: &str) -> Option<Timestamp> {
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
    use knmstate_client::watch::ObjectEvent;
    use serde_json::{Value, json};

    use super::*;
    use crate::cluster_state::testing::{changed, enactment, node, pod, policy, ready_pod};

    fn values(cluster: &ClusterState, name: &str) -> Vec<(String, u64)> {
        let gauges = gauges(cluster).into_iter().find(|gauges| gauges.name == name).unwrap();
        let labels = |labels: Vec<(&str, String)>| {
            labels.into_iter().map(|(_, value)| value).collect::<Vec<_>>().join("/")
        };
        gauges.values.into_iter().map(|(of, value)| (labels(of), value)).collect()
    }

    fn condition(type_: &str, at: &str, message: &str) -> Value {
        json!([{"type": type_, "status": "True", "message": message, "lastTransitionTime": at}])
    }

    /// A policy with these settings of its rollout that has been progressing since second 10.
    fn rolling_out(rollout: &Value) -> ClusterState {
        let mut cluster = ClusterState::default();
        let mut one = policy("p", 1, &json!({"rollout": rollout}));
        let conditions = condition("Progressing", "1970-01-01T00:00:10Z", "");
        one.status = serde_json::from_value(json!({"conditions": conditions})).unwrap();
        cluster.observe_policies(changed(one));
        cluster
    }

    #[test]
    fn progress_is_the_last_event_on_a_node() {
        const NAME: &str = "knmstate_rollout_progress_timestamp_seconds";
        let mut cluster = rolling_out(&json!({}));
        assert_eq!(values(&cluster, NAME), [("p".to_owned(), 10)]);
        let permitted = json!({"permit": "Apply", "permitTime": "1970-01-01T00:00:20Z"});
        cluster.observe_enactments(changed(enactment("a", "p", 1, Some(permitted.clone()), &json!({}))));
        assert_eq!(values(&cluster, NAME), [("p".to_owned(), 20)]);
        let done = json!({"conditions": condition("Available", "1970-01-01T00:00:30Z", "")});
        cluster.observe_enactments(changed(enactment("a", "p", 2, Some(permitted), &done)));
        assert_eq!(values(&cluster, NAME), [("p".to_owned(), 30)]);
        assert_eq!(values(&rolling_out(&json!({"paused": true})), NAME), []);
        let soaking = rolling_out(&json!({"canary": {"count": 1, "soak": "5m"}}));
        assert_eq!(values(&soaking, NAME), [("p".to_owned(), 310)]);
    }

    #[test]
    fn a_rollback_is_exported_until_the_policy_is_applied() {
        const NAME: &str = "knmstate_enactment_rolled_back_timestamp_seconds";
        let mut cluster = ClusterState::default();
        for (version, type_, why, expected) in [
            (1, "Failing", "probe \"dns\" failed; rolled back: the network is as it was before", 1),
            (2, "Failing", "no such interface", 0),
            (3, "Available", "", 0),
        ] {
            let status = json!({"conditions": condition(type_, "1970-01-01T00:00:30Z", why)});
            cluster.observe_enactments(changed(enactment("a", "p", version, Some(json!({})), &status)));
            let found = values(&cluster, NAME);
            assert_eq!(found, vec![("a/p".to_owned(), 30); expected], "{why}");
        }
    }

    #[test]
    fn a_node_reports_by_a_ready_handler_and_a_state() {
        const NAME: &str = "knmstate_node_reporting";
        let now = Timestamp::UNIX_EPOCH;
        let mut cluster = ClusterState::default();
        for (name, ready) in
            [("bare", "True"), ("down", "False"), ("fine", "True"), ("new", "True"), ("old", "True")]
        {
            cluster.observe_nodes(changed(node(name, &json!({}), ready)));
        }
        let states = ["down", "fine", "old", "removed"].map(|name| {
            let state = json!({"apiVersion": "nmstate.io/v1beta1", "kind": "NodeNetworkState",
                "metadata": {"name": name}});
            kube::core::DeserializeGuard(Ok(serde_json::from_value(state).unwrap()))
        });
        cluster.observe_node_states(ObjectEvent::All(states.into()));
        for name in ["fine", "new"] {
            cluster.observe_handlers(changed(ready_pod(&format!("pod-{name}"), name)), now);
        }
        let none = |name: &str, reports: u64| (name.to_owned(), reports);
        assert_eq!(values(&cluster, NAME), [none("fine", 1), none("new", 0), none("old", 0)]);
        cluster.observe_handlers(changed(pod("pod-fine", "fine")), now);
        assert_eq!(values(&cluster, NAME), [none("fine", 0), none("new", 0), none("old", 0)]);
    }

    #[test]
    fn changes_that_were_given_up_are_counted_by_node() {
        const NAME: &str = "knmstate_node_changes_set_aside";
        let mut cluster = ClusterState::default();
        let aside = json!({"time": "1970-01-01T00:00:30Z", "reason": "no such bond", "file": "/j"});
        for (name, changes) in [("fine", json!([])), ("odd", json!([aside, aside]))] {
            let state = json!({"apiVersion": "nmstate.io/v1beta1", "kind": "NodeNetworkState",
                "metadata": {"name": name}, "status": {"setAside": changes}});
            cluster.observe_node_states(changed(serde_json::from_value(state).unwrap()));
        }
        assert_eq!(values(&cluster, NAME), [("odd".to_owned(), 2)]);
    }
}
