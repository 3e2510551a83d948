use jiff::ToSpan as _;
use kube::core::DeserializeGuard;
use serde_json::{Value, json};

use super::*;
use crate::cluster_state::testing::{changed, enactment, gone, node, pod, policy};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn known() -> ClusterState {
    let mut cluster = ClusterState::default();
    cluster.observe_policies(ObjectEvent::All(Vec::new()));
    cluster.observe_nodes(ObjectEvent::All(Vec::new()));
    cluster.observe_handlers(ObjectEvent::All(Vec::new()), NOW);
    cluster.observe_enactments(ObjectEvent::All(Vec::new()));
    cluster.observe_node_states(ObjectEvent::All(Vec::new()));
    assert!(!cluster.is_complete(), "something is still unread");
    cluster.observe_nmstates(ObjectEvent::All(Vec::new()));
    assert!(cluster.is_complete());
    cluster.take_affected();
    cluster
}

fn affected(cluster: &mut ClusterState) -> Vec<String> {
    cluster.take_affected().iter().map(|origin| origin.label().to_owned()).collect()
}

#[test]
fn only_relevant_changes_affect_policies() {
    let mut cluster = known();
    cluster.observe_policies(changed(policy("a", 1, &json!({}))));
    assert_eq!(affected(&mut cluster), ["a"]);
    cluster.observe_policies(changed(policy("a", 1, &json!({}))));
    assert!(affected(&mut cluster).is_empty(), "the same once more");
    cluster.observe_nodes(changed(node("n", &json!({"x": "y"}), "True")));
    assert_eq!(affected(&mut cluster), ["a"], "a new node may be for any policy");
    cluster.observe_nodes(changed(node("n", &json!({"x": "y"}), "True")));
    assert!(affected(&mut cluster).is_empty(), "a heartbeat");
    cluster.observe_nodes(changed(node("n", &json!({"x": "y"}), "False")));
    assert_eq!(affected(&mut cluster), ["a"]);
    cluster.observe_enactments(changed(enactment("n", "a", 5, Some(json!({})), &json!({}))));
    assert_eq!(affected(&mut cluster), ["a"]);
    cluster.observe_enactments(changed(enactment("n", "a", 4, None, &json!({}))));
    assert!(affected(&mut cluster).is_empty(), "older than what is known");
    cluster.observe_policies(gone(policy("a", 1, &json!({}))));
    assert_eq!(affected(&mut cluster), ["a"], "its enactment has to go");
}

#[test]
fn a_missing_handler_counts_only_after_a_while() {
    let mut cluster = known();
    assert_eq!(cluster.handler("n", NOW), Handler::Gone { since: Some(NOW) });
    cluster.observe_handlers(changed(pod("p", "n")), NOW);
    assert_eq!(cluster.handler("n", NOW), Handler::Runs);
    cluster.observe_handlers(gone(pod("p", "n")), NOW);
    let replaced = Handler::Replaced { since: NOW, until: NOW + 60.seconds() };
    assert_eq!(cluster.handler("n", NOW + 59.seconds()), replaced);
    assert_eq!(cluster.handlers(NOW)["n"], replaced);
    assert_eq!(cluster.handler("n", NOW + 60.seconds()), Handler::Gone { since: Some(NOW) });
    cluster.observe_handlers(changed(pod("q", "n")), NOW + 30.seconds());
    assert_eq!(cluster.handler("n", NOW + 90.seconds()), Handler::Runs);
}

#[test]
fn a_decision_counts_before_it_is_written() {
    let mut cluster = known();
    let order = |permit: &str| -> Arc<_> {
        let spec = json!({"nodeName": "n", "policyName": "a", "policyGeneration": 1, "permit": permit});
        Arc::new(serde_json::from_value(spec).unwrap())
    };
    let permit = |cluster: &ClusterState| {
        cluster.enactments.get("a", "n").and_then(|one| one.order()).map(|order| order.permit)
    };
    cluster.enactments.decide("a", "n", order("Apply"));
    assert_eq!(permit(&cluster), Some(knmstate_api::Permit::Apply));
    // The watch lags and still reports the previous order.
    cluster.observe_enactments(changed(enactment("n", "a", 7, Some(json!({"permit": "Wait"})), &json!({}))));
    assert_eq!(permit(&cluster), Some(knmstate_api::Permit::Apply));
    assert!(cluster.enactments.get("a", "n").unwrap().unwritten().is_some());
    cluster.observe_enactments(changed(enactment("n", "a", 8, Some(json!({"permit": "Apply"})), &json!({}))));
    assert!(cluster.enactments.get("a", "n").unwrap().unwritten().is_none(), "it has been seen");
    cluster.observe_enactments(gone(enactment("n", "a", 9, None, &json!({}))));
    assert_eq!(permit(&cluster), None);
}

#[test]
fn each_result_is_reported_once() {
    let mut cluster = known();
    let failing = json!({"policyGeneration": 1, "retryCount": {"1": 5},
        "conditions": [{"type": "Failing", "status": "True"}, {"type": "Progressing", "status": "False"}],
        "probes": [{"name": "dns", "after": "Failed"}, {"name": "ping", "after": "Passed"},
            {"name": "name-servers", "after": "Failed"}, {"name": "made-up", "after": "Failed"},
            {"name": "made-up-too", "after": "Failed"}]});
    let retrying = json!({"policyGeneration": 1,
        "conditions": [{"type": "Failing", "status": "True"}, {"type": "Progressing", "status": "True"}]});
    let see = |cluster: &mut ClusterState, version, status: &Value| {
        let order = json!({"probes": [{"name": "dns"}]});
        cluster.observe_enactments(changed(enactment("n", "a", version, Some(order), status)))
    };
    assert!(see(&mut cluster, 1, &retrying).is_empty());
    let reported = see(&mut cluster, 2, &failing);
    assert_eq!(reported.len(), 1);
    assert_eq!(reported[0].outcome, EnactmentOutcome::Failed { attempts: 5 });
    let failed: Vec<&String> = reported[0].failed_probes.iter().collect();
    assert_eq!(failed, ["dns", "name-servers", "other"], "those of the order, and the built-in ones");
    assert!(see(&mut cluster, 3, &failing).is_empty(), "it has been reported");
}

#[test]
fn a_desired_state_in_a_node_state_counts_where_it_is_allowed() {
    let mut cluster = known();
    let state = |managed: bool| {
        let spec = json!({"managed": managed, "desiredState": {"interfaces": []}});
        let object = json!({"apiVersion": "nmstate.io/v1beta1", "kind": "NodeNetworkState",
            "metadata": {"name": "n", "uid": "s", "generation": if managed { 2 } else { 3 }}, "spec": spec});
        ObjectEvent::Changed(DeserializeGuard(Ok(serde_json::from_value(object).unwrap())))
    };
    let settings = |name: &str, second: u8, allowed: bool| {
        let object = json!({"apiVersion": "nmstate.io/v1", "kind": "NMState",
            "metadata": {"name": name, "creationTimestamp": format!("2026-01-01T00:00:0{second}Z")},
            "spec": {"allowNodeStateConfiguration": allowed}});
        ObjectEvent::Changed(DeserializeGuard(Ok(serde_json::from_value(object).unwrap())))
    };
    let origin = Origin::NodeState("n".to_owned());
    cluster.observe_node_states(state(true));
    assert!(cluster.policy(&origin).is_none());
    cluster.observe_nmstates(settings("late", 5, true));
    assert_eq!(cluster.policy(&origin).unwrap().generation, 2);
    cluster.observe_nmstates(settings("early", 1, false));
    assert!(cluster.policy(&origin).is_none(), "of several, the oldest counts");
    cluster.observe_nmstates(settings("early", 1, true));
    assert!(cluster.policy(&origin).is_some());
    cluster.observe_node_states(state(false));
    assert!(cluster.policy(&origin).is_none());
}

#[test]
fn every_rollback_is_reported_once() {
    const GONE: &str = "the gateway is gone; rolled back: the network is as it was before";
    let mut cluster = ClusterState::default();
    let status = |attempts: u32, again: &str, message: &str| {
        json!({"policyGeneration": 1, "retryCount": {"1": attempts}, "conditions": [
            {"type": "Progressing", "status": again},
            {"type": "Failing", "status": "True", "message": message},
        ]})
    };
    for (version, status, expected) in [
        (1, json!({"policyGeneration": 1}), &[][..]),
        (2, status(1, "True", GONE), &[EnactmentOutcome::RolledBack]),
        (3, status(1, "True", GONE), &[]),
        (4, status(2, "True", GONE), &[EnactmentOutcome::RolledBack]),
        (5, status(3, "True", "NetworkManager does not answer"), &[]),
        (
            6,
            status(4, "False", GONE),
            &[EnactmentOutcome::RolledBack, EnactmentOutcome::Failed { attempts: 4 }],
        ),
        (
            7,
            json!({"policyGeneration": 1, "conditions": [{"type": "Available", "status": "True"}]}),
            &[EnactmentOutcome::Available],
        ),
    ] {
        let seen =
            cluster.observe_enactments(changed(enactment("a", "p", version, Some(json!({})), &status)));
        let what: Vec<EnactmentOutcome> = seen.into_iter().map(|event| event.outcome).collect();
        assert_eq!(what, expected, "{status}");
    }
}
