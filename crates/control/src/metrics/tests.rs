use jiff::Timestamp;
use knmstate_client::watch::ObjectEvent;
use knmstate_operator::{ALERTS, DASHBOARD, prometheus_rule};
use serde_json::{Value, json};

use super::*;
use crate::cluster_state::testing::{changed, enactment, node, policy, ready_pod};

/// All metrics of a small cluster: its node has applied one policy and rolled back another.
fn scraped() -> String {
    let (live, metrics) = (SharedClusterState::default(), ControllerMetrics::default());
    assert!(!text(&live, &metrics).contains("kubernetes_nmstate"), "no metrics without a complete state");
    {
        let mut cluster = live.lock();
        cluster.observe_policies(ObjectEvent::All(Vec::new()));
        cluster.observe_nodes(ObjectEvent::All(Vec::new()));
        cluster.observe_handlers(ObjectEvent::All(Vec::new()), Timestamp::UNIX_EPOCH);
        cluster.observe_enactments(ObjectEvent::All(Vec::new()));
        cluster.observe_node_states(ObjectEvent::All(Vec::new()));
        cluster.observe_nmstates(ObjectEvent::All(Vec::new()));
        let condition = |type_: &str, message: &str| {
            json!({"type": type_, "status": "True", "message": message,
                "lastTransitionTime": "1970-01-01T00:00:09Z"})
        };
        for (name, shown) in [("p", "Available"), ("q", "Progressing")] {
            let mut one = policy(name, 1, &json!({}));
            one.status = serde_json::from_value(json!({"conditions": [condition(shown, "")]})).unwrap();
            cluster.observe_policies(changed(one));
        }
        let status = json!({"conditions": [condition("Available", "")], "features": ["static-ip"]});
        cluster.observe_enactments(changed(enactment("n", "p", 1, Some(json!({})), &status)));
        let status = json!({"conditions": [condition("Failing", "no gateway; rolled back")]});
        cluster.observe_enactments(changed(enactment("n", "q", 1, Some(json!({})), &status)));
        cluster.observe_nodes(changed(node("n", &json!({}), "True")));
        cluster.observe_handlers(changed(ready_pod("pod", "n")), Timestamp::UNIX_EPOCH);
        let state = json!({"apiVersion": "nmstate.io/v1beta1", "kind": "NodeNetworkState",
            "metadata": {"name": "n"}, "status": {
                "setAside": [{"time": "1970-01-01T00:00:30Z", "reason": "no such bond", "file": "/j"}],
                "currentState": {
                "interfaces": [{"name": "a", "type": "bond"}],
                "routes": {"running": [{"destination": "::/0"}]}}}});
        cluster.observe_node_states(changed(serde_json::from_value(state).unwrap()));
    }
    metrics.set_leading(true);
    metrics.count_result("available");
    metrics.count_probe_failure("dns");
    metrics.count_rollback();
    metrics.set_certificate_expiry(CertificateKind::Serving, Timestamp::from_second(7).ok());
    metrics.set_certificate_expiry(CertificateKind::Authority, Timestamp::from_second(8).ok());
    metrics.observe_write("policy", std::time::Duration::ZERO, false);
    text(&live, &metrics)
}

#[test]
fn the_names_are_those_that_dashboards_know() {
    let text = scraped();
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
fn what_handlers_report_makes_a_limited_number_of_series() {
    let (live, metrics) = (SharedClusterState::default(), ControllerMetrics::default());
    for number in 0..2000 {
        metrics.count_probe_failure(&format!("made-up-{number}"));
    }
    {
        let mut cluster = live.lock();
        for policy in 0..10 {
            let made_up: Vec<String> = (0..1000).map(|number| format!("made-up-{policy}-{number}")).collect();
            let features = json!({"features": made_up});
            let one = enactment("n", &format!("p{policy}"), 1, Some(json!({})), &features);
            cluster.observe_enactments(changed(one));
        }
        let features = count(&cluster).into_iter().next().unwrap();
        assert_eq!(features.name, "kubernetes_nmstate_features_applied");
        assert_eq!(features.values.len(), MAX_FEATURES + 1);
    }
    let text = text(&live, &metrics);
    let series = text.lines().filter(|line| line.starts_with("knmstate_probe_failures_total{")).count();
    assert_eq!(series, 257, "those that have a label, and all others together");
}

#[test]
fn only_the_leader_exports_the_authority() {
    let (live, metrics) = (SharedClusterState::default(), ControllerMetrics::default());
    metrics.set_certificate_expiry(CertificateKind::Authority, Timestamp::from_second(8).ok());
    metrics.set_leading(false);
    assert!(!text(&live, &metrics).contains("authority\"} 8"));
}

/// The metrics in an expression.
fn metrics_in(expression: &str) -> Vec<&str> {
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
fn every_metric_of_the_alerts_exists_with_the_labels_that_they_use() {
    let text = scraped();
    for alert in &ALERTS {
        let labels = alert.description.split("$labels.").skip(1).filter_map(|rest| rest.split(' ').next());
        let labels: Vec<&str> = labels.collect();
        let names = metrics_in(alert.expression);
        assert!(!names.is_empty(), "{}", alert.name);
        for name in names {
            assert!(has_series(&text, name, &labels), "{} needs {name} with {labels:?}\n{text}", alert.name);
        }
        for label in labels {
            assert!(alert.expression.contains(label), "{} loses the label {label}", alert.name);
        }
    }
    let rules = serde_json::to_value(prometheus_rule(&knmstate_operator::Settings::default())).unwrap();
    for rule in rules.pointer("/spec/groups/1/rules").and_then(Value::as_array).unwrap() {
        let expression = rule["expr"].as_str().unwrap();
        assert!(metrics_in(expression).iter().all(|name| has_series(&text, name, &[])), "{expression}");
    }
}

#[test]
fn every_metric_of_the_dashboard_exists() {
    let text = scraped();
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let expression = target["expr"].as_str().unwrap();
            let names = metrics_in(expression);
            assert!(!names.is_empty(), "{expression}");
            for name in names {
                assert!(has_series(&text, name, &[]), "{name} of {expression} is not in\n{text}");
            }
        }
    }
}
