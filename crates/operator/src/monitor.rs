//! Objects for the Prometheus operator and Grafana: ServiceMonitor, alerts and dashboard.

use serde_json::json;

use crate::{
    Object,
    kinds::{PROMETHEUS_RULE, SERVICE_MONITOR},
    monitoring::{dashboard, prometheus_rule},
    object::ForeignObject,
    operands::OperandInputs,
    services::metrics_port,
};

/// Each only in clusters that have its kind.
pub(crate) fn monitor(inputs: &OperandInputs<'_>) -> Vec<Object> {
    if metrics_port(inputs.spec).is_none() {
        return Vec::new();
    }
    let mut objects = Vec::new();
    if inputs.cluster.has(&SERVICE_MONITOR) {
        objects.extend([service_monitor(inputs), dashboard(inputs.settings).into()]);
    }
    if inputs.cluster.has(&PROMETHEUS_RULE) {
        objects.push(prometheus_rule(inputs.settings));
    }
    objects
}

fn service_monitor(inputs: &OperandInputs<'_>) -> Object {
    let settings = inputs.settings;
    let mut metadata = settings.metadata_in(&settings.namespace, "controller-manager-metrics-monitor");
    let labels = metadata.labels.get_or_insert_default();
    labels.insert("openshift.io/cluster-monitoring".to_owned(), String::new());
    labels.insert("prometheus.nmstate.io".to_owned(), "true".to_owned());
    // Both Services have the certificate of the webhook.
    let name = format!("{}.{}.svc", settings.webhook_service(), settings.namespace);
    let tls = if inputs.cluster.openshift {
        json!({
            "caFile": "/etc/prometheus/configmaps/serving-certs-ca-bundle/service-ca.crt",
            "serverName": name,
        })
    } else {
        // The controllers' own authority is in a Secret together with its key, which Prometheus must not read.
        json!({"insecureSkipVerify": true, "serverName": name})
    };
    let spec = json!({
        "endpoints": [{
            "port": "metrics",
            "scheme": "https",
            "bearerTokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token",
            "tlsConfig": tls,
            // The label of the pod stays: there are two pods with counters of their own.
            "relabelings": [{"action": "labeldrop", "regex": "container|endpoint"}],
            "metricRelabelings": [{"action": "labeldrop", "regex": "instance|job"}],
        }],
        "namespaceSelector": {"matchNames": [settings.namespace]},
        "selector": {"matchLabels": {"prometheus.nmstate.io": "true", "app": "kubernetes-nmstate"}},
    });
    ForeignObject::new(&SERVICE_MONITOR, metadata, spec).into()
}
