//! What Prometheus' operator is told: where the metrics are.

use serde_json::json;

use crate::{Object, catalogue::SERVICE_MONITOR, object::Foreign, operands::Wish, services::metrics_port};

pub fn monitor(wish: &Wish<'_>) -> Option<Object> {
    if !wish.facts.has(&SERVICE_MONITOR) || metrics_port(wish.spec).is_none() {
        return None;
    }
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
            "relabelings": [{"action": "labeldrop", "regex": "pod|container|endpoint"}],
            "metricRelabelings": [{"action": "labeldrop", "regex": "instance|job"}],
        }],
        "namespaceSelector": {"matchNames": [settings.namespace]},
        "selector": {"matchLabels": {"prometheus.nmstate.io": "true", "app": "kubernetes-nmstate"}},
    });
    Some(Foreign::new(&SERVICE_MONITOR, metadata, spec).into())
}
