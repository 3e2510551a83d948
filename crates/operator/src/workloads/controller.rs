//! The Deployment of the controller, which also serves the webhooks and the metrics.

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment},
        core::v1::{
            Affinity, Capabilities, ConfigMap, ConfigMapVolumeSource, Container, ContainerPort, EnvVar,
            HTTPGetAction, NodeAffinity, NodeSelectorRequirement, NodeSelectorTerm, PodSpec,
            PreferredSchedulingTerm, Probe, SeccompProfile, SecretVolumeSource, SecurityContext,
            TopologySpreadConstraint, Volume, VolumeMount,
        },
    },
    apimachinery::pkg::util::intstr::IntOrString,
};

use super::pod::{Role, control_plane_tolerations, default_selector, own, resources, variable};
use crate::{Object, operands::OperandInputs, services};

/// The port of the webhooks.
pub(crate) const WEBHOOK_PORT: i32 = 9443;
/// The port of the health checks, and another one if the metrics have that. Kubelet checks from the node, which
/// NetworkPolicies always allow.
const HEALTH_PORTS: [i32; 2] = [8081, 8082];
/// Any user but root.
const USER: i64 = 1000;
const TLS_DIRECTORY: &str = "/etc/nmstate/tls";
const TLS_FILE: &str = "profile.json";
const CERTIFICATE_DIRECTORY: &str = "/etc/nmstate/certificate";

pub(crate) fn controller(inputs: &OperandInputs<'_>) -> Vec<Object> {
    let role = Role {
        inputs,
        name: "nmstate-webhook",
        component: "kubernetes-nmstate-webhook",
        description: "Decides which node applies which policy and when, and validates policies.",
    };
    let deployment = Deployment {
        metadata: role.metadata(),
        spec: Some(DeploymentSpec {
            replicas: Some(replicas(inputs)),
            selector: role.selector(),
            strategy: Some(DeploymentStrategy {
                type_: Some("RollingUpdate".to_owned()),
                // One after the other, because there may be no third node for a surplus pod.
                rolling_update: Some(RollingUpdateDeployment {
                    max_surge: Some(IntOrString::Int(0)),
                    max_unavailable: Some(IntOrString::Int(1)),
                }),
            }),
            template: role.template(&[("prometheus.nmstate.io", "true")], pod(&role)),
            ..DeploymentSpec::default()
        }),
        status: None,
    };
    profile(inputs).into_iter().chain([deployment.into()]).collect()
}

/// Two if there are two nodes that can run one each, so that one can take over at once.
pub(crate) fn replicas(inputs: &OperandInputs<'_>) -> i32 {
    let spec = inputs.spec;
    let selector = spec.infra_node_selector.clone().unwrap_or_else(default_selector);
    let tolerations = spec.infra_tolerations.clone().unwrap_or_else(control_plane_tolerations);
    if inputs.cluster.room_for(&selector, &tolerations) > 1 { 2 } else { 1 }
}

fn pod(role: &Role<'_>) -> PodSpec {
    let inputs = role.inputs;
    let spec = inputs.spec;
    let spread = TopologySpreadConstraint {
        label_selector: Some(role.selector()),
        max_skew: 1,
        topology_key: "kubernetes.io/hostname".to_owned(),
        when_unsatisfiable: "DoNotSchedule".to_owned(),
        ..TopologySpreadConstraint::default()
    };
    PodSpec {
        service_account_name: Some(inputs.settings.controller_account()),
        priority_class_name: Some("system-cluster-critical".to_owned()),
        node_selector: Some(spec.infra_node_selector.clone().unwrap_or_else(default_selector)),
        tolerations: Some(spec.infra_tolerations.clone().unwrap_or_else(control_plane_tolerations)),
        affinity: Some(spec.infra_affinity.clone().unwrap_or_else(near_the_control_plane)),
        topology_spread_constraints: (replicas(inputs) > 1).then(|| vec![spread]),
        containers: vec![container(role)],
        volumes: Some(files(inputs).into_iter().map(|file| file.volume).collect()),
        ..PodSpec::default()
    }
}

fn container(role: &Role<'_>) -> Container {
    let inputs = role.inputs;
    let port = |name: &str, port| ContainerPort {
        name: Some(name.to_owned()),
        container_port: port,
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    };
    let metrics_port = services::metrics_port(inputs.spec);
    let health_port = health_port(metrics_port);
    let mut ports = vec![port("webhook-server", WEBHOOK_PORT), port("healthprobe", health_port)];
    ports.extend(metrics_port.map(|number| port("metrics", number)));
    let plain = role.container("controller");
    let files = files(inputs);
    let health = format!("--health-address=:{health_port}");
    let own_args = [health].into_iter().chain(files.iter().map(|file| file.argument.clone()));
    let args = plain.args.iter().flatten().cloned().chain(own_args).collect();
    Container {
        args: Some(args),
        env: Some(environment(inputs)),
        ports: Some(ports),
        resources: Some(resources("30m", "40Mi", "512Mi")),
        security_context: Some(security(inputs.cluster.openshift)),
        readiness_probe: Some(health_check(health_port, "/readyz", 5)),
        // Fails only when a loop hangs, which a restart cures.
        liveness_probe: Some(Probe {
            initial_delay_seconds: Some(10),
            failure_threshold: Some(6),
            ..health_check(health_port, "/healthz", 10)
        }),
        volume_mounts: Some(
            files
                .iter()
                .map(|file| VolumeMount {
                    name: file.volume.name.clone(),
                    mount_path: file.directory.to_owned(),
                    read_only: Some(true),
                    ..VolumeMount::default()
                })
                .collect(),
        ),
        ..plain
    }
}

fn environment(inputs: &OperandInputs<'_>) -> Vec<EnvVar> {
    let mut environment = vec![
        own("POD_NAME", "metadata.name"),
        own("POD_NAMESPACE", "metadata.namespace"),
        variable("METRICS_BIND_ADDRESS", &inputs.spec.metrics_configuration.bind_address),
    ];
    environment.extend(inputs.config.prefix.as_deref().map(|prefix| variable("HANDLER_PREFIX", prefix)));
    environment
}

fn health_port(metrics_port: Option<i32>) -> i32 {
    let [port, other] = HEALTH_PORTS;
    if metrics_port == Some(port) { other } else { port }
}

/// Asks on a port of its own, because any client can occupy that of the webhook.
fn health_check(port: i32, path: &str, period: i32) -> Probe {
    let get = HTTPGetAction {
        path: Some(path.to_owned()),
        port: IntOrString::Int(port),
        ..HTTPGetAction::default()
    };
    Probe { http_get: Some(get), period_seconds: Some(period), timeout_seconds: Some(5), ..Probe::default() }
}

fn security(openshift: bool) -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), add: None }),
        read_only_root_filesystem: Some(true),
        run_as_non_root: Some(true),
        // OpenShift assigns each namespace its own range of users.
        run_as_user: (!openshift).then_some(USER),
        seccomp_profile: Some(SeccompProfile { type_: "RuntimeDefault".to_owned(), localhost_profile: None }),
        ..SecurityContext::default()
    }
}

/// A mounted file, and the argument with its path.
struct File {
    volume: Volume,
    directory: &'static str,
    argument: String,
}

fn files(inputs: &OperandInputs<'_>) -> Vec<File> {
    let mut files = Vec::new();
    if inputs.cluster.openshift {
        let secret = SecretVolumeSource {
            secret_name: Some(services::certificate_of_openshift(inputs.settings)),
            ..SecretVolumeSource::default()
        };
        files.push(File {
            volume: Volume { name: "tls-key-pair".to_owned(), secret: Some(secret), ..Volume::default() },
            directory: CERTIFICATE_DIRECTORY,
            argument: format!("--certificate-dir={CERTIFICATE_DIRECTORY}"),
        });
    }
    if inputs.cluster.tls_profile.is_some() {
        let map = ConfigMapVolumeSource { name: tls_config(inputs), ..ConfigMapVolumeSource::default() };
        files.push(File {
            volume: Volume { name: "tls-config".to_owned(), config_map: Some(map), ..Volume::default() },
            directory: TLS_DIRECTORY,
            argument: format!("--tls-profile={TLS_DIRECTORY}/{TLS_FILE}"),
        });
    }
    files
}

fn tls_config(inputs: &OperandInputs<'_>) -> String {
    inputs.settings.named("nmstate-tls-config")
}

/// The ConfigMap with the TLS profile. The controller reads it again when it changes, without a restart.
fn profile(inputs: &OperandInputs<'_>) -> Option<Object> {
    let profile = inputs.cluster.tls_profile.clone()?;
    let map = ConfigMap {
        metadata: inputs.settings.metadata_in(&inputs.settings.namespace, "nmstate-tls-config"),
        data: Some([(TLS_FILE.to_owned(), profile)].into()),
        ..ConfigMap::default()
    };
    Some(map.into())
}

fn near_the_control_plane() -> Affinity {
    let preferred = [(10, "node-role.kubernetes.io/control-plane"), (1, "node-role.kubernetes.io/master")]
        .map(|(weight, key)| PreferredSchedulingTerm {
            weight,
            preference: NodeSelectorTerm {
                match_expressions: Some(vec![NodeSelectorRequirement {
                    key: key.to_owned(),
                    operator: "Exists".to_owned(),
                    values: None,
                }]),
                match_fields: None,
            },
        });
    let nodes = NodeAffinity {
        preferred_during_scheduling_ignored_during_execution: Some(preferred.into()),
        ..NodeAffinity::default()
    };
    Affinity { node_affinity: Some(nodes), ..Affinity::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_has_a_port_of_its_own() {
        for (metrics, expected) in [(None, 8081), (Some(8089), 8081), (Some(8081), 8082)] {
            assert_eq!(health_port(metrics), expected, "{metrics:?}");
        }
    }
}
