//! A handler that is missing when a leader takes over.

use jiff::{Timestamp, ToSpan as _};
use knmstate_api::Permit;
use knmstate_client::watch::Seen;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Origin, World};
use crate::plan::plan;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn all<K: DeserializeOwned>(objects: impl IntoIterator<Item = Value>) -> Seen<K> {
    let read = |object| serde_json::from_value(object).map(|object| kube::core::DeserializeGuard(Ok(object)));
    Seen::All(objects.into_iter().map(|object| read(object).unwrap()).collect())
}

fn enactment(node: &str, permit: &str) -> Value {
    json!({
        "metadata": {"name": format!("{node}.p"), "uid": node, "resourceVersion": "1"},
        "spec": {"nodeName": node, "policyName": "p", "policyUID": "u", "policyGeneration": 1, "permit": permit,
            "permitTime": "1969-12-31T00:00:00Z"},
    })
}

/// `a` is at work, `b` waits; only `b` has a handler.
fn taken_over() -> World {
    let mut world = World::default();
    let ready = json!({"conditions": [{"type": "Ready", "status": "True"}]});
    world.see_nodes(all(
        ["a", "b"].map(|name| json!({"metadata": {"name": name, "uid": name}, "status": ready}))
    ));
    world.see_handlers(all([json!({"metadata": {"name": "pod"}, "spec": {"nodeName": "b"}})]), NOW);
    world.see_policies(all([json!({
        "metadata": {"name": "p", "uid": "u", "generation": 1, "resourceVersion": "1"},
        "spec": {"maxUnavailable": 1},
    })]));
    world.see_enactments(all([enactment("a", "Apply"), enactment("b", "Wait")]));
    world
}

#[test]
fn it_is_waited_for_from_then_on_and_not_for_ever() {
    let world = taken_over();
    let origin = Origin::Policy("p".to_owned());
    let permit_of_b = |now| plan(&world, &origin, now).orders.get("b").map(|order| order.permit);
    let early = plan(&world, &origin, NOW);
    assert_eq!(early.again_at, Some(NOW + 10.minutes()), "when it is given up");
    assert_ne!(permit_of_b(NOW + 9.minutes()), Some(Permit::Apply));
    assert_eq!(permit_of_b(NOW + 10.minutes()), Some(Permit::Apply));
}

#[test]
fn to_list_anew_does_not_begin_from_the_beginning() {
    let mut world = taken_over();
    world.see_handlers(
        all([json!({"metadata": {"name": "pod"}, "spec": {"nodeName": "b"}})]),
        NOW + 8.minutes(),
    );
    let again_at = plan(&world, &Origin::Policy("p".to_owned()), NOW + 8.minutes()).again_at;
    assert_eq!(again_at, Some(NOW + 10.minutes()));
}
