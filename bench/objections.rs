//! The time to compare a policy with all others, for the nodes of a large cluster.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use knmstate_api::NodeNetworkConfigurationPolicySpec;
use knmstate_core::{Candidate, NodeFacts, objection};
use serde_json::{Map, Value, json};

const POLICIES: usize = 50;

fn main() -> Result<()> {
    println!("{:>6} {:>9} {:>36} {:>10}", "nodes", "policies", "the others", "time");
    for nodes in [100, 1_000] {
        for (what, port) in [("share nothing", None), ("share an interface", Some("eth1"))] {
            let time = comparison(nodes, port)?;
            println!("{nodes:>6} {POLICIES:>9} {what:>36} {:>8.1}ms", time.as_secs_f64() * 1e3);
            ensure!(time < Duration::from_secs(5), "the timeout of the admission webhook is ten seconds");
        }
    }
    Ok(())
}

/// Compares policies with an address of its own for each node.
fn comparison(nodes: usize, port: Option<&str>) -> Result<Duration> {
    let nodes: BTreeMap<String, BTreeMap<String, String>> =
        (0..nodes).map(|number| (format!("worker-{number}"), BTreeMap::new())).collect();
    let specs: BTreeMap<String, NodeNetworkConfigurationPolicySpec> = (0..POLICIES)
        .map(|number| Ok((format!("policy-{number}"), policy(number, nodes.keys(), port)?)))
        .collect::<Result<_>>()?;
    let facts: Vec<_> = nodes.iter().map(|(name, labels)| NodeFacts { name, labels }).collect();
    let all: Vec<_> = specs.iter().map(|(name, spec)| Candidate { name, spec }).collect();
    let begin = now();
    let found = objection(&all[0], &all, &facts);
    let time = begin.elapsed();
    ensure!(found.is_none(), "these policies have no conflict: {found:?}");
    Ok(time)
}

fn policy<'a>(
    number: usize,
    nodes: impl Iterator<Item = &'a String>,
    port: Option<&str>,
) -> Result<NodeNetworkConfigurationPolicySpec> {
    let own = |(index, node): (usize, &String)| {
        (node.clone(), json!({ "ip": format!("10.{number}.{}.{}", index / 250, index % 250 + 1) }))
    };
    let node_values: Map<String, Value> = nodes.enumerate().map(own).collect();
    let port = port.map_or_else(|| format!("eth{number}"), str::to_owned);
    Ok(serde_json::from_value(json!({
        "nodeValues": node_values,
        "desiredState": {
            "interfaces": [
                { "name": port, "type": "ethernet", "state": "up", "mtu": 9000 },
                { "name": format!("{port}.{number}"), "type": "vlan", "vlan": { "base-iface": port, "id": number },
                  "ipv4": { "enabled": true, "address": [{ "ip": "{{ values.ip }}", "prefix-length": 16 }] } },
            ],
            "routes": { "config": [
                { "destination": format!("192.168.{number}.0/24"), "next-hop-interface": format!("{port}.{number}"),
                  "next-hop-address": format!("10.{number}.255.254") },
            ] },
        },
    }))?)
}

#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
fn now() -> Instant {
    Instant::now()
}
