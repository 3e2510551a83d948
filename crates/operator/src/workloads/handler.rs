//! The DaemonSet of the handlers, with only the privileges that a change of the node's network needs.

use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, DaemonSetSpec, DaemonSetUpdateStrategy, RollingUpdateDaemonSet},
        core::v1::{
            AppArmorProfile, Capabilities, Container, EmptyDirVolumeSource, EnvVar, HTTPGetAction,
            HostPathVolumeSource, PodSpec, Probe, SELinuxOptions, SeccompProfile, SecurityContext,
            Toleration, Volume, VolumeMount,
        },
    },
    apimachinery::pkg::util::intstr::IntOrString,
};
use knmstate_api::names;

use super::pod::{Role, default_selector, own, resources, variable};
use crate::{Object, operands::OperandInputs};

/// The port of the handler's health checks, on the loopback of its node.
const HEALTH_PORT: i32 = 28088;
/// Shared by all handlers on a node, including those of kubernetes-nmstate.
const LOCK_DIRECTORY: &str = "/var/k8s_nmstate";
const BUS_DIRECTORY: &str = "/run/dbus";
/// The ledger of orders and the journal of an open change.
const STATE_DIRECTORY: &str = "/var/lib/knmstate";

/// - `NET_ADMIN`: to read and set what NetworkManager does not manage, through the kernel;
/// - `NET_RAW`: the probe that pings the default gateway.
///
/// Everything else is done by NetworkManager, which the handler calls over D-Bus as uid 0.
const CAPABILITIES: [&str; 2] = ["NET_ADMIN", "NET_RAW"];

/// Directories of the node that the handler, or nmstate in it, needs, and their types.
// The directory of the bus and not its socket, which a restarted bus creates again.
const HOST_PATHS: [(&str, &str, &str); 6] = [
    ("dbus", BUS_DIRECTORY, "Directory"),
    ("lock", LOCK_DIRECTORY, "DirectoryOrCreate"),
    ("state", STATE_DIRECTORY, "DirectoryOrCreate"),
    ("openvswitch", "/run/openvswitch", "DirectoryOrCreate"),
    ("link-names", "/etc/systemd/network", "DirectoryOrCreate"),
    ("dispatcher", "/etc/NetworkManager/dispatcher.d", "DirectoryOrCreate"),
];

pub(crate) fn handler(inputs: &OperandInputs<'_>) -> Vec<Object> {
    let role = Role {
        inputs,
        name: "nmstate-handler",
        component: names::HANDLER_COMPONENT,
        description: "Reports the network of its node and applies its orders.",
    };
    let spec = &inputs.spec;
    let everything = Toleration { operator: Some("Exists".to_owned()), ..Toleration::default() };
    let pod = PodSpec {
        service_account_name: Some(inputs.settings.handler_account()),
        host_network: Some(true),
        dns_policy: Some("Default".to_owned()),
        priority_class_name: Some("system-node-critical".to_owned()),
        node_selector: Some(spec.node_selector.clone().unwrap_or_else(default_selector)),
        tolerations: Some(spec.tolerations.clone().unwrap_or_else(|| vec![everything])),
        affinity: spec.affinity.clone(),
        // Long enough to finish a change or to roll it back.
        termination_grace_period_seconds: Some(30),
        containers: vec![container(&role)],
        volumes: Some(volumes()),
        ..PodSpec::default()
    };
    let rolling = RollingUpdateDaemonSet {
        max_unavailable: Some(IntOrString::String("10%".to_owned())),
        ..RollingUpdateDaemonSet::default()
    };
    let set = DaemonSet {
        metadata: role.metadata(),
        spec: Some(DaemonSetSpec {
            selector: role.selector(),
            template: role.template(&[], pod),
            update_strategy: Some(DaemonSetUpdateStrategy {
                type_: Some("RollingUpdate".to_owned()),
                rolling_update: Some(rolling),
            }),
            ..DaemonSetSpec::default()
        }),
        status: None,
    };
    vec![set.into()]
}

fn container(role: &Role<'_>) -> Container {
    let mounts = HOST_PATHS.map(|(name, path, _)| (name, path)).into_iter().chain([("tmp", "/tmp")]);
    Container {
        env: Some(environment(role.inputs)),
        resources: Some(resources("20m", "40Mi", "256Mi")),
        security_context: Some(security(role.inputs.cluster.openshift)),
        volume_mounts: Some(mounts.map(|(name, path)| mount(name, path)).collect()),
        readiness_probe: Some(Probe { period_seconds: Some(5), ..health_check("/readyz") }),
        // Fails only when the handler's own loop hangs, which a restart cures.
        liveness_probe: Some(Probe {
            initial_delay_seconds: Some(30),
            period_seconds: Some(30),
            timeout_seconds: Some(10),
            failure_threshold: Some(5),
            ..health_check("/healthz")
        }),
        ..role.container("handler")
    }
}

fn health_check(path: &str) -> Probe {
    let get = HTTPGetAction {
        host: Some("127.0.0.1".to_owned()),
        path: Some(path.to_owned()),
        port: IntOrString::Int(HEALTH_PORT),
        ..HTTPGetAction::default()
    };
    Probe { http_get: Some(get), ..Probe::default() }
}

fn environment(inputs: &OperandInputs<'_>) -> Vec<EnvVar> {
    let label = |label: &str| format!("metadata.labels['{label}']");
    let mut environment = vec![
        own("NODE_NAME", "spec.nodeName"),
        own("POD_NAME", "metadata.name"),
        own("POD_NAMESPACE", "metadata.namespace"),
        own("COMPONENT", &label(names::relationship::COMPONENT)),
        own("PART_OF", &label(names::relationship::PART_OF)),
        own("VERSION", &label(names::relationship::VERSION)),
        own("MANAGED_BY", &label(names::relationship::MANAGED_BY)),
        // The image has no /var/run, which is where clients look for the bus by default.
        variable("DBUS_SYSTEM_BUS_ADDRESS", &format!("unix:path={BUS_DIRECTORY}/system_bus_socket")),
        variable("NMSTATE_INSTANCE_NODE_LOCK_FILE", &format!("{LOCK_DIRECTORY}/handler_lock")),
        variable("PROBE_DNS_HOST", &inputs.spec.probe_configuration.dns.host),
        variable("NMSTATE_PERSISTENCE", inputs.spec.persistence.as_str()),
    ];
    if inputs.spec.allow_dispatch_scripts {
        environment.push(variable("NMSTATE_ALLOW_DISPATCH_SCRIPTS", "true"));
    }
    environment.extend(inputs.config.handler_environment.iter().map(|(name, value)| variable(name, value)));
    environment
}

/// Unprivileged, with named capabilities. The default AppArmor and SELinux profiles do not allow D-Bus of the host.
fn security(openshift: bool) -> SecurityContext {
    let unconfined = AppArmorProfile { type_: "Unconfined".to_owned(), localhost_profile: None };
    let default = SeccompProfile { type_: "RuntimeDefault".to_owned(), localhost_profile: None };
    // SELinux does not allow confined containers to use the D-Bus of the host.
    let free = SELinuxOptions { type_: Some("spc_t".to_owned()), ..SELinuxOptions::default() };
    SecurityContext {
        run_as_user: Some(0),
        privileged: Some(false),
        allow_privilege_escalation: Some(false),
        read_only_root_filesystem: Some(true),
        capabilities: Some(Capabilities {
            add: Some(CAPABILITIES.map(str::to_owned).into()),
            drop: Some(vec!["ALL".to_owned()]),
        }),
        app_armor_profile: Some(unconfined),
        seccomp_profile: Some(default),
        se_linux_options: openshift.then_some(free),
        ..SecurityContext::default()
    }
}

fn volumes() -> Vec<Volume> {
    let of_host = HOST_PATHS.map(|(name, path, type_)| Volume {
        name: name.to_owned(),
        host_path: Some(HostPathVolumeSource { path: path.to_owned(), type_: Some(type_.to_owned()) }),
        ..Volume::default()
    });
    let own = Volume {
        name: "tmp".to_owned(),
        empty_dir: Some(EmptyDirVolumeSource::default()),
        ..Volume::default()
    };
    of_host.into_iter().chain([own]).collect()
}

fn mount(name: &str, path: &str) -> VolumeMount {
    VolumeMount { name: name.to_owned(), mount_path: path.to_owned(), ..VolumeMount::default() }
}
