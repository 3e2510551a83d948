//! nmstate can read what the simulated machine shows, and its own verification gives the same results.
//!
//! VRFs are left out: nmstate loses sight of what their ports are allowed when a state is written down and read again.

use knmstate_document::NetworkState;
use knmstate_host::Host;
use nmstate::NetworkState as Judge;
use proptest::prelude::*;
use proptest::test_runner::Config;
use serde_json::{Value, json};

use crate::common::{DEADLINE, apply, machine, state};
use crate::desires::document;

fn judge(document: &Value) -> Judge {
    Judge::new_from_json(&document.to_string())
        .unwrap_or_else(|error| panic!("nmstate cannot read {document}: {error}"))
}

fn shown(state: NetworkState) -> Judge {
    judge(&state.into_value())
}

fn document_without_vrf() -> impl Strategy<Value = Value> {
    document().prop_map(|mut document| {
        if let Some(interfaces) = document["interfaces"].as_array_mut() {
            interfaces.retain(|interface| interface["type"] != "vrf");
        }
        document
    })
}

/// What the document wants to be there. nmstate lists removals as differences even when they are done.
fn positive(document: &Value) -> Value {
    let mut document = document.clone();
    for pointer in ["/interfaces", "/routes/config", "/route-rules/config"] {
        if let Some(list) = document.pointer_mut(pointer).and_then(Value::as_array_mut) {
            list.retain(|entry| entry.get("state").is_none_or(|state| state == "up"));
        }
    }
    // nmstate compares the name in force as well, which the document does not speak of.
    document.as_object_mut().expect("a map").remove("hostname");
    document
}

/// What nmstate does not look at, and finds out only when the kernel refuses it or the verification fails.
const NOTICED_LATER_BY_NMSTATE: [&str; 6] = [
    "there is no interface ",
    "is removed by the same document",
    "is already there as",
    "is not up",
    "it cannot stay",
    "it would be its own base or port",
];

proptest! {
    #![proptest_config(Config { cases: 400, failure_persistence: None, ..Config::default() })]

    #[test]
    fn on_what_can_be_applied_and_on_what_came_out(
        past in prop::collection::vec(document_without_vrf(), 0..4),
        desired in document_without_vrf(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(async {
            let machine = machine();
            for document in &past {
                let _ = apply(&machine.host(), document.clone()).await;
            }
            let before = shown(machine.state());
            let theirs = judge(&desired).validate(Some(&before));
            match machine.host().begin(&state(desired.clone()), DEADLINE).await {
                Ok(_) => {
                    assert_eq!(theirs, Ok(()), "we apply what nmstate refuses: {desired}");
                    let difference = judge(&positive(&desired)).gen_diff(&shown(machine.state())).expect("comparable");
                    let difference = serde_json::to_value(&difference).expect("serialisable");
                    assert_eq!(difference, json!({ "interfaces": [] }), "nmstate misses something of {desired}");
                }
                Err(ours) if theirs.is_ok() => {
                    let ours = ours.to_string();
                    let known = NOTICED_LATER_BY_NMSTATE.iter().any(|reason| ours.contains(reason));
                    assert!(known, "we refuse what nmstate would try: {ours}: {desired}");
                }
                Err(_) => {}
            }
        });
    }
}

#[test]
fn on_every_key_that_a_machine_with_every_kind_of_interface_shows() {
    let everything = json!({
        "hostname": { "config": "node-1.example.org" },
        "dns-resolver": { "config": { "server": ["192.0.2.53"], "search": ["example.org"], "options": ["rotate"] } },
        "route-rules": { "config": [{ "ip-from": "192.0.2.0/24", "route-table": 100, "priority": 1000 }] },
        "routes": { "config": [
            { "destination": "203.0.113.0/24", "next-hop-interface": "eth0", "next-hop-address": "192.0.2.1" },
            { "destination": "198.18.0.0/15", "route-type": "blackhole" }
        ]},
        "interfaces": [
            { "name": "bond0", "type": "bond", "link-aggregation": { "mode": "802.3ad", "port": ["eth1"] } },
            { "name": "br0", "type": "linux-bridge", "bridge": { "port": [{ "name": "eth2", "vlan": { "mode": "access", "tag": 5 } }] } },
            { "name": "vrf0", "type": "vrf", "vrf": { "route-table-id": 100, "port": [] } },
            { "name": "vlan0", "type": "vlan", "vlan": { "base-iface": "bond0", "id": 5 } },
            { "name": "vxlan0", "type": "vxlan", "vxlan": { "base-iface": "eth0", "id": 7, "remote": "192.0.2.9" } },
            { "name": "mv0", "type": "mac-vlan", "mac-vlan": { "base-iface": "eth0", "mode": "bridge" } },
            { "name": "mt0", "type": "mac-vtap", "mac-vtap": { "base-iface": "eth0", "mode": "bridge" } },
            { "name": "iv0", "type": "ipvlan", "ipvlan": { "base-iface": "dummy0", "mode": "l2" } },
            { "name": "dummy0", "type": "dummy", "ipv6": { "enabled": true, "autoconf": true, "dhcp": true } },
            { "name": "veth0", "type": "veth", "veth": { "peer": "veth1" } }
        ]
    });
    let machine = machine();
    machine.change_behind_your_back(&state(everything)).expect("all of that can be");
    let ours = machine.state();
    let theirs = serde_json::to_value(shown(ours.clone())).expect("serialisable");
    let names = |list: &Value| -> Vec<String> {
        let mut names: Vec<_> =
            list.as_array().into_iter().flatten().map(|i| i["name"].to_string()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&theirs["interfaces"]), names(&ours.sections()["interfaces"]));
    for section in ["hostname", "dns-resolver", "route-rules"] {
        assert_eq!(theirs[section], ours.sections()[section]);
    }
    assert_eq!(theirs["routes"]["config"], ours.sections()["routes"]["config"]);
}
