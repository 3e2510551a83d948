//! The NetworkPolicies of the controller. Handlers use the network of their node, to which NetworkPolicies do not apply.

use k8s_openapi::{
    api::networking::v1::{
        NetworkPolicy, NetworkPolicyEgressRule, NetworkPolicyIngressRule, NetworkPolicyPeer,
        NetworkPolicyPort, NetworkPolicySpec,
    },
    apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString},
};
use knmstate_api::names;

use crate::{Object, operands::OperandInputs, services::metrics_port, workloads::controller::WEBHOOK_PORT};

/// The port of the API server's Service. Networks differ in whether they filter before or after its translation.
const API_SERVICE_PORT: u16 = 443;

pub(crate) fn network_policies(inputs: &OperandInputs<'_>) -> Vec<Object> {
    let controller = || selecting("name", &inputs.settings.controller_workload());
    let mut policies = vec![
        policy(
            inputs,
            "default-deny-labelled-operand",
            NetworkPolicySpec {
                pod_selector: Some(selecting(names::APP_LABEL, names::APP)),
                policy_types: Some(vec!["Ingress".to_owned(), "Egress".to_owned()]),
                ..NetworkPolicySpec::default()
            },
        ),
        // The API server uses the network of its node, which no selector matches.
        policy(
            inputs,
            "allow-webhook-ingress-9443",
            NetworkPolicySpec {
                pod_selector: Some(controller()),
                policy_types: Some(vec!["Ingress".to_owned()]),
                ingress: Some(vec![NetworkPolicyIngressRule {
                    ports: Some(vec![port(WEBHOOK_PORT)]),
                    ..NetworkPolicyIngressRule::default()
                }]),
                ..NetworkPolicySpec::default()
            },
        ),
        policy(
            inputs,
            "allow-webhook-egress-api",
            NetworkPolicySpec {
                pod_selector: Some(controller()),
                policy_types: Some(vec!["Egress".to_owned()]),
                egress: Some(vec![NetworkPolicyEgressRule {
                    ports: api_ports(inputs),
                    ..NetworkPolicyEgressRule::default()
                }]),
                ..NetworkPolicySpec::default()
            },
        ),
    ];
    if let Some(metrics) = metrics_port(inputs.spec) {
        let prometheus = NetworkPolicyPeer {
            namespace_selector: Some(selecting(
                "kubernetes.io/metadata.name",
                &inputs.config.monitoring_namespace,
            )),
            ..NetworkPolicyPeer::default()
        };
        policies.push(policy(
            inputs,
            "allow-metrics-ingress",
            NetworkPolicySpec {
                pod_selector: Some(controller()),
                policy_types: Some(vec!["Ingress".to_owned()]),
                ingress: Some(vec![NetworkPolicyIngressRule {
                    from: Some(vec![prometheus]),
                    ports: Some(vec![port(metrics)]),
                }]),
                ..NetworkPolicySpec::default()
            },
        ));
    }
    policies
}

/// The ports of the API server, or all ports until they are known: a controller that cannot connect can do nothing.
fn api_ports(inputs: &OperandInputs<'_>) -> Option<Vec<NetworkPolicyPort>> {
    let known = &inputs.cluster.api_ports;
    let mut ports: Vec<u16> = known.iter().copied().chain([API_SERVICE_PORT]).collect();
    ports.sort_unstable();
    ports.dedup();
    (!known.is_empty()).then(|| ports.into_iter().map(|number| port(number.into())).collect())
}

fn policy(inputs: &OperandInputs<'_>, name: &str, spec: NetworkPolicySpec) -> Object {
    let metadata = inputs.settings.metadata_in(&inputs.settings.namespace, name);
    NetworkPolicy { metadata, spec: Some(spec) }.into()
}

fn selecting(key: &str, value: &str) -> LabelSelector {
    LabelSelector {
        match_labels: Some([(key.to_owned(), value.to_owned())].into()),
        ..LabelSelector::default()
    }
}

fn port(number: i32) -> NetworkPolicyPort {
    NetworkPolicyPort {
        port: Some(IntOrString::Int(number)),
        protocol: Some("TCP".to_owned()),
        ..NetworkPolicyPort::default()
    }
}
