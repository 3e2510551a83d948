//! What Prometheus' operator and Grafana are told: where the metrics are, and what to make of them.

use serde_json::json;

use crate::{
    Object,
    catalogue::{PROMETHEUS_RULE, SERVICE_MONITOR},
    monitoring::{dashboard, rules},
    object::Foreign,
    operands::Wish,
    services::metrics_port,
};

/// Each only where there is somebody to read it.
pub fn monitor(wish: &Wish<'_>) -> Vec<Object> {
    if metrics_port(wish.spec).is_none() {
        return Vec::new();
    }
    let mut objects = Vec::new();
    if wish.facts.has(&SERVICE_MONITOR) {
        objects.extend([service_monitor(wish), dashboard(wish.settings).into()]);
    }
    if wish.facts.has(&PROMETHEUS_RULE) {
        objects.push(rules(wish.settings));
    }
    objects
}

fn service_monitor(wish: &Wish<'_>) -> Object {
    let settings = wish.settings;
    let mut metadata = settings.metadata_in(&settings.namespace, "controller-manager-metrics-monitor");
    let labels = metadata.labels.get_or_insert_default();
    labels.insert("openshift.io/cluster-monitoring".to_owned(), String::new());
    labels.insert("prometheus.nmstate.io".to_owned(), "true".to_owned());
    // The certificate is the one of the webhook, whichever Service the way led by.
    let name = format!("{}.{}.svc", settings.webhook_service(), settings.namespace);
    let tls = if wish.facts.openshift {
        json!({
            "caFile": "/etc/prometheus/configmaps/serving-certs-ca-bundle/service-ca.crt",
            "serverName": name,
        })
    } else {
        // The authority is the controller's own, and Prometheus cannot be told of it without its key beside it.
        json!({"insecureSkipVerify": true, "serverName": name})
    };
    let spec = json!({
        "endpoints": [{
            "port": "metrics",
            "scheme": "https",
            "bearerTokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token",
            "tlsConfig": tls,
            // The pod stays: there are two, and each counts for itself.
            "relabelings": [{"action": "labeldrop", "regex": "container|endpoint"}],
            "metricRelabelings": [{"action": "labeldrop", "regex": "instance|job"}],
        }],
        "namespaceSelector": {"matchNames": [settings.namespace]},
        "selector": {"matchLabels": {"prometheus.nmstate.io": "true", "app": "kubernetes-nmstate"}},
    });
    Foreign::new(&SERVICE_MONITOR, metadata, spec).into()
}
