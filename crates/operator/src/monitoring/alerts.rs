//! The alerts, and the recording rules of OpenShift's telemetry.

use serde_json::json;

use crate::{Object, Settings, kinds::PROMETHEUS_RULE, object::ForeignObject};

/// The runbooks that the alerts link to.
const RUNBOOKS: &str = "https://github.com/knmstate/knmstate/blob/main/docs/runbooks";

/// An alert for the admins of the cluster.
#[derive(Clone, Copy, Debug)]
pub struct Alert {
    pub name: &'static str,
    /// Each series that it returns is one problem.
    pub expression: &'static str,
    /// How long it must hold before the alert fires.
    pub lasting: &'static str,
    pub severity: AlertSeverity,
    pub summary: &'static str,
    pub description: &'static str,
}

/// How urgent an alert is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlertSeverity {
    /// An admin should look at it within a day.
    Warning,
    /// An admin should look at it now.
    Critical,
}

impl AlertSeverity {
    const fn word(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

/// All alerts. Running rollouts, replaced handlers and a change of the leader raise none.
pub const ALERTS: [Alert; 7] = [
    Alert {
        name: "NMStatePolicyFailing",
        expression: r#"max by (policy) (knmstate_policy_status{status="Degraded"}) == 1"#,
        lasting: "5m",
        severity: AlertSeverity::Warning,
        summary: "A network policy has failed.",
        description: "Policy {{ $labels.policy }} has failed on at least one node, or conflicts with other \
            policies. Nodes that failed have their previous network again.",
    },
    Alert {
        name: "NMStateChangeRolledBack",
        expression: "time() - max by (node, policy) (knmstate_enactment_rolled_back_timestamp_seconds) < 3600",
        lasting: "0m",
        severity: AlertSeverity::Warning,
        summary: "A change of a node's network was rolled back.",
        description: "Node {{ $labels.node }} has rolled back the change of policy {{ $labels.policy }} within the \
            last hour, because it would have cut the node off or could not be applied.",
    },
    Alert {
        name: "NMStateRolloutStuck",
        expression: "time() - max by (policy) (knmstate_rollout_progress_timestamp_seconds) > 1800",
        lasting: "5m",
        severity: AlertSeverity::Warning,
        summary: "The rollout of a network policy is stuck.",
        description: "No node has begun or finished policy {{ $labels.policy }} for half an hour, and the rollout is \
            neither over nor paused.",
    },
    Alert {
        name: "NMStateNodeNotReporting",
        expression: "max by (node) (knmstate_node_reporting) == 0",
        lasting: "15m",
        severity: AlertSeverity::Warning,
        summary: "A node does not report its network.",
        description: "Node {{ $labels.node }} is Ready, but its handler is missing or not ready, or has not reported \
            the node's network. Policies do not reach it.",
    },
    Alert {
        name: "NMStateChangeSetAside",
        expression: "max by (node) (knmstate_node_changes_set_aside) > 0",
        lasting: "0m",
        severity: AlertSeverity::Warning,
        summary: "A change of a node's network could not be rolled back.",
        description: "Node {{ $labels.node }} could not roll back a change of its network and has given it up. Parts of \
            the change may still be there. The node applies policies as before.",
    },
    Alert {
        name: "NMStateCertificateNearExpiry",
        expression: "min by (certificate) (knmstate_certificate_expiry_timestamp_seconds) - time() < 43200",
        lasting: "30m",
        severity: AlertSeverity::Critical,
        summary: "A certificate of the webhook expires soon and was not renewed.",
        description: "The {{ $labels.certificate }} certificate of the webhook expires in \
            {{ $value | humanizeDuration }}. After that the API server cannot call the webhook.",
    },
    Alert {
        name: "NMStateControllerAbsent",
        expression: "absent(knmstate_leader) or max(max_over_time(knmstate_leader[10m])) < 1",
        lasting: "5m",
        severity: AlertSeverity::Critical,
        summary: "No controller of network policies is running.",
        description: "No controller leads, or no metrics of one can be read. New and changed policies do not \
            reach any node; applied policies stay in force.",
    },
];

/// The sums that OpenShift's telemetry collects.
const SUMS: [(&str, &str); 3] = [
    (
        "cluster:kubernetes_nmstate_features_applied:sum",
        "sum by (name) (kubernetes_nmstate_features_applied)",
    ),
    (
        "cluster:kubernetes_nmstate_network_interfaces:sum",
        "sum by (type) (kubernetes_nmstate_network_interfaces)",
    ),
    ("cluster:kubernetes_nmstate_routes:sum", "sum by (ip_stack, type) (kubernetes_nmstate_routes)"),
];

/// The PrometheusRule with all alerts and recording rules.
pub fn prometheus_rule(settings: &Settings) -> Object {
    let alerts = ALERTS.map(|alert| {
        json!({
            "alert": alert.name,
            "expr": alert.expression,
            "for": alert.lasting,
            "labels": { "severity": alert.severity.word() },
            "annotations": {
                "summary": alert.summary,
                "description": alert.description,
                "runbook_url": format!("{RUNBOOKS}/{}.md", alert.name),
            },
        })
    });
    let sums = SUMS.map(|(record, expression)| json!({ "record": record, "expr": expression }));
    let mut metadata = settings.metadata_in(&settings.namespace, "kubernetes-nmstate-prometheus-rules");
    metadata.labels.get_or_insert_default().insert("prometheus.nmstate.io".to_owned(), "true".to_owned());
    let groups = json!([
        { "name": "kubernetes-nmstate.alerts", "rules": alerts },
        { "name": "kubernetes-nmstate.sums", "rules": sums },
    ]);
    ForeignObject::new(&PROMETHEUS_RULE, metadata, json!({ "groups": groups })).into()
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, path::Path};

    use serde_json::Value;

    use super::*;

    #[test]
    fn every_alert_has_a_runbook_and_every_runbook_an_alert() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/runbooks");
        let there: BTreeSet<String> = std::fs::read_dir(&directory)
            .expect("the directory of runbooks")
            .map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"))
            .collect();
        let wanted: BTreeSet<String> = ALERTS.iter().map(|alert| format!("{}.md", alert.name)).collect();
        assert_eq!(there, wanted);
        for alert in &ALERTS {
            let page = std::fs::read_to_string(directory.join(format!("{}.md", alert.name))).expect("a page");
            assert!(page.starts_with(&format!("# {}\n", alert.name)), "{}", alert.name);
            for part in ["## What it means", "## What to look at", "## What to do", "kubectl"] {
                assert!(page.contains(part), "{} lacks {part:?}", alert.name);
            }
        }
    }

    #[test]
    fn the_rules_are_those_that_users_find_by_name() {
        let rules = serde_json::to_value(prometheus_rule(&Settings::default())).expect("an object");
        assert_eq!(rules["metadata"]["name"], "kubernetes-nmstate-prometheus-rules");
        assert_eq!(rules["metadata"]["namespace"], "nmstate");
        let alerts = rules.pointer("/spec/groups/0/rules").and_then(Value::as_array).expect("alerts");
        assert_eq!(alerts.len(), ALERTS.len());
        for alert in alerts {
            for path in
                ["/expr", "/for", "/labels/severity", "/annotations/summary", "/annotations/description"]
            {
                assert!(
                    alert.pointer(path).and_then(Value::as_str).is_some_and(|text| !text.is_empty()),
                    "{path}"
                );
            }
            let url = alert.pointer("/annotations/runbook_url").and_then(Value::as_str).expect("a page");
            assert!(
                url.starts_with("https://github.com/knmstate/knmstate/blob/main/docs/runbooks/"),
                "{url}"
            );
        }
    }
}
