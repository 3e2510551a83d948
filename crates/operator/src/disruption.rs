//! The PodDisruptionBudget of the controller.

use k8s_openapi::{
    api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec},
    apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString},
};

use crate::{Object, operands::OperandInputs, workloads::controller::replicas};

/// Of two replicas, one stays while nodes are drained. A single replica does not block a drain.
pub(crate) fn disruption(inputs: &OperandInputs<'_>) -> Vec<Object> {
    let settings = inputs.settings;
    let labels = [("name".to_owned(), settings.controller_workload())].into();
    let budget = PodDisruptionBudget {
        metadata: settings.metadata_in(&settings.namespace, "nmstate-webhook"),
        spec: Some(PodDisruptionBudgetSpec {
            min_available: Some(IntOrString::Int(replicas(inputs) - 1)),
            selector: Some(LabelSelector { match_labels: Some(labels), ..LabelSelector::default() }),
            ..PodDisruptionBudgetSpec::default()
        }),
        status: None,
    };
    vec![budget.into()]
}
