//! What most tests here start from.

use knmstate_document::NetworkState;
use std::time::Duration;

use knmstate_host::{Changes, Events, Host, HostError};
use knmstate_simulated_host::{SimulatedHost, SimulatedMachine};
use serde_json::{Value, json};
use tokio::time::timeout;

/// How long changes stay open where the test is not about that.
pub const DEADLINE: Duration = Duration::from_mins(1);

pub fn state(document: Value) -> NetworkState {
    NetworkState::parse(document).expect("a document of the right shape")
}

/// Three NICs; the first has an address, a default route and a resolver, as a node in a cluster has.
pub fn machine() -> SimulatedMachine {
    SimulatedMachine::builder("node-1")
        .nic("eth0")
        .nic("eth1")
        .nic("eth2")
        .initially(state(json!({
            "interfaces": [{
                "name": "eth0",
                "ipv4": { "enabled": true, "address": [{ "ip": "192.0.2.10", "prefix-length": 24 }] },
                "ipv6": { "enabled": true, "address": [{ "ip": "2001:db8::10", "prefix-length": 64 }] }
            }],
            "routes": { "config": [
                { "destination": "0.0.0.0/0", "next-hop-interface": "eth0", "next-hop-address": "192.0.2.1" }
            ]},
            "dns-resolver": { "config": { "server": ["192.0.2.53"], "search": ["example.org"] } }
        })))
        .build()
        .expect("the machine boots")
}

/// The next changes; a machine that stays silent for a day fails the test instead of hanging it.
pub async fn next(events: &mut Events) -> Option<Changes> {
    timeout(Duration::from_hours(24), events.next()).await.expect("nothing happens")
}

pub async fn apply(host: &SimulatedHost, document: Value) -> Result<(), HostError> {
    let checkpoint = host.begin(&state(document), DEADLINE).await?;
    host.commit(&checkpoint).await
}

/// The machine after each of `documents` was applied in turn.
pub async fn after(documents: &[Value]) -> SimulatedMachine {
    let machine = machine();
    for document in documents {
        apply(&machine.host(), document.clone()).await.unwrap_or_else(|error| panic!("{document}: {error}"));
    }
    machine
}

/// The value at a JSON pointer below the interface.
pub fn at(machine: &SimulatedMachine, interface: &str, pointer: &str) -> Value {
    let state = machine.state();
    let interface = state.interface(interface).unwrap_or_else(|| panic!("{interface} is not there"));
    Value::Object(interface.clone()).pointer(pointer).cloned().unwrap_or(Value::Null)
}

pub fn names(machine: &SimulatedMachine) -> Vec<String> {
    let state = machine.state();
    state.interfaces().map(|interface| interface["name"].as_str().unwrap_or_default().to_owned()).collect()
}

/// A bond over two NICs.
pub fn bond() -> Value {
    json!({ "interfaces": [{
        "name": "bond0", "type": "bond", "state": "up",
        "link-aggregation": { "mode": "active-backup", "options": { "miimon": 100 }, "port": ["eth1", "eth2"] }
    }]})
}

/// A VLAN with an address.
pub fn vlan_on(base: &str, name: &str, id: u16) -> Value {
    json!({ "interfaces": [{
        "name": name, "type": "vlan", "state": "up", "vlan": { "base-iface": base, "id": id },
        "ipv4": { "enabled": true, "address": [{ "ip": "198.51.100.7", "prefix-length": 24 }] }
    }]})
}
