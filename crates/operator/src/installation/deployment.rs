//! The Deployment of the operator.

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy},
        core::v1::{
            Affinity, Capabilities, Container, ContainerPort, EnvVar, EnvVarSource, HTTPGetAction,
            NodeAffinity, NodeSelectorRequirement, NodeSelectorTerm, ObjectFieldSelector, PodSecurityContext,
            PodSpec, PodTemplateSpec, PreferredSchedulingTerm, Probe, ResourceRequirements, SeccompProfile,
            SecurityContext, Toleration,
        },
    },
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{LabelSelector, ObjectMeta},
        util::intstr::IntOrString,
    },
};
use knmstate_api::names;

use super::{NAME, label, metadata, settings};
use crate::{Config, auto_create::AutoCreateMode};

const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";
const HEALTH_PORT: i32 = 8081;
/// Any user but root; the image defines none.
const USER: i64 = 1000;
/// Measured idle with a few nodes, and rounded up.
const REQUESTS: [(&str, &str); 2] = [("cpu", "10m"), ("memory", "24Mi")];

/// The operator, with one pod at a time.
pub fn deployment(config: &Config) -> Deployment {
    let mut metadata = metadata(config, Some(&config.operator_namespace), NAME);
    metadata.labels.get_or_insert_default().append(&mut label(config, "name"));
    let mut labels = label(config, names::APP_LABEL);
    let selector = LabelSelector { match_labels: Some(labels.clone()), ..LabelSelector::default() };
    labels.append(&mut label(config, "name"));
    let annotations = [
        ("description", "Installs and maintains node networking as an NMState configures it."),
        // Workload partitioning of OpenShift: this pod may run on the CPUs reserved for management.
        ("target.workload.openshift.io/management", r#"{"effect": "PreferredDuringScheduling"}"#),
    ];
    let annotations = annotations.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let template = PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(labels),
            annotations: Some(annotations.into()),
            ..ObjectMeta::default()
        }),
        spec: Some(PodSpec {
            affinity: Some(near_the_control_plane()),
            priority_class_name: Some("system-cluster-critical".to_owned()),
            ..pod_spec(config, NAME, container(config))
        }),
    };
    let spec = DeploymentSpec {
        replicas: Some(1),
        selector,
        strategy: Some(DeploymentStrategy { type_: Some("Recreate".to_owned()), rolling_update: None }),
        template,
        ..DeploymentSpec::default()
    };
    Deployment { metadata, spec: Some(spec), status: None }
}

/// The pod of an unprivileged process of ours, with one of the accounts of the installation.
pub fn pod_spec(config: &Config, account: &str, container: Container) -> PodSpec {
    PodSpec {
        service_account_name: Some(settings(config).named(account)),
        node_selector: Some([("kubernetes.io/os".to_owned(), "linux".to_owned())].into()),
        tolerations: Some([CONTROL_PLANE, "node-role.kubernetes.io/master"].map(tolerate).into()),
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(USER),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".to_owned(),
                ..SeccompProfile::default()
            }),
            ..PodSecurityContext::default()
        }),
        containers: vec![Container {
            image: Some(config.image.clone()),
            image_pull_policy: Some(config.pull_policy.clone()),
            termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
            security_context: Some(SecurityContext {
                allow_privilege_escalation: Some(false),
                read_only_root_filesystem: Some(true),
                capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), add: None }),
                ..SecurityContext::default()
            }),
            ..container
        }],
        ..PodSpec::default()
    }
}

fn container(config: &Config) -> Container {
    Container {
        name: NAME.to_owned(),
        args: Some(vec!["operator".to_owned()]),
        env: Some(environment(config)),
        ports: Some(vec![ContainerPort {
            container_port: HEALTH_PORT,
            name: Some("healthprobe".to_owned()),
            protocol: Some("TCP".to_owned()),
            ..ContainerPort::default()
        }]),
        readiness_probe: Some(probe("/readyz")),
        liveness_probe: Some(probe("/healthz")),
        resources: Some(ResourceRequirements {
            requests: Some(
                REQUESTS.map(|(name, amount)| (name.to_owned(), Quantity(amount.to_owned()))).into(),
            ),
            ..ResourceRequirements::default()
        }),
        ..Container::default()
    }
}

/// The whole configuration of the operator, so that it can be read and changed in one place.
fn environment(config: &Config) -> Vec<EnvVar> {
    let mode = match config.auto_create.mode {
        AutoCreateMode::Auto => "auto",
        AutoCreateMode::Always => "always",
        AutoCreateMode::Never => "never",
    };
    let platforms = config.auto_create.platforms.iter().map(String::as_str).collect::<Vec<_>>().join(",");
    let mut variables = vec![
        own("POD_NAME", "metadata.name"),
        own("OPERATOR_NAMESPACE", "metadata.namespace"),
        variable("HANDLER_NAMESPACE", &config.namespace),
        variable("RELATED_IMAGE_HANDLER_IMAGE", &config.image),
        variable("HANDLER_IMAGE_PULL_POLICY", &config.pull_policy),
        variable("MONITORING_NAMESPACE", &config.monitoring_namespace),
        variable("AUTO_CREATE", mode),
        variable("AUTO_CREATE_PLATFORMS", &platforms),
    ];
    // The API server drops empty values, so a client that applies this again would see a difference.
    variables.extend(config.prefix.as_deref().map(|prefix| variable("HANDLER_PREFIX", prefix)));
    variables.extend(config.handler_environment.iter().map(|(name, value)| variable(name, value)));
    variables
}

fn variable(name: &str, value: &str) -> EnvVar {
    EnvVar { name: name.to_owned(), value: Some(value.to_owned()), value_from: None }
}

/// A variable with a field of the pod.
fn own(name: &str, field: &str) -> EnvVar {
    let field = ObjectFieldSelector { field_path: field.to_owned(), api_version: None };
    let source = EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() };
    EnvVar { name: name.to_owned(), value: None, value_from: Some(source) }
}

fn probe(path: &str) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.to_owned()),
            port: IntOrString::String("healthprobe".to_owned()),
            ..HTTPGetAction::default()
        }),
        initial_delay_seconds: Some(10),
        period_seconds: Some(10),
        timeout_seconds: Some(1),
        failure_threshold: Some(3),
        ..Probe::default()
    }
}

fn tolerate(taint: &str) -> Toleration {
    Toleration {
        key: Some(taint.to_owned()),
        operator: Some("Exists".to_owned()),
        effect: Some("NoSchedule".to_owned()),
        ..Toleration::default()
    }
}

fn near_the_control_plane() -> Affinity {
    let control_plane = NodeSelectorRequirement {
        key: CONTROL_PLANE.to_owned(),
        operator: "Exists".to_owned(),
        values: None,
    };
    let preferred = PreferredSchedulingTerm {
        weight: 10,
        preference: NodeSelectorTerm {
            match_expressions: Some(vec![control_plane]),
            ..NodeSelectorTerm::default()
        },
    };
    let nodes = NodeAffinity {
        preferred_during_scheduling_ignored_during_execution: Some(vec![preferred]),
        ..NodeAffinity::default()
    };
    Affinity { node_affinity: Some(nodes), ..Affinity::default() }
}
