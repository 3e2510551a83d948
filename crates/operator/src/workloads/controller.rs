//! The controller, which also answers the API server and Prometheus.

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

use super::pod::{Role, control_plane_tolerations, own, resources, usual_selector, variable};
use crate::{Object, operands::Wish, services};

/// The port that the API server asks at.
pub const WEBHOOK_PORT: i32 = 9443;
/// Any that is not root's.
const USER: i64 = 1000;
const TLS_FOLDER: &str = "/etc/nmstate/tls";
const TLS_FILE: &str = "profile.json";
const CERTIFICATE_FOLDER: &str = "/etc/nmstate/certificate";

pub fn controller(wish: &Wish<'_>) -> Vec<Object> {
    let role = Role {
        wish,
        name: "nmstate-webhook",
        component: "kubernetes-nmstate-webhook",
        description: "Decides which node carries out which policy and when, and checks policies.",
    };
    let deployment = Deployment {
        metadata: role.metadata(),
        spec: Some(DeploymentSpec {
            replicas: Some(replicas(wish)),
            selector: role.selector(),
            strategy: Some(DeploymentStrategy {
                type_: Some("RollingUpdate".to_owned()),
                // One after the other: there may be no third node to put another one on.
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
    profile(wish).into_iter().chain([deployment.into()]).collect()
}

/// Two where two nodes can take one each: the second one answers at once when the first one is gone.
pub fn replicas(wish: &Wish<'_>) -> i32 {
    let spec = wish.spec;
    let selector = spec.infra_node_selector.clone().unwrap_or_else(usual_selector);
    let tolerations = spec.infra_tolerations.clone().unwrap_or_else(control_plane_tolerations);
    if wish.facts.room_for(&selector, &tolerations) > 1 { 2 } else { 1 }
}

fn pod(role: &Role<'_>) -> PodSpec {
    let wish = role.wish;
    let spec = wish.spec;
    let spread = TopologySpreadConstraint {
        label_selector: Some(role.selector()),
        max_skew: 1,
        topology_key: "kubernetes.io/hostname".to_owned(),
        when_unsatisfiable: "DoNotSchedule".to_owned(),
        ..TopologySpreadConstraint::default()
    };
    PodSpec {
        service_account_name: Some(wish.settings.controller_account()),
        priority_class_name: Some("system-cluster-critical".to_owned()),
        node_selector: Some(spec.infra_node_selector.clone().unwrap_or_else(usual_selector)),
        tolerations: Some(spec.infra_tolerations.clone().unwrap_or_else(control_plane_tolerations)),
        affinity: Some(spec.infra_affinity.clone().unwrap_or_else(near_the_control_plane)),
        topology_spread_constraints: (replicas(wish) > 1).then(|| vec![spread]),
        containers: vec![container(role)],
        volumes: Some(files(wish).into_iter().map(|file| file.volume).collect()),
        ..PodSpec::default()
    }
}

fn container(role: &Role<'_>) -> Container {
    let wish = role.wish;
    let port = |name: &str, port| ContainerPort {
        name: Some(name.to_owned()),
        container_port: port,
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    };
    let mut ports = vec![port("webhook-server", WEBHOOK_PORT)];
    ports.extend(services::metrics_port(wish.spec).map(|number| port("metrics", number)));
    let plain = role.container("controller");
    let files = files(wish);
    let args =
        plain.args.iter().flatten().cloned().chain(files.iter().map(|file| file.argument.clone())).collect();
    Container {
        args: Some(args),
        env: Some(environment(wish)),
        ports: Some(ports),
        resources: Some(resources("30m", "40Mi", "512Mi")),
        security_context: Some(security(wish.facts.openshift)),
        readiness_probe: Some(asking(5)),
        liveness_probe: Some(Probe {
            initial_delay_seconds: Some(10),
            failure_threshold: Some(6),
            ..asking(10)
        }),
        volume_mounts: Some(
            files
                .iter()
                .map(|file| VolumeMount {
                    name: file.volume.name.clone(),
                    mount_path: file.folder.to_owned(),
                    read_only: Some(true),
                    ..VolumeMount::default()
                })
                .collect(),
        ),
        ..plain
    }
}

fn environment(wish: &Wish<'_>) -> Vec<EnvVar> {
    let mut environment = vec![
        own("POD_NAME", "metadata.name"),
        own("POD_NAMESPACE", "metadata.namespace"),
        variable("METRICS_BIND_ADDRESS", &wish.spec.metrics_configuration.bind_address),
    ];
    environment.extend(wish.config.prefix.as_deref().map(|prefix| variable("HANDLER_PREFIX", prefix)));
    environment
}

/// The door that stands open as soon as there is a certificate for it.
fn asking(period: i32) -> Probe {
    let get = HTTPGetAction {
        path: Some("/readyz".to_owned()),
        port: IntOrString::Int(WEBHOOK_PORT),
        scheme: Some("HTTPS".to_owned()),
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
        // OpenShift gives every namespace users of its own.
        run_as_user: (!openshift).then_some(USER),
        seccomp_profile: Some(SeccompProfile { type_: "RuntimeDefault".to_owned(), localhost_profile: None }),
        ..SecurityContext::default()
    }
}

/// Something to read, and the argument that says where it lies.
struct File {
    volume: Volume,
    folder: &'static str,
    argument: String,
}

fn files(wish: &Wish<'_>) -> Vec<File> {
    let mut files = Vec::new();
    if wish.facts.openshift {
        let secret = SecretVolumeSource {
            secret_name: Some(services::certificate_of_openshift(wish.settings)),
            ..SecretVolumeSource::default()
        };
        files.push(File {
            volume: Volume { name: "tls-key-pair".to_owned(), secret: Some(secret), ..Volume::default() },
            folder: CERTIFICATE_FOLDER,
            argument: format!("--certificate-dir={CERTIFICATE_FOLDER}"),
        });
    }
    if wish.facts.tls_profile.is_some() {
        let map = ConfigMapVolumeSource { name: tls_config(wish), ..ConfigMapVolumeSource::default() };
        files.push(File {
            volume: Volume { name: "tls-config".to_owned(), config_map: Some(map), ..Volume::default() },
            folder: TLS_FOLDER,
            argument: format!("--tls-profile={TLS_FOLDER}/{TLS_FILE}"),
        });
    }
    files
}

fn tls_config(wish: &Wish<'_>) -> String {
    wish.settings.named("nmstate-tls-config")
}

/// The profile, where the controller looks for it. It takes a change up by itself, so no pod is replaced for one.
fn profile(wish: &Wish<'_>) -> Option<Object> {
    let profile = wish.facts.tls_profile.clone()?;
    let map = ConfigMap {
        metadata: wish.settings.metadata_in(&wish.settings.namespace, "nmstate-tls-config"),
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
