use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn state(document: &Value) -> State {
    serde_json::from_value(document.clone()).expect("a state")
}

fn conflict_of(here: &Value, there: &Value) -> Option<String> {
    conflict(&state(here), &state(there)).map(|conflict| conflict.to_string())
}

fn interface(interface: Value) -> Value {
    Document::from_iter([("interfaces".to_owned(), Value::Array(vec![interface]))]).into()
}

fn route(route: Value) -> Value {
    section("routes", route)
}

fn rule(rule: Value) -> Value {
    section("route-rules", rule)
}

fn section(name: &str, entry: Value) -> Value {
    let config = Document::from_iter([("config".to_owned(), Value::Array(vec![entry]))]);
    Document::from_iter([(name.to_owned(), config.into())]).into()
}

fn agree(table: impl IntoIterator<Item = (Value, Value)>) {
    for (here, there) in table {
        assert_eq!(conflict_of(&here, &there), None, "{here} and {there}");
        assert_eq!(conflict_of(&there, &here), None, "{there} and {here}");
    }
}

fn differ(table: impl IntoIterator<Item = (Value, Value, &'static str)>) {
    for (here, there, expected) in table {
        assert_eq!(conflict_of(&here, &there).as_deref(), Some(expected), "{here} and {there}");
        assert!(conflict_of(&there, &here).is_some(), "{there} and {here}");
        assert!(
            Subjects::of(&state(&here).0).meet(&Subjects::of(&state(&there).0)),
            "{here} and {there} meet"
        );
        assert!(could_conflict(&state(&here), &state(&there)), "{here} and {there} could conflict");
    }
}

#[test]
fn what_adds_up_does_not_conflict() {
    agree([
        (json!({}), interface(json!({ "name": "eth1" }))),
        (
            interface(json!({ "name": "eth1", "mtu": 9000 })),
            interface(json!({ "name": "eth2", "mtu": 1500 })),
        ),
        (
            interface(json!({ "name": "eth1", "mtu": 9000 })),
            interface(json!({ "name": "eth1", "description": "d" })),
        ),
        (
            interface(json!({ "name": "eth1", "mtu": 9000 })),
            interface(json!({ "name": "eth1", "mtu": "9000" })),
        ),
        (
            interface(json!({ "name": "eth1", "mtu": null })),
            interface(json!({ "name": "eth1", "mtu": 1500 })),
        ),
        (
            interface(json!({ "name": "eth1", "ipv4": { "enabled": true } })),
            interface(json!({ "name": "eth1", "ipv4": { "dhcp": true, "enabled": true } })),
        ),
        (
            interface(json!({ "name": "e", "state": "absent" })),
            interface(json!({ "name": "e", "state": "absent", "type": "bond" })),
        ),
        // An OVS bridge and an interface of the kernel may share a name.
        (
            interface(json!({ "name": "br0", "type": "ovs-bridge", "state": "up" })),
            interface(json!({ "name": "br0", "type": "ovs-interface", "mtu": 1400 })),
        ),
        // Ports have no order, and addresses are compared as such.
        (
            interface(json!({ "name": "b", "link-aggregation": { "port": ["eth1", "eth2"] } })),
            interface(json!({ "name": "b", "link-aggregation": { "port": ["eth2", "eth1"] } })),
        ),
        (
            interface(
                json!({ "name": "e", "ipv6": { "address": [{ "ip": "FD00::1", "prefix-length": 64 }] } }),
            ),
            interface(
                json!({ "name": "e", "ipv6": { "address": [{ "prefix-length": "64", "ip": "fd00:0::1" }] } }),
            ),
        ),
        // What a capture stands for is known on the node only.
        (
            interface(json!({ "name": "e", "mtu": "{{ capture.a.b }}" })),
            interface(json!({ "name": "e", "mtu": 1500 })),
        ),
        (
            interface(json!({ "name": "{{ capture.a.b }}", "mtu": 1 })),
            interface(json!({ "name": "{{ capture.a.b }}", "mtu": 2 })),
        ),
        (
            interface(json!({ "name": "e", "ipv4": { "address": [{ "ip": "{{ capture.a.b }}" }] } })),
            interface(json!({ "name": "e", "ipv4": { "address": [{ "ip": "10.0.0.1" }] } })),
        ),
        // Merged entry by entry.
        (
            interface(json!({ "name": "e", "alt-names": [{ "name": "a" }] })),
            interface(json!({ "name": "e", "alt-names": [{ "name": "b" }] })),
        ),
        (
            interface(
                json!({ "name": "e", "ethernet": { "sr-iov": { "vfs": [{ "id": 0, "trust": true }] } } }),
            ),
            interface(
                json!({ "name": "e", "ethernet": { "sr-iov": { "vfs": [{ "id": 1, "trust": false }] } } }),
            ),
        ),
        (
            json!({ "ovn": { "bridge-mappings": [{ "localnet": "a", "bridge": "x" }] } }),
            json!({ "ovn": { "bridge-mappings": [{ "localnet": "b", "bridge": "y" }] } }),
        ),
        (
            json!({ "dns-resolver": { "config": { "server": ["10.0.0.1"] } } }),
            json!({ "dns-resolver": { "config": { "search": ["example.com"] } } }),
        ),
    ]);
}

#[test]
fn what_is_no_wish_does_not_conflict() {
    agree([
        (json!({ "description": "a" }), json!({ "description": "b" })),
        (
            json!({ "hostname": { "running": "a", "config": "a" } }),
            json!({ "hostname": { "running": "b", "config": "a" } }),
        ),
        (
            json!({ "dns-resolver": { "running": { "server": ["10.0.0.1"] } } }),
            json!({ "dns-resolver": { "running": { "server": ["10.0.0.2"] } } }),
        ),
        (
            json!({ "routes": { "running": [{ "destination": "10.0.0.0/8", "next-hop-address": "10.0.0.1" }] } }),
            route(json!({ "destination": "10.0.0.0/8", "next-hop-address": "10.0.0.2" })),
        ),
    ]);
    assert!(Subjects::of(&state(&json!({ "description": "{{ node.name }}" })).0).are_named());
}

#[test]
fn routes_and_rules_add_up() {
    agree([
        (
            route(
                json!({ "destination": "10.0.0.0/8", "next-hop-interface": "eth1", "next-hop-address": "10.1.0.1" }),
            ),
            route(
                json!({ "destination": "10.0.0.0/8", "next-hop-interface": "eth2", "next-hop-address": "10.2.0.1" }),
            ),
        ),
        (
            route(
                json!({ "destination": "10.0.0.0/8", "next-hop-interface": "e", "next-hop-address": "10.1.0.1", "metric": 100 }),
            ),
            route(
                json!({ "destination": "10.0.0.0/8", "next-hop-interface": "e", "next-hop-address": "10.1.0.2", "metric": 200 }),
            ),
        ),
        (
            route(
                json!({ "destination": "10.0.0.0/8", "next-hop-interface": "e", "next-hop-address": "10.1.0.1", "table-id": 7 }),
            ),
            route(
                json!({ "destination": "10.0.0.0/8", "next-hop-interface": "e", "next-hop-address": "10.1.0.2" }),
            ),
        ),
        (
            route(json!({ "state": "absent", "next-hop-interface": "eth1" })),
            route(json!({ "destination": "10.0.0.0/8", "next-hop-interface": "eth2" })),
        ),
        (
            rule(json!({ "ip-from": "10.0.0.0/8", "route-table": 1 })),
            rule(json!({ "ip-from": "10.1.0.0/16", "route-table": 2 })),
        ),
        (
            rule(json!({ "ip-from": "10.0.0.0/8", "route-table": 1, "priority": 1 })),
            rule(json!({ "ip-from": "10.0.0.0/8", "route-table": 2, "priority": 2 })),
        ),
    ]);
}

#[test]
fn what_is_said_differently_is_named_with_both_values() {
    let ports = |name: &str, ports: &[&str]| {
        interface(json!({ "name": name, "link-aggregation": { "port": ports } }))
    };
    differ([
        (
            interface(json!({ "name": "eth1", "mtu": 9000 })),
            interface(json!({ "name": "eth1", "mtu": 1500 })),
            "interfaces[eth1].mtu is 9000 here and 1500 there",
        ),
        (
            interface(json!({ "name": "eth1", "state": "absent" })),
            interface(json!({ "name": "eth1", "mtu": 1500 })),
            "interfaces[eth1].state is absent here and configured there",
        ),
        (
            interface(json!({ "name": "eth1", "type": "bond" })),
            interface(json!({ "name": "eth1", "type": "linux-bridge" })),
            "interfaces[eth1].type is bond here and linux-bridge there",
        ),
        (
            ports("b", &["eth1"]),
            ports("b", &["eth1", "eth2"]),
            "interfaces[b].link-aggregation.port is [\"eth1\"] here and [\"eth1\",\"eth2\"] there",
        ),
        (
            ports("b", &["eth1"]),
            interface(json!({ "name": "br1", "bridge": { "port": [{ "name": "eth1" }] } })),
            "interfaces[eth1].controller is b here and br1 there",
        ),
        (
            interface(json!({ "name": "eth1", "controller": "" })),
            ports("b", &["eth1"]),
            "interfaces[eth1].controller is none here and b there",
        ),
        (
            interface(json!({ "name": "w", "wireguard": { "private-key": "p1" } })),
            interface(json!({ "name": "w", "wireguard": { "private-key": "p2" } })),
            "interfaces[w].wireguard.private-key is not the same here and there",
        ),
        (
            interface(json!({ "name": "w", "wireguard": { "peer": [{ "preshared-key": "p1" }] } })),
            interface(json!({ "name": "w", "wireguard": { "peer": [{ "preshared-key": "p2" }] } })),
            "interfaces[w].wireguard.peer is not the same here and there",
        ),
        (
            interface(
                json!({ "name": "e", "ethernet": { "sr-iov": { "vfs": [{ "id": 0, "trust": true }] } } }),
            ),
            interface(
                json!({ "name": "e", "ethernet": { "sr-iov": { "vfs": [{ "id": 0, "trust": false }] } } }),
            ),
            "interfaces[e].ethernet.sr-iov.vfs[0].trust is true here and false there",
        ),
        (
            json!({ "dns-resolver": { "config": { "server": ["10.0.0.1", "10.0.0.2"] } } }),
            json!({ "dns-resolver": { "config": { "server": ["10.0.0.2", "10.0.0.1"] } } }),
            "dns-resolver.config.server is [\"10.0.0.1\",\"10.0.0.2\"] here and [\"10.0.0.2\",\"10.0.0.1\"] there",
        ),
        (
            json!({ "dns-resolver": { "config": {} } }),
            json!({ "dns-resolver": { "config": { "server": ["10.0.0.1"] } } }),
            "dns-resolver.config is {} here and {\"server\":[\"10.0.0.1\"]} there",
        ),
        (
            json!({ "hostname": { "config": "a" } }),
            json!({ "hostname": { "config": "b" } }),
            "hostname.config is a here and b there",
        ),
        (
            json!({ "ovn": { "bridge-mappings": [{ "localnet": "a", "bridge": "x" }] } }),
            json!({ "ovn": { "bridge-mappings": [{ "localnet": "a", "bridge": "y" }] } }),
            "ovn.bridge-mappings[a].bridge is x here and y there",
        ),
    ]);
}

#[test]
fn the_same_route_or_rule_said_differently_is_named() {
    let via = |address: &str| json!({ "destination": "0.0.0.0/0", "next-hop-interface": "eth1", "next-hop-address": address });
    differ([
        (
            route(via("10.0.0.1")),
            route(via("10.0.0.2")),
            "routes.config[0.0.0.0/0 via eth1].next-hop-address is 10.0.0.1 here and 10.0.0.2 there",
        ),
        (
            route(json!({ "state": "absent", "next-hop-interface": "eth1" })),
            route(via("10.0.0.2")),
            "routes.config[0.0.0.0/0 via eth1] is absent here and wanted there",
        ),
        (
            rule(json!({ "ip-from": "10.0.0.0/8", "route-table": 1, "priority": 1 })),
            rule(json!({ "ip-from": "10.0.0.0/8", "route-table": 2 })),
            "route-rules.config[ip-from 10.0.0.0/8].route-table is 1 here and 2 there",
        ),
    ]);
}

#[test]
fn an_interface_has_one_controller_in_every_spelling() {
    let bond = interface(json!({ "name": "b", "link-aggregation": { "port": ["eth1"] } }));
    let mut missed = Vec::new();
    for controller in [
        json!({ "name": "h", "type": "hsr", "hsr": { "port1": "eth1", "port2": "eth2", "protocol": "prp" } }),
        json!({ "name": "h", "type": "hsr", "hsr": { "port1": "eth2", "port2": "eth1", "protocol": "hsr" } }),
        json!({ "name": "h", "type": "bond", "bond": { "port": ["eth1"] } }),
        json!({ "name": "h", "type": "bond", "bond": { "ports": ["eth1"] } }),
        json!({ "name": "h", "link-aggregation": { "ports-config": [{ "name": "eth1", "priority": 7 }] } }),
        json!({ "name": "h", "bridge": { "ports": [{ "name": "eth1" }] } }),
        json!({ "name": "h", "bridge": { "port": [{ "name": "x", "bond": { "port": [{ "name": "eth1" }] } }] } }),
        json!({ "name": "h", "vrf": { "ports": ["eth1"] } }),
    ] {
        let found = conflict_of(&interface(controller.clone()), &bond);
        if found.as_deref() != Some("interfaces[eth1].controller is h here and b there") {
            missed.push(format!("{controller}: {found:?}"));
        }
    }
    assert!(missed.is_empty(), "not seen:\n{}", missed.join("\n"));
}

#[test]
fn the_other_name_of_a_key_is_the_same_key() {
    differ([
        (
            interface(json!({ "name": "b", "type": "bond", "bond": { "mode": "active-backup" } })),
            interface(json!({ "name": "b", "link-aggregation": { "mode": "802.3ad" } })),
            "interfaces[b].link-aggregation.mode is active-backup here and 802.3ad there",
        ),
        (
            interface(json!({ "name": "b", "bridge": { "ports": [{ "name": "eth1" }] } })),
            interface(json!({ "name": "b", "bridge": { "port": [{ "name": "eth2" }] } })),
            "interfaces[b].bridge.port is [{\"name\":\"eth1\"}] here and [{\"name\":\"eth2\"}] there",
        ),
    ]);
}

#[test]
fn a_route_is_the_same_whatever_its_metric() {
    let via = |destination: &str, address: &str, metric: u32| {
        route(
            json!({ "destination": destination, "next-hop-interface": "e", "next-hop-address": address, "metric": metric }),
        )
    };
    differ([
        (
            via("10.0.0.0/8", "10.1.0.1", 100),
            via("10.0.0.0/8", "10.1.0.1", 200),
            "routes.config[10.0.0.0/8 via e].metric is 100 here and 200 there",
        ),
        (
            via("fd00::/16", "fd01::1", 100),
            via("FD00:0::/16", "FD01::1", 200),
            "routes.config[fd00::/16 via e].metric is 100 here and 200 there",
        ),
        // The kernel has one place for each metric of a destination.
        (
            via("10.0.0.1/8", "10.1.0.1", 100),
            via("10.0.0.0/8", "10.1.0.2", 100),
            "routes.config[10.0.0.1/8 via e].next-hop-address is 10.1.0.1 here and 10.1.0.2 there",
        ),
    ]);
    agree([(via("10.0.0.0/8", "10.1.0.1", 100), via("10.0.0.0/8", "10.1.0.2", 200))]);
}

#[test]
fn a_long_value_is_cut() {
    let described = |text: &str| interface(json!({ "name": "eth1", "description": text }));
    let expected = format!("interfaces[eth1].description is {}… here and d there", "ä".repeat(60));
    assert_eq!(conflict_of(&described(&"ä".repeat(100)), &described("d")), Some(expected));
}

fn documents() -> impl Strategy<Value = Value> {
    let interface = (0..4_u8, prop::option::of(0..3_u16), prop::option::of(0..2_u8), any::<bool>()).prop_map(
        |(name, mtu, port, absent)| {
            let mut interface = json!({ "name": format!("eth{name}") });
            if let Some(mtu) = mtu {
                interface["mtu"] = json!(mtu);
            }
            if let Some(port) = port {
                interface["link-aggregation"] = json!({ "port": [format!("eth{port}")] });
            }
            if absent {
                interface["state"] = json!("absent");
            }
            interface
        },
    );
    let route = (0..3_u8, 0..2_u8, 0..2_u8, any::<bool>()).prop_map(|(to, via, gateway, absent)| {
        let mut route = json!({
            "destination": format!("10.{to}.0.0/16"),
            "next-hop-interface": format!("eth{via}"),
            "next-hop-address": format!("10.0.0.{gateway}"),
        });
        if absent {
            route["state"] = json!("absent");
        }
        route
    });
    (prop::collection::vec(interface, 0..3), prop::collection::vec(route, 0..3))
        .prop_map(|(interfaces, routes)| json!({ "interfaces": interfaces, "routes": { "config": routes } }))
}

/// Each route is compared with those of its destination only; with all of the others, this would take minutes.
#[test]
fn many_routes_are_compared() {
    let routes = |metric: u32, last: &str| {
        let mut routes: Vec<Value> = (0..20_000_u32)
            .map(|index| {
                let [_, a, b, c] = index.to_be_bytes();
                json!({ "destination": format!("10.{a}.{b}.{c}/32"), "next-hop-interface": "eth1", "metric": 7 })
            })
            .collect();
        routes.push(json!({ "destination": last, "next-hop-interface": "eth1", "metric": metric }));
        json!({ "routes": { "config": routes } })
    };
    let conflict = conflict_of(&routes(1, "192.0.2.0/24"), &routes(2, "192.0.2.7/24"));
    assert_eq!(
        conflict.as_deref(),
        Some("routes.config[192.0.2.0/24 via eth1].metric is 1 here and 2 there"),
        "however the network is written"
    );
    assert_eq!(conflict_of(&routes(1, "192.0.2.0/24"), &routes(2, "198.51.100.0/24")), None);
}

proptest! {
    /// The order does not matter; and only documents with a subject in common conflict.
    #[test]
    fn conflicts_are_mutual_and_need_a_subject_in_common(here in documents(), there in documents()) {
        let found = conflict_of(&here, &there);
        prop_assert_eq!(found.is_some(), conflict_of(&there, &here).is_some());
        if found.is_some() {
            prop_assert!(Subjects::of(&state(&here).0).meet(&Subjects::of(&state(&there).0)));
        }
    }

    /// Documents that could not conflict before their references are filled in do not conflict afterwards.
    #[test]
    fn what_could_not_conflict_does_not(here in documents(), there in documents(), open in any::<bool>()) {
        let template = |document: &Value| {
            let text = document.to_string().replace("\"mtu\":1", "\"mtu\":\"{{ values.mtu }}\"");
            let text = if open { text.replace("10.0.0.1", "{{ values.gateway }}") } else { text };
            serde_json::from_str::<State>(&text).unwrap()
        };
        if conflict_of(&here, &there).is_some() {
            prop_assert!(could_conflict(&template(&here), &template(&there)));
        }
    }
}
