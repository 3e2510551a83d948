//! Metrics for Prometheus: those of kubernetes-nmstate under their names, and our own.
//!
//! Metrics of the cluster are computed at each scrape from the leader's cluster state, so none can go stale. Only the
//! leader exports them.

mod health;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use axum::{Router, http::header::CONTENT_TYPE, response::IntoResponse, routing::get};
use knmstate_api::{
    ConditionList,
    reasons::{enactment, policy},
};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _, text::encode},
    metrics::gauge::ConstGauge,
    registry::Registry,
};

use crate::{
    certificates::ServedCertificate,
    cluster_state::ClusterState,
    controller_metrics::{CertificateKind, ControllerMetrics},
    metric_labels::Labels,
    sources::SharedClusterState,
};

/// nmstate has a few dozen features; what is more counts as another one.
const MAX_FEATURES: usize = 256;

/// `/metrics` and `/healthz`.
pub(crate) fn router(
    cluster: SharedClusterState,
    metrics: ControllerMetrics,
    certificates: ServedCertificate,
) -> Router {
    let answer = move || {
        metrics.set_certificate_expiry(CertificateKind::Serving, certificates.end());
        let text = text(&cluster, &metrics);
        async move {
            ([(CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text)
                .into_response()
        }
    };
    Router::new().route("/metrics", get(answer)).route("/healthz", get(|| async { "ok" }))
}

/// All metrics in the text format.
pub(crate) fn text(cluster: &SharedClusterState, metrics: &ControllerMetrics) -> String {
    let mut registry = Registry::default();
    metrics.register(&mut registry);
    registry.register_collector(Box::new(ClusterCollector(cluster.clone())));
    let mut text = String::new();
    if let Err(error) = encode(&mut text, &registry) {
        tracing::warn!("cannot encode the metrics: {error}");
    }
    text
}

/// Computes the metrics of the cluster state.
#[derive(Debug)]
struct ClusterCollector(SharedClusterState);

impl Collector for ClusterCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let cluster = self.0.lock();
        if !cluster.is_complete() {
            return Ok(());
        }
        for Gauges { name, help, values } in count(&cluster).into_iter().chain(health::gauges(&cluster)) {
            let mut family =
                encoder.encode_descriptor(name, help, None, prometheus_client::metrics::MetricType::Gauge)?;
            for (labels, value) in values {
                let value = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
                value.encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

/// One metric with its series: the labels, sorted by name, and the value.
struct Gauges {
    name: &'static str,
    help: &'static str,
    values: Vec<(Vec<(&'static str, String)>, u64)>,
}

fn count(cluster: &ClusterState) -> [Gauges; 5] {
    let mut names = Labels::default();
    let features = cluster.enactments.iter().flat_map(|(_, _, one)| &one.status.features);
    let features: BTreeSet<&str> = features.map(|name| names.label(name, MAX_FEATURES)).collect();
    let mut policies: BTreeMap<&str, u64> = policy::TYPES.map(|type_| (type_, 0)).into();
    for one in cluster.policies.values() {
        add(&mut policies, &one.status.conditions);
    }
    let mut enactments: BTreeMap<&String, BTreeMap<&str, u64>> = BTreeMap::new();
    for (_, node, one) in cluster.enactments.iter() {
        let of_node =
            enactments.entry(node).or_insert_with(|| enactment::TYPES.map(|type_| (type_, 0)).into());
        add(of_node, &one.status.conditions);
    }
    let networks = || cluster.networks();
    [
        Gauges {
            name: "kubernetes_nmstate_features_applied",
            help: "Number of nmstate features applied labeled by its name",
            values: features.into_iter().map(|name| (vec![("name", name.to_owned())], 1)).collect(),
        },
        Gauges {
            name: "kubernetes_nmstate_network_interfaces",
            help: "Number of network interfaces labeled by its type",
            values: networks()
                .flat_map(|(node, network)| {
                    network.interfaces.iter().map(move |(type_, count)| {
                        (vec![("node", node.clone()), ("type", type_.clone())], *count)
                    })
                })
                .collect(),
        },
        Gauges {
            name: "kubernetes_nmstate_routes",
            help: "Number of network routes labeled by node, IP stack and type (static/dynamic)",
            values: networks()
                .flat_map(|(node, network)| {
                    network.routes.iter().map(move |((stack, type_), count)| {
                        let (stack, type_) = ((*stack).to_owned(), (*type_).to_owned());
                        (vec![("ip_stack", stack), ("node", node.clone()), ("type", type_)], *count)
                    })
                })
                .collect(),
        },
        Gauges {
            name: "kubernetes_nmstate_policies_status",
            help: "Number of NodeNetworkConfigurationPolicies labeled by their status condition",
            values: policies
                .into_iter()
                .map(|(status, count)| (vec![("status", status.to_owned())], count))
                .collect(),
        },
        Gauges {
            name: "kubernetes_nmstate_enactments_status",
            help: "Number of NodeNetworkConfigurationEnactments labeled by node and status condition",
            values: enactments
                .into_iter()
                .flat_map(|(node, counts)| {
                    counts.into_iter().map(move |(status, count)| {
                        (vec![("node", node.clone()), ("status", status.to_owned())], count)
                    })
                })
                .collect(),
        },
    ]
}

/// Counts an object under its first condition that is true, which is the one that `kubectl get` shows.
fn add(counts: &mut BTreeMap<&str, u64>, conditions: &ConditionList) {
    let shown = conditions.first_true().map(|condition| &*condition.type_);
    if let Some(count) = shown.and_then(|type_| counts.get_mut(type_)) {
        *count += 1;
    }
}

#[cfg(test)]
mod tests;
