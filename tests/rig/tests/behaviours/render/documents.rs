//! The policies that the tests render.

use std::fs;

use anyhow::Result;
use rig::machine::rig_file;
use serde_json::{Value, json};

/// One document of a file of policies. JSON is YAML.
pub(super) fn policy(name: &str, desired: &Value) -> String {
    let policy = json!({ "apiVersion": "nmstate.io/v1", "kind": "NodeNetworkConfigurationPolicy",
        "metadata": { "name": name }, "spec": { "desiredState": desired } });
    format!("---\n{policy:#}\n")
}

pub(super) fn nic(name: &str, address: &str) -> Value {
    json!({ "name": name, "type": "ethernet", "state": "up", "ipv6": { "enabled": false }, "ipv4": { "enabled": true,
        "dhcp": false, "address": [{ "ip": address, "prefix-length": 24 }] } })
}

pub(super) fn address_with_routes() -> Value {
    let mut eth1 = nic("eth1", "10.98.0.7");
    eth1["mtu"] = json!(1400);
    eth1["ipv6"] = json!({ "enabled": true, "dhcp": false, "autoconf": false,
        "address": [{ "ip": "2001:db8:98::7", "prefix-length": 64 }] });
    json!({
        "interfaces": [eth1],
        "routes": { "config": [
            { "destination": "198.51.100.0/24", "next-hop-interface": "eth1", "next-hop-address": "10.98.0.254" },
            { "destination": "203.0.113.0/24", "next-hop-interface": "eth1", "next-hop-address": "10.98.0.254",
              "metric": 150, "table-id": 100 },
            { "destination": "192.0.2.128/25", "route-type": "blackhole" },
        ] },
        "route-rules": { "config": [{ "ip-from": "203.0.113.0/24", "route-table": 100, "priority": 1000 }] },
        "dns-resolver": { "config": { "server": ["10.98.0.53"], "search": ["example.com"] } },
    })
}

/// Without VLANs on its port, which not every kernel has.
pub(super) fn plain_bridge() -> Value {
    json!({ "interfaces": [{ "name": "br1", "type": "linux-bridge", "state": "up",
        "bridge": { "options": { "stp": { "enabled": false } }, "port": [{ "name": "eth2", "vlan": {} }] },
        "ipv4": { "enabled": true, "dhcp": false, "address": [{ "ip": "10.97.0.1", "prefix-length": 24 }] } }] })
}

/// A bridge as most people write it: its port gets all VLANs.
pub(super) fn trunk(port: &str) -> Value {
    json!({ "interfaces": [{ "name": "br1", "type": "linux-bridge", "state": "up",
        "bridge": { "port": [{ "name": port }] } }] })
}

pub(super) fn vxlan() -> Value {
    json!({ "interfaces": [{ "name": "vx7", "type": "vxlan", "state": "up",
        "vxlan": { "base-iface": "eth1", "id": 7, "remote": "10.98.0.8", "destination-port": 4789 } }] })
}

/// More kinds that the machine's own kernel has.
pub(super) fn on_nics() -> Value {
    json!({ "interfaces": [
        { "name": "pair1", "type": "veth", "state": "up", "veth": { "peer": "pair2" },
          "ipv4": { "enabled": true, "dhcp": false, "address": [{ "ip": "10.94.0.1", "prefix-length": 24 }] } },
        { "name": "tap1", "type": "mac-vtap", "state": "up",
          "mac-vtap": { "base-iface": "eth0", "mode": "vepa", "promiscuous": true } },
        { "name": "mv1", "type": "mac-vlan", "state": "up",
        "mac-vlan": { "base-iface": "eth1", "mode": "bridge", "promiscuous": true },
        "ipv4": { "enabled": true, "dhcp": false, "address": [{ "ip": "10.96.0.1", "prefix-length": 24 }] } }] })
}

/// Kinds that only a full kernel has: a VRF with a dummy in it.
pub(super) fn vrf() -> Value {
    json!({ "interfaces": [
        { "name": "dummy1", "type": "dummy", "state": "up", "mtu": 1300,
          "ipv4": { "enabled": true, "dhcp": false, "address": [{ "ip": "10.95.0.1", "prefix-length": 24 }] } },
        { "name": "vrf1", "type": "vrf", "state": "up", "vrf": { "port": ["dummy1"], "route-table-id": 77 } },
    ] })
}

/// All of the above and the example of the bond, each as a document.
pub(super) fn all() -> Result<Vec<String>> {
    let states = [
        json!({ "interfaces": [nic("eth1", "10.98.0.7")] }),
        address_with_routes(),
        plain_bridge(),
        trunk("eth3"),
        vxlan(),
        on_nics(),
        vrf(),
    ];
    let mut documents: Vec<String> = states.iter().map(|state| policy("p", state)).collect();
    documents.push(fs::read_to_string(rig_file("../../examples/vlan/on-bond.yaml"))?);
    Ok(documents)
}
