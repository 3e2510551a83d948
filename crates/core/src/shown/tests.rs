//! Each rule by a table, and what holds for every document.

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

/// What an interface looks like when it is shown; `null` if it is not.
fn show_interface(interface: &Value) -> Value {
    show(json!({ "interfaces": [interface] }))["interfaces"].get(0).cloned().unwrap_or_default()
}

#[test]
fn only_known_sections_are_shown_and_interfaces_always() {
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
fn interfaces_of_pods_are_not_shown_and_all_others_are() {
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
fn what_counts_down_by_itself_is_not_shown() {
    let options = json!({ "gc-timer": 29, "hello-timer": 0, "hash-max": 4096, "stp": { "hello-time": 2 } });
    let table = [
        ("linux-bridge", json!({ "hash-max": 4096, "stp": { "hello-time": 2 } })),
        // Only a Linux bridge has those timers; whatever is called so elsewhere is something else.
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
fn names_and_types_are_texts() {
    for (observed, expected) in [
        (json!({ "name": 7, "type": true }), json!({ "name": "7", "type": "true" })),
        (json!({ "name": "7", "type": "ethernet" }), json!({ "name": "7", "type": "ethernet" })),
        (json!({ "name": "eth0" }), json!({ "name": "eth0", "type": "" })),
    ] {
        assert_eq!(show_interface(&observed), expected);
    }
}

#[test]
fn a_route_is_shown_if_its_interface_is_or_it_leads_nowhere() {
    let interfaces = json!([
        { "name": "eth0", "type": "ethernet", "state": "up" },
        { "name": 7, "type": "ethernet", "state": "up" },
        { "name": "v0", "type": "veth", "state": "ignore" },
        // Nothing can be reached over what has no name.
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
fn of_name_servers_the_servers_the_search_list_and_options_are_shown_in_their_order() {
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
fn of_ovn_the_mappings_are_shown_and_nothing_if_there_are_none() {
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
fn the_order_of_what_is_a_set_does_not_matter_and_that_of_addresses_does() {
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

/// Documents with everything that a rule is about, in its right and in odd shapes.
pub(crate) fn observed() -> impl Strategy<Value = Document> {
    let name = prop::sample::select(vec![json!("eth0"), json!("eth1"), json!("v0"), json!(7), json!(null)]);
    let address = (0_u8..4, any::<bool>()).prop_map(|(last, lent)| {
        let mut address = json!({ "ip": format!("192.0.2.{last}"), "prefix-length": 24 });
        if lent {
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
    fn what_is_shown_is_shown_again_as_it_is(observed in observed()) {
        let once = shown(&observed);
        prop_assert_eq!(shown(&once), once);
    }

    #[test]
    fn the_order_in_which_the_kernel_lists_routes_does_not_matter(observed in observed()) {
        let mut turned = observed.clone();
        turned["routes"]["running"].as_array_mut().unwrap().reverse();
        prop_assert_eq!(shown(&turned), shown(&observed));
    }

    #[test]
    fn nothing_is_shown_that_was_not_observed(observed in observed()) {
        let shown = shown(&observed);
        prop_assert!(interfaces(&shown).count() <= interfaces(&observed).count());
        let text = json!(shown).to_string();
        for never in ["life-time", "options\":[]", "hostname", "nonsense"] {
            prop_assert!(!text.contains(never), "{}", text);
        }
    }
}
