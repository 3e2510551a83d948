//! Probes: what must work after a change for it to stay.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Duration, kind::is_default, rules};

/// A probe has exactly one of ping, tcp, http, dns, lease and builtIn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(
    "[has(self.ping), has(self.tcp), has(self.http), has(self.dns), has(self.lease), has(self.builtIn)]\
     .exists_one(kind, kind)",
).message("a probe must have exactly one of ping, tcp, http, dns, lease and builtIn"))]
pub struct Probe {
    /// The name by which results and error messages call the probe; no two probes of a policy share one.
    #[schemars(length(max = 63))]
    #[x_kube(validation = Rule::new("!format.dns1123Label().validate(self).hasValue()")
        .message("must be made of lower-case letters, digits and dashes, with a letter or digit at both ends"))]
    pub name: String,

    /// When the probe counts:
    /// - Required: it must pass after the change, or the change is rolled back. This is the default.
    /// - IfPassingBefore: the same, but only on nodes where it passed before the change.
    /// - Disabled: it is not run.
    #[serde(default, skip_serializing_if = "is_default")]
    pub policy: ProbePolicy,

    /// How long the probe may take to pass after the change, such as "30s"; it is repeated until then. When absent,
    /// the handler's own limit holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,

    /// Passes when a host answers to ping.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ping: Option<PingProbe>,

    /// Passes when a TCP connection can be opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<TcpProbe>,

    /// Passes when an HTTP or HTTPS request is answered well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpProbe>,

    /// Passes when a name can be resolved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dns: Option<DnsProbe>,

    /// Passes when an interface has an address that somebody lends to it, by DHCP or by the announcement of a router.
    /// Without it a change stays also if no address comes, and only the message of the policy says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseProbe>,

    /// One of the probes that are run for every policy, to say when it counts. Those not listed count as follows:
    /// - ApiServer (Required): the node reaches the API server.
    /// - NodeReadiness (Required): the node is Ready.
    /// - DefaultGateway (IfPassingBefore): the default gateway answers to ping.
    /// - NameServers (IfPassingBefore): a configured name server answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub built_in: Option<BuiltInProbe>,
}

/// When a probe counts.
// Not "Off", which YAML reads as the boolean false.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ProbePolicy {
    /// It must pass after the change.
    #[default]
    Required,
    /// It must pass after the change if it passed before.
    IfPassingBefore,
    /// It is not run.
    Disabled,
}

/// The probes that are run for every policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum BuiltInProbe {
    /// The node reaches the API server.
    ApiServer,
    /// The node is Ready.
    NodeReadiness,
    /// The default gateway answers to ping.
    DefaultGateway,
    /// A configured name server answers.
    NameServers,
}

/// A host that answers to ping.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PingProbe {
    /// IP address or DNS name of the host.
    #[schemars(length(max = 253))]
    #[x_kube(validation = rules::host())]
    pub host: String,

    /// The interface to ping from. When absent, the routing table decides.
    #[schemars(length(min = 1, max = 64))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
}

/// A TCP port that accepts connections.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct TcpProbe {
    /// IP address or DNS name of the host.
    #[schemars(length(max = 253))]
    #[x_kube(validation = rules::host())]
    pub host: String,

    /// The port, 1 to 65535.
    #[schemars(range(min = 1, max = 65535))]
    pub port: u16,
}

/// An HTTP or HTTPS request that is answered well.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct HttpProbe {
    /// What to get, such as `https://registry.example.com/healthz`.
    #[schemars(length(max = 2048))]
    #[x_kube(validation = Rule::new(
        "isURL(self) && url(self).getScheme() in ['http', 'https'] && url(self).getHostname() != ''",
    ).message("must be a URL such as \"http://10.0.0.1:8080/healthz\" or \"https://registry.example.com/\""))]
    pub url: String,

    /// The status code of a good answer. When absent, any from 200 to 399 is good.
    #[schemars(range(min = 100, max = 599))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_status: Option<u16>,

    /// Accepts any certificate. The probe then says that the server can be reached, not that it is the right one.
    #[serde(default, rename = "insecureSkipTLSVerify", skip_serializing_if = "is_default")]
    pub insecure_skip_tls_verify: bool,
}

/// A name that can be resolved.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct DnsProbe {
    /// The name to resolve to an address.
    #[schemars(length(max = 253))]
    #[x_kube(validation = Rule::new("!format.dns1123Subdomain().validate(self).hasValue()")
        .message("must be a DNS name such as \"registry.example.com\""))]
    pub name: String,

    /// The IP address of the name server to ask. When absent, any of those configured on the node may answer.
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new("isIP(self)").message("must be an IP address"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
}

/// An address that is lent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LeaseProbe {
    /// The interface that asks for it.
    #[schemars(length(min = 1, max = 64))]
    pub interface: String,

    /// ipv4, by DHCP; or ipv6, by DHCP or by the announcement of a router.
    pub family: LeaseFamily,
}

/// What kind of address is lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LeaseFamily {
    /// By DHCP.
    Ipv4,
    /// By DHCP or by the announcement of a router.
    Ipv6,
}
