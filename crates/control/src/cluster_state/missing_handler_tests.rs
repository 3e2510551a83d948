//! A handler that is missing when a leader takes over.

use jiff::{Timestamp, ToSpan as _};
use knmstate_api::Permit;
use knmstate_client::watch::ObjectEvent;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{ClusterState, Origin};
use crate::plan::tests::plan_policy;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn all<K: DeserializeOwned>(objects: impl IntoIterator<Item = Value>) -> ObjectEvent<K> {
    let read = |object| serde_json::from_value(object).map(|object| kube::core::DeserializeGuard(Ok(object)));
    ObjectEvent::All(objects.into_iter().map(|object| read(object).unwrap()).collect())
}

fn enactment(node: &str, permit: &str) -> Value {
    json!({
        "metadata": {"name": format!("{node}.p"), "uid": node, "resourceVersion": "1"},
        "spec": {"nodeName": node, "policyName": "p", "policyUID": "u", "policyGeneration": 1, "permit": permit,
            "permitTime": "1969-12-31T00:00:00Z"},
    })
}

/// `a` is at work, `b` waits; only `b` has a handler.
fn taken_over() -> ClusterState {
    let mut cluster = ClusterState::default();
    let ready = json!({"conditions": [{"type": "Ready", "status": "True"}]});
    cluster.observe_nodes(all(
        ["a", "b"].map(|name| json!({"metadata": {"name": name, "uid": name}, "status": ready}))
    ));
    cluster.observe_handlers(all([json!({"metadata": {"name": "pod"}, "spec": {"nodeName": "b"}})]), NOW);
    cluster.observe_policies(all([json!({
        "metadata": {"name": "p", "uid": "u", "generation": 1, "resourceVersion": "1"},
        "spec": {"maxUnavailable": 1},
    })]));
    cluster.observe_enactments(all([enactment("a", "Apply"), enactment("b", "Wait")]));
    cluster
}

#[test]
fn it_is_waited_for_a_limited_time_from_then_on() {
    let cluster = taken_over();
    let origin = Origin::Policy("p".to_owned());
    let permit_of_b = |now| plan_policy(&cluster, &origin, now).orders.get("b").map(|order| order.permit);
    let early = plan_policy(&cluster, &origin, NOW);
    assert_eq!(early.again_at, Some(NOW + 10.minutes()), "when it is given up");
    assert_ne!(permit_of_b(NOW + 9.minutes()), Some(Permit::Apply));
    assert_eq!(permit_of_b(NOW + 10.minutes()), Some(Permit::Apply));
}

#[test]
fn listing_again_does_not_restart_the_time() {
    let mut cluster = taken_over();
    cluster.observe_handlers(
        all([json!({"metadata": {"name": "pod"}, "spec": {"nodeName": "b"}})]),
        NOW + 8.minutes(),
    );
    let again_at = plan_policy(&cluster, &Origin::Policy("p".to_owned()), NOW + 8.minutes()).again_at;
    assert_eq!(again_at, Some(NOW + 10.minutes()));
}
