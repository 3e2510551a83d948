//! The installation: where the components of knmstate run, and their settings.

#![expect(clippy::struct_field_names, reason = "the names of the intervals are those of the API")]

use std::{collections::BTreeMap, str::FromStr};

use k8s_openapi::api::core::v1::{Affinity, Toleration};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    ConditionList,
    kind::{is_default, kind},
    rules, schema,
};

kind! {
    /// An NMState installs the network configuration of nodes in a cluster: the handler on each node, and the controller
    /// and webhook for the cluster. There is one per cluster.
    NMState, nmstates, version "v1", short names &[];

    /// Where the components run, and their settings.
    #[schemars(extend("default" = {}))]
    spec: NMStateSpec,

    /// Whether the components run.
    status: NMStateStatus,
}

/// Where the components run, and their settings. Everything is optional.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct NMStateSpec {
    /// Affinity of the handler, which runs on every node that it configures. As in a pod; see kubectl explain
    /// pod.spec.affinity.
    #[schemars(schema_with = "schema::without_descriptions::<Option<Affinity>>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,

    /// Affinity of the controller and webhook. As in a pod; see kubectl explain pod.spec.affinity.
    #[schemars(schema_with = "schema::without_descriptions::<Option<Affinity>>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infra_affinity: Option<Affinity>,

    /// Labels of the nodes that run a handler. When absent, kubernetes.io/os: linux.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<BTreeMap<String, String>>,

    /// Taints that the handler tolerates, as in a pod; see kubectl explain pod.spec.tolerations. When absent, all of
    /// them.
    #[schemars(schema_with = "schema::without_descriptions::<Option<Vec<Toleration>>>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerations: Option<Vec<Toleration>>,

    /// Labels of the nodes that may run the controller and webhook. When absent, kubernetes.io/os: linux.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infra_node_selector: Option<BTreeMap<String, String>>,

    /// Taints that the controller and webhook tolerate, as in a pod; see kubectl explain pod.spec.tolerations. When
    /// absent, those of control-plane nodes.
    #[schemars(schema_with = "schema::without_descriptions::<Option<Vec<Toleration>>>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infra_tolerations: Option<Vec<Toleration>>,

    /// How often the certificates of the webhook are renewed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub self_sign_configuration: Option<SelfSignConfiguration>,

    /// Settings of the probes that run for every policy.
    #[schemars(extend("default" = {}))]
    #[serde(default)]
    pub probe_configuration: ProbeConfiguration,

    /// Settings of the metrics.
    #[schemars(extend("default" = {}))]
    #[serde(default)]
    pub metrics_configuration: MetricsConfiguration,

    /// How much the components log: info or debug.
    #[serde(default)]
    pub log_level: LogLevel,

    /// Allows the network of a single node to be configured in the spec of its NodeNetworkState, with managed: true and a
    /// desiredState. When absent, only policies configure nodes.
    #[serde(default, skip_serializing_if = "is_default")]
    pub allow_node_state_configuration: bool,

    /// Allows dispatch scripts in desired states (interfaces[].dispatch). NetworkManager runs them as root on the nodes,
    /// so a client that may write policies can then run programs as root there. When absent, they are refused.
    #[serde(default, skip_serializing_if = "is_default")]
    pub allow_dispatch_scripts: bool,

    /// Whether changes of a node's network survive a reboot:
    /// - Persistent: they are written to the node's disk, so a node that boots has them at once. This is the default.
    /// - Ephemeral: they are memory-only in NetworkManager. A node boots with the configuration on its disk, and the
    ///   handler applies the policies again.
    ///
    /// Changing this does not convert what is applied already.
    #[serde(default, skip_serializing_if = "is_default")]
    pub persistence: Persistence,
}

/// How often the certificates of the webhook are renewed. Absent fields have their defaults.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct SelfSignConfiguration {
    /// How long a certificate authority is valid, such as "8760h".
    #[schemars(length(max = 64))]
    #[x_kube(validation = rules::go_duration())]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_rotate_interval: Option<String>,

    /// How long the old certificate authority stays trusted together with the new one, such as "24h".
    #[schemars(length(max = 64))]
    #[x_kube(validation = rules::go_duration())]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_overlap_interval: Option<String>,

    /// How long a certificate of the webhook is valid, such as "4380h".
    #[schemars(length(max = 64))]
    #[x_kube(validation = rules::go_duration())]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_rotate_interval: Option<String>,

    /// How long before its expiry a certificate is replaced, such as "24h".
    #[schemars(length(max = 64))]
    #[x_kube(validation = rules::go_duration())]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_overlap_interval: Option<String>,
}

/// Settings of the probes that run for every policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProbeConfiguration {
    /// Settings of the probe of the name servers.
    #[serde(default)]
    pub dns: DnsProbeConfiguration,
}

/// Settings of the probe of the name servers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DnsProbeConfiguration {
    /// The DNS name that the name servers must resolve. Set one of your own network if public names cannot be resolved
    /// there.
    #[schemars(extend("default" = "root-servers.net"))]
    pub host: String,
}

impl Default for DnsProbeConfiguration {
    fn default() -> Self {
        Self { host: "root-servers.net".to_owned() }
    }
}

/// Settings of the metrics.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MetricsConfiguration {
    /// The address and port of the metrics endpoint; "0" switches it off.
    pub bind_address: String,
}

impl Default for MetricsConfiguration {
    fn default() -> Self {
        Self { bind_address: ":8089".to_owned() }
    }
}

/// How much the components log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Events that an admin needs to know of.
    #[default]
    Info,
    /// Details for debugging, too.
    Debug,
}

/// Whether changes of a node's network survive a reboot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Persistence {
    /// They are written to the node's disk.
    #[default]
    Persistent,
    /// They are memory-only in NetworkManager; the policies are applied again after a reboot.
    Ephemeral,
}

impl Persistence {
    /// Its name in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Persistent => "Persistent",
            Self::Ephemeral => "Ephemeral",
        }
    }
}

impl FromStr for Persistence {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Persistent, Self::Ephemeral].into_iter().find(|known| known.as_str() == text).ok_or_else(
            || format!("{text:?} is not a persistence: use Persistent or Ephemeral, with a capital letter"),
        )
    }
}

/// Whether the components run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NMStateStatus {
    /// Available, Progressing and Degraded.
    #[serde(default, skip_serializing_if = "ConditionList::is_empty")]
    pub conditions: ConditionList,
}
