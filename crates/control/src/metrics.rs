//! Metrics of the cluster, for Prometheus: those of kubernetes-nmstate under their names, and our own.
//!
//! The figures about the cluster are counted when they are asked for, from what the leader knows; so there is nothing
//! that could be forgotten to be counted down. A controller that does not lead has none of them.

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
    certificates::Serving,
    measures::{Measures, Which},
    sources::LiveWorld,
    world::World,
};

/// `/metrics`, and whether we are there at all.
pub fn router(world: LiveWorld, measures: Measures, certificates: Serving) -> Router {
    let answer = move || {
        measures.certificate_ends(Which::Serving, certificates.end());
        let text = text(&world, &measures);
        async move {
            ([(CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text)
                .into_response()
        }
    };
    Router::new().route("/metrics", get(answer)).route("/healthz", get(|| async { "ok" }))
}

/// All metrics as they are now.
pub fn text(world: &LiveWorld, measures: &Measures) -> String {
    let mut registry = Registry::default();
    measures.register(&mut registry);
    registry.register_collector(Box::new(Census(world.clone())));
    let mut text = String::new();
    if let Err(error) = encode(&mut text, &registry) {
        tracing::warn!("metrics cannot be written: {error}");
    }
    text
}

/// Counts what there is.
#[derive(Debug)]
struct Census(LiveWorld);

impl Collector for Census {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let world = self.0.lock();
        if !world.is_known() {
            return Ok(());
        }
        for Gauges { name, help, values } in count(&world).into_iter().chain(health::gauges(&world)) {
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

/// One metric with its series: labels, in the order of their names, and the value.
struct Gauges {
    name: &'static str,
    help: &'static str,
    values: Vec<(Vec<(&'static str, String)>, u64)>,
}

fn count(world: &World) -> [Gauges; 5] {
    let features: BTreeSet<&String> =
        world.enactments.iter().flat_map(|(_, _, one)| &one.status.features).collect();
    let mut policies: BTreeMap<&str, u64> = policy::TYPES.map(|type_| (type_, 0)).into();
    for one in world.policies.values() {
        add(&mut policies, &one.status.conditions);
    }
    let mut enactments: BTreeMap<&String, BTreeMap<&str, u64>> = BTreeMap::new();
    for (_, node, one) in world.enactments.iter() {
        let of_node =
            enactments.entry(node).or_insert_with(|| enactment::TYPES.map(|type_| (type_, 0)).into());
        add(of_node, &one.status.conditions);
    }
    let networks = || world.networks.iter();
    [
        Gauges {
            name: "kubernetes_nmstate_features_applied",
            help: "Number of nmstate features applied labeled by its name",
            values: features.into_iter().map(|name| (vec![("name", name.clone())], 1)).collect(),
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

/// What is shown of an object is its first condition that is true.
fn add(counts: &mut BTreeMap<&str, u64>, conditions: &ConditionList) {
    let shown = conditions.first_true().map(|condition| &*condition.type_);
    if let Some(count) = shown.and_then(|type_| counts.get_mut(type_)) {
        *count += 1;
    }
}

#[cfg(test)]
mod tests;
