//! Rights for others: whoever may read the cluster may read its networks, and Prometheus finds the metrics.

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role, RoleBinding, RoleRef, Subject};

use crate::{
    Object,
    operands::Wish,
    rights::{CORE, NMSTATE, READ, allow},
    services::metrics_port,
};

pub fn readers(wish: &Wish<'_>) -> Vec<Object> {
    let of_cluster = wish.facts.cluster_reader.then(|| cluster_reader(wish));
    let of_metrics = metrics_port(wish.spec).is_some().then(|| prometheus(wish));
    of_cluster.into_iter().chain(of_metrics.into_iter().flatten()).collect()
}

/// Joins the role of that name, which gathers by label.
fn cluster_reader(wish: &Wish<'_>) -> Object {
    let mut metadata = wish.settings.metadata("nmstate-cluster-reader");
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

/// What Prometheus' operator lets it look up, by the account that it usually has.
fn prometheus(wish: &Wish<'_>) -> [Object; 2] {
    let settings = wish.settings;
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
            namespace: Some(wish.config.monitoring_namespace.clone()),
            api_group: None,
        }]),
    };
    [Role { metadata, rules: Some(rules) }.into(), binding.into()]
}
