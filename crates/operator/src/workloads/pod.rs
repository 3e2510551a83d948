//! What the pods of all roles have in common.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{
        Container, EnvVar, EnvVarSource, ObjectFieldSelector, PodSpec, PodTemplateSpec, ResourceRequirements,
        Toleration,
    },
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{LabelSelector, ObjectMeta},
    },
};
use knmstate_api::{names, nmstate::LogLevel};

use crate::operands::OperandInputs;

/// Workload partitioning of OpenShift: these pods may run on the CPUs reserved for management.
const MANAGEMENT: (&str, &str) =
    ("target.workload.openshift.io/management", r#"{"effect": "PreferredDuringScheduling"}"#);

/// The workload of one role, with the names that users of kubernetes-nmstate know.
pub(crate) struct Role<'a> {
    pub inputs: &'a OperandInputs<'a>,
    /// Such as `nmstate-handler`, without the prefix.
    pub name: &'static str,
    pub component: &'static str,
    pub description: &'static str,
}

impl Role<'_> {
    pub(crate) fn metadata(&self) -> ObjectMeta {
        let mut metadata = self.inputs.settings.metadata_in(&self.inputs.settings.namespace, self.name);
        metadata.labels.get_or_insert_default().extend(self.labels());
        metadata
    }

    /// The selector of kubernetes-nmstate. Its workloads can only be taken over with the same one, because selectors are
    /// immutable.
    pub(crate) fn selector(&self) -> LabelSelector {
        let labels = [("name".to_owned(), self.inputs.settings.named(self.name))].into();
        LabelSelector { match_labels: Some(labels), ..LabelSelector::default() }
    }

    fn labels(&self) -> BTreeMap<String, String> {
        [
            (names::APP_LABEL.to_owned(), names::APP.to_owned()),
            (names::COMPONENT_LABEL.to_owned(), self.component.to_owned()),
            ("name".to_owned(), self.inputs.settings.named(self.name)),
        ]
        .into()
    }

    pub(crate) fn template(&self, labels: &[(&str, &str)], spec: PodSpec) -> PodTemplateSpec {
        let mut all = self.labels();
        all.extend(labels.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())));
        let annotations = [("description", self.description), MANAGEMENT];
        let metadata = ObjectMeta {
            labels: Some(all),
            annotations: Some(annotations.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
            ..ObjectMeta::default()
        };
        PodTemplateSpec { metadata: Some(metadata), spec: Some(spec) }
    }

    pub(crate) fn container(&self, role: &str) -> Container {
        let mut args = vec![role.to_owned()];
        if self.inputs.spec.log_level == LogLevel::Debug {
            args.extend(["--v".to_owned(), "debug".to_owned()]);
        }
        Container {
            name: self.inputs.settings.named(self.name),
            image: Some(self.inputs.config.image.clone()),
            image_pull_policy: Some(self.inputs.config.pull_policy.clone()),
            args: Some(args),
            termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
            ..Container::default()
        }
    }
}

pub(crate) fn variable(name: &str, value: &str) -> EnvVar {
    EnvVar { name: name.to_owned(), value: Some(value.to_owned()), value_from: None }
}

/// A variable with a field of the pod, such as `metadata.name`.
pub(crate) fn own(name: &str, field: &str) -> EnvVar {
    let field = ObjectFieldSelector { field_path: field.to_owned(), api_version: None };
    let source = EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() };
    EnvVar { name: name.to_owned(), value: None, value_from: Some(source) }
}

/// Requests for CPU and memory, and a limit for memory. CPU has no limit, because throttling a rollback would lengthen an
/// outage.
pub(crate) fn resources(cpu: &str, memory: &str, most_memory: &str) -> ResourceRequirements {
    let amount = |name: &str, text: &str| (name.to_owned(), Quantity(text.to_owned()));
    ResourceRequirements {
        requests: Some([amount("cpu", cpu), amount("memory", memory)].into()),
        limits: Some([amount("memory", most_memory)].into()),
        ..ResourceRequirements::default()
    }
}

/// The node selector of pods if the NMState has none.
pub(crate) fn default_selector() -> BTreeMap<String, String> {
    [("kubernetes.io/os".to_owned(), "linux".to_owned())].into()
}

/// The taints of control planes, by both names.
pub(crate) fn control_plane_tolerations() -> Vec<Toleration> {
    ["node-role.kubernetes.io/master", "node-role.kubernetes.io/control-plane"]
        .map(|key| Toleration {
            key: Some(key.to_owned()),
            operator: Some("Exists".to_owned()),
            effect: Some("NoSchedule".to_owned()),
            ..Toleration::default()
        })
        .into()
}
