//! Whom the pods may speak to. Handlers are on the network of their machine, which no such policy is about.

use k8s_openapi::{
    api::networking::v1::{
        NetworkPolicy, NetworkPolicyEgressRule, NetworkPolicyIngressRule, NetworkPolicyPeer,
        NetworkPolicyPort, NetworkPolicySpec,
    },
    apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString},
};
use knmstate_api::names;

use crate::{Object, operands::Wish, services::metrics_port, workloads::controller::WEBHOOK_PORT};

/// The Service of the API server. Some networks look at an address before it is translated, others after.
const API_SERVICE_PORT: u16 = 443;

pub fn network_policies(wish: &Wish<'_>) -> Vec<Object> {
    let controller = || selecting("name", &wish.settings.controller_workload());
    let mut policies = vec![
        policy(
            wish,
            "default-deny-labelled-operand",
            NetworkPolicySpec {
                pod_selector: Some(selecting(names::APP_LABEL, names::APP)),
                policy_types: Some(vec!["Ingress".to_owned(), "Egress".to_owned()]),
                ..NetworkPolicySpec::default()
            },
        ),
        // The API server is on the network of its machine: no selector knows it.
        policy(
            wish,
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
            wish,
            "allow-webhook-egress-api",
            NetworkPolicySpec {
                pod_selector: Some(controller()),
                policy_types: Some(vec!["Egress".to_owned()]),
                egress: Some(vec![NetworkPolicyEgressRule {
                    ports: api_ports(wish),
                    ..NetworkPolicyEgressRule::default()
                }]),
                ..NetworkPolicySpec::default()
            },
        ),
    ];
    if let Some(metrics) = metrics_port(wish.spec) {
        let prometheus = NetworkPolicyPeer {
            namespace_selector: Some(selecting(
                "kubernetes.io/metadata.name",
                &wish.config.monitoring_namespace,
            )),
            ..NetworkPolicyPeer::default()
        };
        policies.push(policy(
            wish,
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

/// All ports as long as the API server's own are not known: a controller without a way to it can do nothing.
fn api_ports(wish: &Wish<'_>) -> Option<Vec<NetworkPolicyPort>> {
    let known = &wish.facts.api_ports;
    let mut ports: Vec<u16> = known.iter().copied().chain([API_SERVICE_PORT]).collect();
    ports.sort_unstable();
    ports.dedup();
    (!known.is_empty()).then(|| ports.into_iter().map(|number| port(number.into())).collect())
}

fn policy(wish: &Wish<'_>, name: &str, spec: NetworkPolicySpec) -> Object {
    let metadata = wish.settings.metadata_in(&wish.settings.namespace, name);
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
