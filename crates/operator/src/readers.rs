//! Rights for others: cluster readers may read our kinds, and Prometheus may find the metrics.

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role, RoleBinding, RoleRef, Subject};

use crate::{
    Object,
    operands::OperandInputs,
    rights::{CORE, NMSTATE, READ, allow},
    services::metrics_port,
};

pub(crate) fn readers(inputs: &OperandInputs<'_>) -> Vec<Object> {
    let of_cluster = inputs.cluster.cluster_reader.then(|| cluster_reader(inputs));
    let of_metrics = metrics_port(inputs.spec).is_some().then(|| prometheus(inputs));
    of_cluster.into_iter().chain(of_metrics.into_iter().flatten()).collect()
}

/// Aggregated by its label into the ClusterRole `cluster-reader`.
fn cluster_reader(inputs: &OperandInputs<'_>) -> Object {
    let mut metadata = inputs.settings.metadata("nmstate-cluster-reader");
    metadata
        .labels
        .get_or_insert_default()
        .insert("rbac.authorization.k8s.io/aggregate-to-cluster-reader".to_owned(), "true".to_owned());
    let metrics = PolicyRule {
        non_resource_urls: Some(vec!["/metrics".to_owned()]),
        verbs: vec!["get".to_owned()],
        ..PolicyRule::default()
    };
    let ours = [
        "nodenetworkstates",
        "nodenetworkconfigurationpolicies",
        "nodenetworkconfigurationenactments",
        "nmstates",
    ];
    let rules = vec![metrics, allow(NMSTATE, &ours, &READ)];
    ClusterRole { metadata, rules: Some(rules), ..ClusterRole::default() }.into()
}

/// The rights that Prometheus needs for service discovery, for its usual account.
fn prometheus(inputs: &OperandInputs<'_>) -> [Object; 2] {
    let settings = inputs.settings;
    let metadata = settings.metadata_in(&settings.namespace, "prometheus-k8s");
    let rules = vec![
        allow(CORE, &["services", "endpoints", "pods"], &READ),
        allow("discovery.k8s.io", &["endpointslices"], &READ),
    ];
    let binding = RoleBinding {
        metadata: metadata.clone(),
        role_ref: RoleRef {
            api_group: "rbac.authorization.k8s.io".to_owned(),
            kind: "Role".to_owned(),
            name: settings.named("prometheus-k8s"),
        },
        subjects: Some(vec![Subject {
            kind: "ServiceAccount".to_owned(),
            name: "prometheus-k8s".to_owned(),
            namespace: Some(inputs.config.monitoring_namespace.clone()),
            api_group: None,
        }]),
    };
    [Role { metadata, rules: Some(rules) }.into(), binding.into()]
}
