//! A table for each rule, and properties of every document.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn document(value: Value) -> Document {
    match value {
        Value::Object(map) => map,
        other => panic!("not a document: {other}"),
    }
}

fn show(value: Value) -> Value {
    Value::Object(shown(&document(value)))
}

/// An interface as it is reported; `null` if it is not.
fn show_interface(interface: &Value) -> Value {
    show(json!({ "interfaces": [interface] }))["interfaces"].get(0).cloned().unwrap_or_default()
}

#[test]
fn only_known_sections_are_reported_and_interfaces_always() {
    let table = [
        (json!({}), json!({ "interfaces": [] })),
        (json!({ "interfaces": null, "routes": null, "ovn": null }), json!({ "interfaces": [] })),
        (
            json!({
                "hostname": {}, "route-rules": { "config": [] }, "ovs-db": { "external_ids": {} }, "x-new": 1,
                "interfaces": [], "routes": {}, "dns-resolver": {}, "ovn": {}
            }),
            json!({ "interfaces": [], "routes": {}, "dns-resolver": {}, "ovn": {} }),
        ),
        (
            json!({
                "hostname": { "running": "node1", "config": "node1", "x-new": 1 },
                "route-rules": { "config": [{ "priority": 7, "iif": "b" }, { "priority": 7, "iif": "a" }, { "priority": 6 }] },
                "ovs-db": { "external_ids": { "hostname": "node1" }, "other_config": {} }
            }),
            json!({
                "interfaces": [],
                "hostname": { "running": "node1", "config": "node1" },
                "route-rules": { "config": [{ "priority": 6 }, { "priority": 7, "iif": "a" }, { "priority": 7, "iif": "b" }] },
                "ovs-db": { "external_ids": { "hostname": "node1" }, "other_config": {} }
            }),
        ),
    ];
    for (observed, expected) in table {
        assert_eq!(show(observed.clone()), expected, "{observed}");
    }
}

#[test]
fn all_interfaces_except_those_of_pods_are_reported() {
    for (type_, state, is_shown) in [
        ("veth", "ignore", false),
        ("veth", "up", true),
        ("veth", "down", true),
        ("ethernet", "ignore", true),
        ("vxlan", "ignore", true),
    ] {
        let interface = json!({ "name": "x", "type": type_, "state": state, "mtu": 1500 });
        let expected = if is_shown { interface.clone() } else { Value::Null };
        assert_eq!(show_interface(&interface), expected, "{type_} {state}");
    }
}

#[test]
fn timers_and_lifetimes_are_not_reported() {
    let options = json!({ "gc-timer": 29, "hello-timer": 0, "hash-max": 4096, "stp": { "hello-time": 2 } });
    let table = [
        ("linux-bridge", json!({ "hash-max": 4096, "stp": { "hello-time": 2 } })),
        // Only a Linux bridge has these timers; the same keys elsewhere mean something else.
        ("ovs-bridge", options.clone()),
    ];
    for (type_, expected) in table {
        let bridge = json!({ "name": "br0", "type": type_, "bridge": { "options": options, "port": [] } });
        assert_eq!(show_interface(&bridge)["bridge"]["options"], expected, "{type_}");
    }
    for family in ["ipv4", "ipv6"] {
        let address = json!({ "ip": "192.0.2.1", "prefix-length": 24, "protocol": "kernel_ra",
            "valid-life-time": "86391sec", "preferred-life-time": "14391sec" });
        let interface =
            json!({ "name": "eth0", "type": "ethernet", family: { "address": [address], "dhcp": true } });
        let expected = json!({ "dhcp": true,
            "address": [{ "ip": "192.0.2.1", "prefix-length": 24, "protocol": "kernel_ra" }] });
        assert_eq!(show_interface(&interface)[family], expected);
    }
}

#[test]
fn names_and_types_are_strings() {
    for (observed, expected) in [
        (json!({ "name": 7, "type": true }), json!({ "name": "7", "type": "true" })),
        (json!({ "name": "7", "type": "ethernet" }), json!({ "name": "7", "type": "ethernet" })),
        (json!({ "name": "eth0" }), json!({ "name": "eth0", "type": "" })),
    ] {
        assert_eq!(show_interface(&observed), expected);
    }
}

#[test]
fn a_route_is_reported_if_its_interface_is_or_it_has_none() {
    let interfaces = json!([
        { "name": "eth0", "type": "ethernet", "state": "up" },
        { "name": 7, "type": "ethernet", "state": "up" },
        { "name": "v0", "type": "veth", "state": "ignore" },
        // No route can refer to an interface without a name.
        { "type": "ethernet" }
    ]);
    let table = [
        (
            json!({ "destination": "0.0.0.0/0", "next-hop-interface": "eth0", "metric": 100 }),
            Some(json!({ "destination": "0.0.0.0/0", "next-hop-interface": "eth0", "metric": 100 })),
        ),
        (json!({ "next-hop-interface": 7 }), Some(json!({ "destination": "", "next-hop-interface": "7" }))),
        (json!({ "destination": "10.1.0.5/32", "next-hop-interface": "v0" }), None),
        (json!({ "destination": "10.2.0.0/24", "next-hop-interface": "gone" }), None),
        (
            json!({ "destination": "10.3.0.0/24", "route-type": "blackhole" }),
            Some(json!({ "destination": "10.3.0.0/24", "route-type": "blackhole" })),
        ),
        (json!({ "destination": "10.4.0.0/24" }), None),
        (json!("nonsense"), None),
    ];
    for list in ["running", "config"] {
        for (route, expected) in &table {
            let observed = json!({ "interfaces": interfaces, "routes": { list: [route], "x-new": [] } });
            let expected: Vec<&Value> = expected.iter().collect();
            assert_eq!(show(observed)["routes"], json!({ list: expected }), "{route}");
        }
    }
}

#[test]
fn servers_search_list_and_options_of_the_resolver_are_reported_in_their_order() {
    let observed = json!({ "dns-resolver": {
        "running": {
            "server": ["192.0.2.2", "192.0.2.1"], "search": ["b.test", "a.test"], "options": ["rotate"], "x-new": 1
        },
        "config": { "server": [], "options": [] },
        "x-new": {}
    }});
    let expected = json!({
        "running": { "server": ["192.0.2.2", "192.0.2.1"], "search": ["b.test", "a.test"], "options": ["rotate"] },
        "config": { "server": [] }
    });
    assert_eq!(show(observed)["dns-resolver"], expected);
}

#[test]
fn bridge_mappings_of_ovn_are_reported() {
    for (observed, expected) in [
        (json!({ "bridge-mappings": [] }), json!({})),
        (json!({ "x-new": 1 }), json!({})),
        (
            json!({ "bridge-mappings": [
                { "localnet": "red", "bridge": "br1", "state": "present", "x-new": 1 },
                { "localnet": "blue", "bridge": "br1" }
            ]}),
            json!({ "bridge-mappings": [
                { "localnet": "blue", "bridge": "br1" },
                { "localnet": "red", "bridge": "br1", "state": "present" }
            ]}),
        ),
    ] {
        assert_eq!(show(json!({ "ovn": observed }))["ovn"], expected);
    }
}

#[test]
fn the_order_of_sets_does_not_matter_and_that_of_addresses_does() {
    let one = json!({ "interfaces": [
        { "name": "br0", "type": "ovs-bridge", "bridge": { "port": [{ "name": "b" }, { "name": "a" }] } },
        { "name": "br0", "type": "ovs-interface", "alt-names": [{ "name": "y" }, { "name": "x" }] },
        { "name": "bond0", "type": "bond", "link-aggregation": {
            "port": ["eth2", "eth1"], "ports-config": [{ "name": "eth2" }, { "name": "eth1" }] } },
        { "name": "red", "type": "vrf", "vrf": { "port": ["eth4", "eth3"] } }
    ]});
    let mut other = one.clone();
    other["interfaces"].as_array_mut().unwrap().reverse();
    for pointer in [
        "/interfaces/3/bridge/port",
        "/interfaces/2/alt-names",
        "/interfaces/1/link-aggregation/port",
        "/interfaces/1/link-aggregation/ports-config",
        "/interfaces/0/vrf/port",
    ] {
        other.pointer_mut(pointer).unwrap().as_array_mut().unwrap().reverse();
    }
    assert_eq!(show(one), show(other));

    let addresses = |first: &str, second: &str| json!({ "name": "eth0", "type": "ethernet", "ipv4": { "address": [{ "ip": first }, { "ip": second }] } });
    let (one, other) = (addresses("192.0.2.1", "192.0.2.2"), addresses("192.0.2.2", "192.0.2.1"));
    assert_ne!(show_interface(&one), show_interface(&other));
}

/// Documents with everything that a rule applies to, valid and malformed.
pub(crate) fn observed() -> impl Strategy<Value = Document> {
    let name = prop::sample::select(vec![json!("eth0"), json!("eth1"), json!("v0"), json!(7), json!(null)]);
    let address = (0_u8..4, any::<bool>()).prop_map(|(last, dynamic)| {
        let mut address = json!({ "ip": format!("192.0.2.{last}"), "prefix-length": 24 });
        if dynamic {
            address["valid-life-time"] = json!("10sec");
            address["preferred-life-time"] = json!("5sec");
        }
        address
    });
    let addresses = prop::collection::vec(address, 0..3);
    let type_ = prop::sample::select(vec!["veth", "ethernet", "linux-bridge", "bond", ""]);
    let state = prop::sample::select(vec!["up", "ignore", "down"]);
    let ports = prop::collection::vec(name.clone(), 0..3);
    let interface =
        (name.clone(), type_, state, addresses, ports).prop_map(|(name, type_, state, addresses, ports)| {
            json!({ "name": name, "type": type_, "state": state, "ipv6": { "address": addresses },
            "bridge": { "options": { "gc-timer": 1, "hash-max": 4 }, "port": ports },
            "link-aggregation": { "port": ports } })
        });
    let interface = prop_oneof![20 => interface, 1 => Just(json!("nonsense"))];
    let route = (name, 0_u8..4, prop::option::of(0_i64..3)).prop_map(|(over, third, metric)| {
        json!({ "destination": format!("10.0.{third}.0/24"), "next-hop-interface": over, "metric": metric })
    });
    let (interfaces, routes) = (prop::collection::vec(interface, 0..8), prop::collection::vec(route, 0..8));
    (interfaces, routes, any::<bool>(), any::<bool>()).prop_map(|(interfaces, routes, resolver, ovn)| {
        let mut observed =
            json!({ "interfaces": interfaces, "routes": { "running": routes }, "hostname": {} });
        if resolver {
            observed["dns-resolver"] = json!({ "running": { "server": ["192.0.2.1"], "options": [] } });
        }
        if ovn {
            observed["ovn"] =
                json!({ "bridge-mappings": [{ "localnet": "b", "x": 1 }, { "localnet": "a" }] });
        }
        document(observed)
    })
}

proptest! {
    #[test]
    fn filtering_again_changes_nothing(observed in observed()) {
        let once = shown(&observed);
        prop_assert_eq!(shown(&once), once);
    }

    #[test]
    fn the_order_in_which_the_kernel_lists_routes_does_not_matter(observed in observed()) {
        let mut reversed = observed.clone();
        reversed["routes"]["running"].as_array_mut().unwrap().reverse();
        prop_assert_eq!(shown(&reversed), shown(&observed));
    }

    #[test]
    fn only_what_was_observed_is_reported(observed in observed()) {
        let shown = shown(&observed);
        prop_assert!(interfaces(&shown).count() <= interfaces(&observed).count());
        let text = json!(shown).to_string();
        for never in ["life-time", "options\":[]", "hostname", "nonsense"] {
            prop_assert!(!text.contains(never), "{}", text);
        }
    }
}
