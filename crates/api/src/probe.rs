//! Probes: what must work after a change, or it is rolled back.

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
    /// The name of the probe in results and error messages, unique within the policy.
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

    /// How long the probe is repeated after the change until it passes, such as "30s". When absent, 2 minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,

    /// Passes when a host answers a ping.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ping: Option<PingProbe>,

    /// Passes when a TCP connection can be opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<TcpProbe>,

    /// Passes when an HTTP or HTTPS request has a good answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpProbe>,

    /// Passes when a DNS name can be resolved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dns: Option<DnsProbe>,

    /// Passes when an interface has a dynamic address, by DHCP or by router advertisement. Without this probe a change
    /// also stays if the interface gets no address; the message of the policy then reports that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseProbe>,

    /// One of the probes that run for every policy, to change when it counts. Without an entry here:
    /// - ApiServer (Required): the node reaches the API server.
    /// - NodeReadiness (Required): the node is Ready.
    /// - DefaultGateway (IfPassingBefore; Required if desiredState sets a default gateway): it answers a ping.
    /// - NameServers (IfPassingBefore; Required if desiredState sets name servers): one of them answers.
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

/// The probes that run for every policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum BuiltInProbe {
    /// The node reaches the API server.
    ApiServer,
    /// The node is Ready.
    NodeReadiness,
    /// The default gateway answers a ping.
    DefaultGateway,
    /// A configured name server answers.
    NameServers,
}

/// A host that answers a ping.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PingProbe {
    /// IP address or DNS name of the host.
    #[schemars(length(max = 253))]
    #[x_kube(validation = rules::host())]
    pub host: String,

    /// The interface to ping from. When absent, it is chosen by the routing table.
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

/// An HTTP or HTTPS request that has a good answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct HttpProbe {
    /// The URL to get, such as `https://registry.example.com/healthz`.
    #[schemars(length(max = 2048))]
    #[x_kube(validation = Rule::new(
        "isURL(self) && url(self).getScheme() in ['http', 'https'] && url(self).getHostname() != ''",
    ).message("must be a URL such as \"http://10.0.0.1:8080/healthz\" or \"https://registry.example.com/\""))]
    pub url: String,

    /// The status code of a good answer. When absent, any from 200 to 399.
    #[schemars(range(min = 100, max = 599))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_status: Option<u16>,

    /// Accepts any certificate. The probe then proves that a server can be reached, not that it is the right one.
    #[serde(default, rename = "insecureSkipTLSVerify", skip_serializing_if = "is_default")]
    pub insecure_skip_tls_verify: bool,
}

/// A DNS name that can be resolved.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct DnsProbe {
    /// The name to resolve to an address.
    #[schemars(length(max = 253))]
    #[x_kube(validation = Rule::new("!format.dns1123Subdomain().validate(self).hasValue()")
        .message("must be a DNS name such as \"registry.example.com\""))]
    pub name: String,

    /// The IP address of the name server to ask. When absent, those that are configured on the node.
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new("isIP(self)").message("must be an IP address"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
}

/// A dynamic address of an interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LeaseProbe {
    /// The name of the interface.
    #[schemars(length(min = 1, max = 64))]
    pub interface: String,

    /// ipv4 (by DHCP), or ipv6 (by DHCP or by router advertisement).
    pub family: LeaseFamily,
}

/// The family of a dynamic address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LeaseFamily {
    /// By DHCP.
    Ipv4,
    /// By DHCP or by router advertisement.
    Ipv6,
}
