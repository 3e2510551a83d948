//! The handlers: one on every node, with what it takes to change the network of its machine and no more.

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

use super::pod::{Role, own, resources, usual_selector, variable};
use crate::{Object, operands::Wish};

/// Where the handler answers for itself, on the loopback of its machine.
const HEALTH_PORT: i32 = 28088;
/// The same for all handlers of a machine, also for those of kubernetes-nmstate.
const LOCK_FOLDER: &str = "/var/k8s_nmstate";
const BUS_FOLDER: &str = "/run/dbus";
/// Orders, and the way back of a change that is under way.
const STATE_FOLDER: &str = "/var/lib/knmstate";

/// - `NET_ADMIN`: the kernel's own view of devices that NetworkManager does not manage, and its settings;
/// - `NET_RAW`: the probe that pings the default gateway.
///
/// Everything else is done by NetworkManager, which is asked over D-Bus by uid 0.
const CAPABILITIES: [&str; 2] = ["NET_ADMIN", "NET_RAW"];

/// Folders and files of the machine that the handler, or nmstate in it, has to reach; and what they must be.
// The folder of the bus and not its socket: a bus that is started anew makes another one.
const HOST_PATHS: [(&str, &str, &str); 6] = [
    ("dbus", BUS_FOLDER, "Directory"),
    ("lock", LOCK_FOLDER, "DirectoryOrCreate"),
    ("state", STATE_FOLDER, "DirectoryOrCreate"),
    ("openvswitch", "/run/openvswitch", "DirectoryOrCreate"),
    ("link-names", "/etc/systemd/network", "DirectoryOrCreate"),
    ("dispatcher", "/etc/NetworkManager/dispatcher.d", "DirectoryOrCreate"),
];

pub fn handler(wish: &Wish<'_>) -> Vec<Object> {
    let role = Role {
        wish,
        name: "nmstate-handler",
        component: names::HANDLER_COMPONENT,
        description: "Reports the network of its node and carries out its orders.",
    };
    let spec = &wish.spec;
    let everything = Toleration { operator: Some("Exists".to_owned()), ..Toleration::default() };
    let pod = PodSpec {
        service_account_name: Some(wish.settings.handler_account()),
        host_network: Some(true),
        dns_policy: Some("Default".to_owned()),
        priority_class_name: Some("system-node-critical".to_owned()),
        node_selector: Some(spec.node_selector.clone().unwrap_or_else(usual_selector)),
        tolerations: Some(spec.tolerations.clone().unwrap_or_else(|| vec![everything])),
        affinity: spec.affinity.clone(),
        // Long enough to bring a change to an end or to take it back.
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
        env: Some(environment(role.wish)),
        resources: Some(resources("20m", "40Mi", "256Mi")),
        security_context: Some(security(role.wish.facts.openshift)),
        volume_mounts: Some(mounts.map(|(name, path)| mount(name, path)).collect()),
        readiness_probe: Some(Probe { period_seconds: Some(5), ..asking("/readyz") }),
        // A loop that hangs is noticed by the handler itself; starting it anew is the cure for that alone.
        liveness_probe: Some(Probe {
            initial_delay_seconds: Some(30),
            period_seconds: Some(30),
            timeout_seconds: Some(10),
            failure_threshold: Some(5),
            ..asking("/healthz")
        }),
        ..role.container("handler")
    }
}

fn asking(path: &str) -> Probe {
    let get = HTTPGetAction {
        host: Some("127.0.0.1".to_owned()),
        path: Some(path.to_owned()),
        port: IntOrString::Int(HEALTH_PORT),
        ..HTTPGetAction::default()
    };
    Probe { http_get: Some(get), ..Probe::default() }
}

fn environment(wish: &Wish<'_>) -> Vec<EnvVar> {
    let label = |label: &str| format!("metadata.labels['{label}']");
    let mut environment = vec![
        own("NODE_NAME", "spec.nodeName"),
        own("POD_NAME", "metadata.name"),
        own("POD_NAMESPACE", "metadata.namespace"),
        own("COMPONENT", &label(names::relationship::COMPONENT)),
        own("PART_OF", &label(names::relationship::PART_OF)),
        own("VERSION", &label(names::relationship::VERSION)),
        own("MANAGED_BY", &label(names::relationship::MANAGED_BY)),
        // The image has no /var/run, where the bus is looked for otherwise.
        variable("DBUS_SYSTEM_BUS_ADDRESS", &format!("unix:path={BUS_FOLDER}/system_bus_socket")),
        variable("NMSTATE_INSTANCE_NODE_LOCK_FILE", &format!("{LOCK_FOLDER}/handler_lock")),
        variable("PROBE_DNS_HOST", &wish.spec.probe_configuration.dns.host),
        variable("NMSTATE_PERSISTENCE", wish.spec.persistence.as_str()),
    ];
    environment.extend(wish.config.handler_environment.iter().map(|(name, value)| variable(name, value)));
    environment
}

/// Not privileged: what is needed is named. The profiles that would confine it know nothing of D-Bus.
fn security(openshift: bool) -> SecurityContext {
    let unconfined = AppArmorProfile { type_: "Unconfined".to_owned(), localhost_profile: None };
    let default = SeccompProfile { type_: "RuntimeDefault".to_owned(), localhost_profile: None };
    // What a confined container may not do on SELinux is to speak on the machine's bus.
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
