//! The switch: node networking for a cluster, and where its parts run.

#![expect(clippy::struct_field_names, reason = "the names of the intervals are those of the API")]

use std::{collections::BTreeMap, str::FromStr};

use k8s_openapi::api::core::v1::{Affinity, Toleration};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    ConditionList,
    kind::{is_default, kind},
    rules,
};

kind! {
    /// An NMState switches node networking on in a cluster and says where its parts run. There is one per cluster.
    NMState, nmstates, version "v1", short names &[];

    /// Where the parts run, and how.
    #[schemars(extend("default" = {}))]
    spec: NMStateSpec,

    /// Whether they run.
    status: NMStateStatus,
}

/// Where the parts run, and how. Everything is optional.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct NMStateSpec {
    /// Affinity of the handler, which runs on every node that it configures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,

    /// Affinity of the parts that serve the whole cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infra_affinity: Option<Affinity>,

    /// Labels of the nodes that run a handler. When absent, kubernetes.io/os: linux.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<BTreeMap<String, String>>,

    /// Taints that the handler tolerates. When absent, all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerations: Option<Vec<Toleration>>,

    /// Labels of the nodes that run the parts for the whole cluster. When absent, kubernetes.io/os: linux.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infra_node_selector: Option<BTreeMap<String, String>>,

    /// Taints that the parts for the whole cluster tolerate. When absent, those of control-plane nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infra_tolerations: Option<Vec<Toleration>>,

    /// How often the certificates of the webhook are renewed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub self_sign_configuration: Option<SelfSignConfiguration>,

    /// The probes that are run for every policy.
    #[schemars(extend("default" = {}))]
    #[serde(default)]
    pub probe_configuration: ProbeConfiguration,

    /// Metrics.
    #[schemars(extend("default" = {}))]
    #[serde(default)]
    pub metrics_configuration: MetricsConfiguration,

    /// How much the parts log: info or debug.
    #[serde(default)]
    pub log_level: LogLevel,

    /// Lets the network of a single node be configured in its NodeNetworkState, by managed: true and a desiredState
    /// there. When absent, only policies configure nodes.
    #[serde(default, skip_serializing_if = "is_default")]
    pub allow_node_state_configuration: bool,

    /// How long a change of a node's network lasts. Persistent, the default: it is written to the node's disk, and a
    /// node that boots has it at once. Ephemeral: every change is memory-only in NetworkManager; a reboot comes back
    /// with what is on disk, and the handler applies the policies again afterwards. What is applied already is not
    /// moved when this is changed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub persistence: Persistence,
}

/// How often the certificates of the webhook are renewed. What is absent keeps its own default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct SelfSignConfiguration {
    /// How long a certificate authority lives, such as "8760h".
    #[schemars(length(max = 64))]
    #[x_kube(validation = rules::go_duration())]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_rotate_interval: Option<String>,

    /// How long the old certificate authority stays trusted beside the new one, such as "24h".
    #[schemars(length(max = 64))]
    #[x_kube(validation = rules::go_duration())]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_overlap_interval: Option<String>,

    /// How long a certificate of the webhook lives, such as "4380h".
    #[schemars(length(max = 64))]
    #[x_kube(validation = rules::go_duration())]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_rotate_interval: Option<String>,

    /// How long before its end a certificate is replaced, such as "24h".
    #[schemars(length(max = 64))]
    #[x_kube(validation = rules::go_duration())]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_overlap_interval: Option<String>,
}

/// The probes that are run for every policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProbeConfiguration {
    /// The probe of the name servers.
    #[serde(default)]
    pub dns: DnsProbeConfiguration,
}

/// The probe of the name servers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DnsProbeConfiguration {
    /// The name that the name servers must be able to resolve. Choose one of your own network where the public ones
    /// cannot be reached.
    #[schemars(extend("default" = "root-servers.net"))]
    pub host: String,
}

impl Default for DnsProbeConfiguration {
    fn default() -> Self {
        Self { host: "root-servers.net".to_owned() }
    }
}

/// Metrics.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MetricsConfiguration {
    /// The address and port on which metrics are served; "0" for none.
    pub bind_address: String,
}

impl Default for MetricsConfiguration {
    fn default() -> Self {
        Self { bind_address: ":8089".to_owned() }
    }
}

/// How much the parts log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// What an admin wants to know.
    #[default]
    Info,
    /// What a developer wants to know.
    Debug,
}

/// How long a change of a node's network lasts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Persistence {
    /// It is written to the node's disk.
    #[default]
    Persistent,
    /// It is memory-only in NetworkManager and gone with a reboot, after which the policies are applied again.
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
            || format!("{text:?} is no persistence; write Persistent or Ephemeral, with that capital letter"),
        )
    }
}

/// Whether the parts run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NMStateStatus {
    /// Available, Progressing and Degraded.
    #[serde(default, skip_serializing_if = "ConditionList::is_empty")]
    pub conditions: ConditionList,
}
