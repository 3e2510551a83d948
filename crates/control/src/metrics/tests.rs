use jiff::Timestamp;
use knmstate_client::watch::Seen;
use knmstate_operator::monitoring::{
    alerts::{ALERTS, rules},
    dashboard::DASHBOARD,
};
use serde_json::{Value, json};

use super::*;
use crate::world::testing::{changed, enactment, node, policy, ready_pod};

/// All metrics of a small cluster: a node that has carried out one policy, and is being rolled back with another.
fn told() -> String {
    let (live, measures) = (LiveWorld::default(), Measures::default());
    assert!(!text(&live, &measures).contains("kubernetes_nmstate"), "who knows nothing says nothing");
    {
        let mut world = live.lock();
        world.see_policies(Seen::All(Vec::new()));
        world.see_nodes(Seen::All(Vec::new()));
        world.see_handlers(Seen::All(Vec::new()), Timestamp::UNIX_EPOCH);
        world.see_enactments(Seen::All(Vec::new()));
        world.see_node_states(Seen::All(Vec::new()));
        world.see_settings(Seen::All(Vec::new()));
        let condition = |type_: &str, message: &str| {
            json!({"type": type_, "status": "True", "message": message,
                "lastTransitionTime": "1970-01-01T00:00:09Z"})
        };
        for (name, shown) in [("p", "Available"), ("q", "Progressing")] {
            let mut one = policy(name, 1, &json!({}));
            one.status = serde_json::from_value(json!({"conditions": [condition(shown, "")]})).unwrap();
            world.see_policies(changed(one));
        }
        let status = json!({"conditions": [condition("Available", "")], "features": ["static-ip"]});
        world.see_enactments(changed(enactment("n", "p", 1, Some(json!({})), &status)));
        let status = json!({"conditions": [condition("Failing", "no gateway; rolled back")]});
        world.see_enactments(changed(enactment("n", "q", 1, Some(json!({})), &status)));
        world.see_nodes(changed(node("n", &json!({}), "True")));
        world.see_handlers(changed(ready_pod("pod", "n")), Timestamp::UNIX_EPOCH);
        let state = json!({"apiVersion": "nmstate.io/v1beta1", "kind": "NodeNetworkState",
            "metadata": {"name": "n"}, "status": {"currentState": {
                "interfaces": [{"name": "a", "type": "bond"}],
                "routes": {"running": [{"destination": "::/0"}]}}}});
        world.see_node_states(changed(serde_json::from_value(state).unwrap()));
    }
    measures.leads(true);
    measures.result("available");
    measures.probe_failed("dns");
    measures.rolled_back();
    measures.certificate_ends(Which::Serving, Timestamp::from_second(7).ok());
    measures.certificate_ends(Which::Authority, Timestamp::from_second(8).ok());
    measures.written("policy", std::time::Duration::ZERO, false);
    text(&live, &measures)
}

#[test]
fn the_names_are_those_that_dashboards_know() {
    let text = told();
    for line in [
        "kubernetes_nmstate_features_applied{name=\"static-ip\"} 1",
        "kubernetes_nmstate_network_interfaces{node=\"n\",type=\"bond\"} 1",
        "kubernetes_nmstate_routes{ip_stack=\"ipv6\",node=\"n\",type=\"dynamic\"} 1",
        "kubernetes_nmstate_policies_status{status=\"Available\"} 1",
        "kubernetes_nmstate_policies_status{status=\"Ignored\"} 0",
        "kubernetes_nmstate_enactments_status{node=\"n\",status=\"Available\"} 1",
        "kubernetes_nmstate_enactments_status{node=\"n\",status=\"Pending\"} 0",
        "knmstate_enactment_results_total{result=\"available\"} 1",
        "knmstate_probe_failures_total{probe=\"dns\"} 1",
        "knmstate_policy_status{policy=\"p\",status=\"Available\"} 1",
        "knmstate_policy_status{policy=\"q\",status=\"Progressing\"} 1",
        "knmstate_rollout_progress_timestamp_seconds{policy=\"q\"} 9",
        "knmstate_enactment_rolled_back_timestamp_seconds{node=\"n\",policy=\"q\"} 9",
        "knmstate_node_reporting{node=\"n\"} 1",
        "knmstate_rollbacks_total 1",
        "knmstate_certificate_expiry_timestamp_seconds{certificate=\"serving\"} 7",
        "knmstate_certificate_expiry_timestamp_seconds{certificate=\"authority\"} 8",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in:\n{text}");
    }
}

#[test]
fn only_the_leader_speaks_of_the_authority() {
    let (live, measures) = (LiveWorld::default(), Measures::default());
    measures.certificate_ends(Which::Authority, Timestamp::from_second(8).ok());
    measures.leads(false);
    assert!(!text(&live, &measures).contains("authority\"} 8"));
}

/// The metrics that an expression asks for.
fn asked(expression: &str) -> Vec<&str> {
    let words = expression.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
    words.filter(|word| word.starts_with("knmstate_") || word.starts_with("kubernetes_nmstate_")).collect()
}

/// Whether a series of this name has all of these labels.
fn has_series(text: &str, name: &str, labels: &[&str]) -> bool {
    text.lines().filter_map(|line| line.strip_prefix(name)).any(|rest| {
        rest.starts_with(['{', ' ']) && labels.iter().all(|label| rest.contains(&format!("{label}=\"")))
    })
}

#[test]
fn every_metric_of_the_alerts_is_there_with_the_labels_that_they_name() {
    let text = told();
    for alert in &ALERTS {
        let labels = alert.description.split("$labels.").skip(1).filter_map(|rest| rest.split(' ').next());
        let labels: Vec<&str> = labels.collect();
        let names = asked(alert.expression);
        assert!(!names.is_empty(), "{}", alert.name);
        for name in names {
            assert!(
                has_series(&text, name, &labels),
                "{} asks for {name} with {labels:?}\n{text}",
                alert.name
            );
        }
        for label in labels {
            assert!(alert.expression.contains(label), "{} loses the label {label}", alert.name);
        }
    }
    let rules = serde_json::to_value(rules(&knmstate_operator::Settings::default())).unwrap();
    for rule in rules.pointer("/spec/groups/1/rules").and_then(Value::as_array).unwrap() {
        let expression = rule["expr"].as_str().unwrap();
        assert!(asked(expression).iter().all(|name| has_series(&text, name, &[])), "{expression}");
    }
}

#[test]
fn every_metric_of_the_dashboard_is_there() {
    let text = told();
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let expression = target["expr"].as_str().unwrap();
            let names = asked(expression);
            assert!(!names.is_empty(), "{expression}");
            for name in names {
                assert!(has_series(&text, name, &[]), "{name} of {expression} is not in\n{text}");
            }
        }
    }
}
