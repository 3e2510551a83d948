use jiff::ToSpan as _;
use serde_json::{Value, json};

use super::*;
use crate::world::testing::{changed, enactment, gone, node, pod, policy};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn known() -> World {
    let mut world = World::default();
    world.see_policies(Seen::All(Vec::new()));
    world.see_nodes(Seen::All(Vec::new()));
    world.see_handlers(Seen::All(Vec::new()), NOW);
    world.see_enactments(Seen::All(Vec::new()));
    world.see_node_states(Seen::All(Vec::new()));
    assert!(!world.is_known(), "something is still unread");
    world.see_settings(Seen::All(Vec::new()));
    assert!(world.is_known());
    world.take_concerned();
    world
}

fn concerned(world: &mut World) -> Vec<String> {
    world.take_concerned().iter().map(|origin| origin.label().to_owned()).collect()
}

#[test]
fn only_what_changes_something_is_decided_about_anew() {
    let mut world = known();
    world.see_policies(changed(policy("a", 1, &json!({}))));
    assert_eq!(concerned(&mut world), ["a"]);
    world.see_policies(changed(policy("a", 1, &json!({}))));
    assert!(concerned(&mut world).is_empty(), "the same once more");
    world.see_nodes(changed(node("n", &json!({"x": "y"}), "True")));
    assert_eq!(concerned(&mut world), ["a"], "a new node may be for any policy");
    world.see_nodes(changed(node("n", &json!({"x": "y"}), "True")));
    assert!(concerned(&mut world).is_empty(), "a heartbeat");
    world.see_nodes(changed(node("n", &json!({"x": "y"}), "False")));
    assert_eq!(concerned(&mut world), ["a"]);
    world.see_enactments(changed(enactment("n", "a", 5, Some(json!({})), &json!({}))));
    assert_eq!(concerned(&mut world), ["a"]);
    world.see_enactments(changed(enactment("n", "a", 4, None, &json!({}))));
    assert!(concerned(&mut world).is_empty(), "older than what is known");
    world.see_policies(gone(policy("a", 1, &json!({}))));
    assert_eq!(concerned(&mut world), ["a"], "its enactment has to go");
}

#[test]
fn a_handler_is_missed_only_after_a_while() {
    let mut world = known();
    assert_eq!(world.handler("n", NOW), Handler::Gone { since: Some(NOW) });
    world.see_handlers(changed(pod("p", "n")), NOW);
    assert_eq!(world.handler("n", NOW), Handler::Runs);
    world.see_handlers(gone(pod("p", "n")), NOW);
    let replaced = Handler::Replaced { since: NOW, until: NOW + 60.seconds() };
    assert_eq!(world.handler("n", NOW + 59.seconds()), replaced);
    assert_eq!(world.handlers(NOW)["n"], replaced);
    assert_eq!(world.handler("n", NOW + 60.seconds()), Handler::Gone { since: Some(NOW) });
    world.see_handlers(changed(pod("q", "n")), NOW + 30.seconds());
    assert_eq!(world.handler("n", NOW + 90.seconds()), Handler::Runs);
}

#[test]
fn a_decision_counts_before_it_is_written() {
    let mut world = known();
    let order = |permit: &str| -> Arc<_> {
        let spec = json!({"nodeName": "n", "policyName": "a", "policyGeneration": 1, "permit": permit});
        Arc::new(serde_json::from_value(spec).unwrap())
    };
    let permit =
        |world: &World| world.enactments.get("a", "n").and_then(|one| one.order()).map(|order| order.permit);
    world.enactments.decide("a", "n", order("Apply"));
    assert_eq!(permit(&world), Some(knmstate_api::Permit::Apply));
    // The watch is late, and still tells of the order before.
    world.see_enactments(changed(enactment("n", "a", 7, Some(json!({"permit": "Wait"})), &json!({}))));
    assert_eq!(permit(&world), Some(knmstate_api::Permit::Apply));
    assert!(world.enactments.get("a", "n").unwrap().unwritten().is_some());
    world.see_enactments(changed(enactment("n", "a", 8, Some(json!({"permit": "Apply"})), &json!({}))));
    assert!(world.enactments.get("a", "n").unwrap().unwritten().is_none(), "now it is there");
    world.see_enactments(gone(enactment("n", "a", 9, None, &json!({}))));
    assert_eq!(permit(&world), None);
}

#[test]
fn what_becomes_of_an_order_is_told_once() {
    let mut world = known();
    let failing = json!({"policyGeneration": 1, "retryCount": {"1": 5},
        "conditions": [{"type": "Failing", "status": "True"}, {"type": "Progressing", "status": "False"}],
        "probes": [{"name": "dns", "after": "Failed"}, {"name": "ping", "after": "Passed"}]});
    let retrying = json!({"policyGeneration": 1,
        "conditions": [{"type": "Failing", "status": "True"}, {"type": "Progressing", "status": "True"}]});
    let see = |world: &mut World, version, status: &Value| {
        world.see_enactments(changed(enactment("n", "a", version, Some(json!({})), status)))
    };
    assert!(see(&mut world, 1, &retrying).is_empty());
    let told = see(&mut world, 2, &failing);
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].what, What::Failed { attempts: 5 });
    assert_eq!(told[0].failed_probes, ["dns"]);
    assert!(see(&mut world, 3, &failing).is_empty(), "it was told");
}

#[test]
fn what_an_admin_writes_into_a_state_counts_where_it_is_allowed() {
    let mut world = known();
    let state = |managed: bool| {
        let spec = json!({"managed": managed, "desiredState": {"interfaces": []}});
        let object = json!({"apiVersion": "nmstate.io/v1beta1", "kind": "NodeNetworkState",
            "metadata": {"name": "n", "uid": "s", "generation": if managed { 2 } else { 3 }}, "spec": spec});
        Seen::Changed(DeserializeGuard(Ok(serde_json::from_value(object).unwrap())))
    };
    let settings = |name: &str, second: u8, allowed: bool| {
        let object = json!({"apiVersion": "nmstate.io/v1", "kind": "NMState",
            "metadata": {"name": name, "creationTimestamp": format!("2026-01-01T00:00:0{second}Z")},
            "spec": {"allowNodeStateConfiguration": allowed}});
        Seen::Changed(DeserializeGuard(Ok(serde_json::from_value(object).unwrap())))
    };
    let origin = Origin::NodeState("n".to_owned());
    world.see_node_states(state(true));
    assert!(world.policy(&origin).is_none());
    world.see_settings(settings("late", 5, true));
    assert_eq!(world.policy(&origin).unwrap().generation, 2);
    world.see_settings(settings("early", 1, false));
    assert!(world.policy(&origin).is_none(), "of several, the oldest counts");
    world.see_settings(settings("early", 1, true));
    assert!(world.policy(&origin).is_some());
    world.see_node_states(state(false));
    assert!(world.policy(&origin).is_none());
}

#[test]
fn every_rollback_is_told_once() {
    const GONE: &str = "the gateway is gone; rolled back: the network is as it was before";
    let mut world = World::default();
    let status = |attempts: u32, again: &str, message: &str| {
        json!({"policyGeneration": 1, "retryCount": {"1": attempts}, "conditions": [
            {"type": "Progressing", "status": again},
            {"type": "Failing", "status": "True", "message": message},
        ]})
    };
    for (version, status, expected) in [
        (1, json!({"policyGeneration": 1}), &[][..]),
        (2, status(1, "True", GONE), &[What::RolledBack]),
        (3, status(1, "True", GONE), &[]),
        (4, status(2, "True", GONE), &[What::RolledBack]),
        (5, status(3, "True", "NetworkManager does not answer"), &[]),
        (6, status(4, "False", GONE), &[What::RolledBack, What::Failed { attempts: 4 }]),
        (
            7,
            json!({"policyGeneration": 1, "conditions": [{"type": "Available", "status": "True"}]}),
            &[What::Available],
        ),
    ] {
        let seen = world.see_enactments(changed(enactment("a", "p", version, Some(json!({})), &status)));
        let what: Vec<What> = seen.into_iter().map(|happening| happening.what).collect();
        assert_eq!(what, expected, "{status}");
    }
}
