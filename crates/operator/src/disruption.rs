//! What a drain has to leave alone.

use k8s_openapi::{
    api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec},
    apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString},
};

use crate::{Object, operands::Wish, workloads::controller::replicas};

/// One controller stays while nodes are drained, where there are two. Where there is one, drains go first.
pub fn disruption(wish: &Wish<'_>) -> Vec<Object> {
    let settings = wish.settings;
    let labels = [("name".to_owned(), settings.controller_workload())].into();
    let budget = PodDisruptionBudget {
        metadata: settings.metadata_in(&settings.namespace, "nmstate-webhook"),
        spec: Some(PodDisruptionBudgetSpec {
            min_available: Some(IntOrString::Int(replicas(wish) - 1)),
            selector: Some(LabelSelector { match_labels: Some(labels), ..LabelSelector::default() }),
            ..PodDisruptionBudgetSpec::default()
        }),
        status: None,
    };
    vec![budget.into()]
}
