//! The NetworkPolicies of the operator: no ingress, and egress to the API server and to DNS.
//!
//! The address and port behind the API server's Service are not known at installation, and networks differ in whether they
//! filter before or after the translation. An operator without a connection could not even correct its policies. So it
//! may connect to any TCP port. The policies of the operands, which the operator creates, name the port.

use k8s_openapi::{
    api::networking::v1::{NetworkPolicy, NetworkPolicyEgressRule, NetworkPolicyPort, NetworkPolicySpec},
    apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString},
};
use knmstate_api::names;

use super::{label, metadata};
use crate::{Config, Object};

pub(crate) fn network_policies(config: &Config) -> Vec<Object> {
    let any_connection = vec![port("TCP", None)];
    let name_service = vec![port("UDP", Some(53)), port("TCP", Some(53))];
    vec![
        policy(config, "default-deny-labelled-operator", &["Ingress", "Egress"], None),
        policy(config, "allow-operator-egress-api", &["Egress"], Some(any_connection)),
        policy(config, "allow-operator-egress-dns", &["Egress"], Some(name_service)),
    ]
}

fn policy(config: &Config, name: &str, types: &[&str], to_ports: Option<Vec<NetworkPolicyPort>>) -> Object {
    let pods =
        LabelSelector { match_labels: Some(label(config, names::APP_LABEL)), ..LabelSelector::default() };
    let spec = NetworkPolicySpec {
        pod_selector: Some(pods),
        policy_types: Some(types.iter().map(|&name| name.to_owned()).collect()),
        egress: to_ports.map(|ports| vec![NetworkPolicyEgressRule { ports: Some(ports), to: None }]),
        ..NetworkPolicySpec::default()
    };
    NetworkPolicy { metadata: metadata(config, Some(&config.operator_namespace), name), spec: Some(spec) }
        .into()
}

fn port(protocol: &str, number: Option<i32>) -> NetworkPolicyPort {
    NetworkPolicyPort {
        protocol: Some(protocol.to_owned()),
        port: number.map(IntOrString::Int),
        ..NetworkPolicyPort::default()
    }
}
