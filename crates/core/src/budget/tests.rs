//! The order of the steps, and that the result always fits.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::shown::{observed, shown};

fn document(value: Value) -> Document {
    match value {
        Value::Object(map) => map,
        other => panic!("not a document: {other}"),
    }
}

fn addresses(count: usize) -> Value {
    (0..count).map(|number| json!({ "ip": format!("2001:db8::{number:x}"), "prefix-length": 64 })).collect()
}

/// A network with something for every step.
fn everything() -> Document {
    let tap = |name: &str, controller: &str| json!({ "name": name, "type": "tun", "state": "ignore", "mtu": 1500, "controller": controller });
    let route = |destination: &str| json!({ "destination": destination, "next-hop-interface": "eth0", "table-id": 254 });
    document(json!({
        "interfaces": [
            tap("t0", "br0"),
            tap("t1", "br0"),
            { "name": "vx0", "type": "vxlan", "state": "ignore", "vxlan": { "id": 7 } },
            { "name": "eth0", "type": "ethernet", "state": "up", "mtu": 1500, "ethtool": { "feature": { "rx-gro": true } },
              "lldp": { "enabled": true, "neighbors": [[]] }, "ipv4": { "enabled": false, "dhcp": false },
              "ipv6": { "enabled": true, "autoconf": true, "address": addresses(20) } },
            { "name": "eth1", "type": "ethernet", "state": "up", "mtu": 1500,
              "ethernet": { "sr-iov": { "total-vfs": 2, "vfs": [{ "id": 0 }, { "id": 1 }] } } },
            { "name": "br0", "type": "linux-bridge", "state": "up", "bridge": { "options": { "hash-max": 4096 },
              "port": [{ "name": "t0", "vlan": { "mode": "access" } }, { "name": "t1", "stp-priority": 32 }] } }
        ],
        "routes": {
            "running": [route("0.0.0.0/0"), route("10.0.0.0/8"), route("10.1.0.0/16")],
            "config": [route("0.0.0.0/0"), route("10.1.0.0/16")]
        },
        "dns-resolver": { "running": { "server": ["192.0.2.53"] } },
        "ovn": { "bridge-mappings": [{ "localnet": "blue", "bridge": "br1" }] }
    }))
}

#[test]
fn a_report_that_fits_is_not_changed() {
    let state = everything();
    let exactly = size(&state);
    assert_eq!(exactly, json!(state).to_string().len());
    assert_eq!(fit(state.clone(), exactly), (state.clone(), vec![]));
    assert_eq!(fit(state.clone(), BUDGET), (state, vec![]));
}

/// With less and less room: the descriptions, in the order of the steps.
#[test]
fn the_least_useful_parts_are_left_out_first_and_described() {
    let (mut state, mut bytes) = (everything(), size(&everything()));
    let mut history = Vec::new();
    while bytes > 2 {
        bytes -= 1;
        let (fitting, omitted) = fit(everything(), bytes);
        if fitting != state {
            history.push(omitted);
            state = fitting;
        }
    }
    let mut last: Vec<String> = Vec::new();
    let mut news = Vec::new();
    for omitted in history {
        news.extend(omitted.iter().filter(|text| !last.contains(text)).cloned());
        last = omitted;
    }
    assert_eq!(
        news,
        [
            "2 unmanaged interfaces of type tun: all but name, type, state and controller",
            "1 unmanaged interface of type vxlan: all but name, type, state and controller",
            "2 running routes other than default ones",
            "the ethtool settings of 1 interface",
            "the LLDP neighbours of 1 interface",
            "the virtual functions of 1 interface",
            "the VLANs of 1 bridge port",
            "1 configured route other than default ones",
            "1 bridge mapping of OVN",
            "1 interface without addresses and ports: all but name, type, state and controller",
            "2 unmanaged interfaces of type tun",
            "1 unmanaged interface of type vxlan",
            "4 further addresses of eth0",
            "2 interfaces: all but name, type, state, controller, ports and addresses",
            "3 interfaces: all but name and type",
            "all routes",
            "the name servers",
            "3 interfaces",
        ]
    );
    // A later step replaces the descriptions of the steps that it covers.
    assert_eq!(
        last,
        [
            "1 bridge mapping of OVN",
            "2 unmanaged interfaces of type tun",
            "1 unmanaged interface of type vxlan",
            "all routes",
            "the name servers",
            "3 interfaces"
        ]
    );
}

#[test]
fn addresses_ports_default_routes_and_name_servers_are_kept_longest() {
    let (mut state, mut bytes) = (everything(), size(&everything()));
    // The smallest report that still has the details of interfaces with addresses.
    while bytes > 2 {
        let (fitting, omitted) = fit(everything(), bytes);
        if omitted.iter().any(|text| text.ends_with("name and type")) {
            break;
        }
        (state, bytes) = (fitting, bytes - 1);
    }
    let expected = json!({
        "interfaces": [
            { "name": "eth0", "type": "ethernet", "state": "up", "ipv4": { "enabled": false },
              "ipv6": { "enabled": true, "address": addresses(16) } },
            { "name": "eth1", "type": "ethernet", "state": "up" },
            { "name": "br0", "type": "linux-bridge", "state": "up",
              "bridge": { "port": [{ "name": "t0" }, { "name": "t1" }] } }
        ],
        "routes": {
            "running": [{ "destination": "0.0.0.0/0", "next-hop-interface": "eth0", "table-id": 254 }],
            "config": [{ "destination": "0.0.0.0/0", "next-hop-interface": "eth0", "table-id": 254 }]
        },
        "dns-resolver": { "running": { "server": ["192.0.2.53"] } }
    });
    assert_eq!(Value::Object(state), expected);
}

#[test]
fn a_node_with_ten_thousand_taps_and_routes_fits_the_default_budget() {
    let taps = (0..10_000).map(|number| {
        json!({ "name": format!("tap{number}"), "type": "tun", "state": "ignore", "mtu": 1500, "mac-address":
            "02:00:00:00:00:01", "ipv4": { "enabled": false }, "ipv6": { "enabled": false } })
    });
    let routes = (0..10_000).map(|number| {
        json!({ "destination": format!("10.{}.{}.0/24", number / 250, number % 250), "next-hop-interface": "eth0",
            "next-hop-address": "192.0.2.1", "table-id": 254, "metric": 100 })
    });
    let eth0 = json!({ "name": "eth0", "type": "ethernet", "state": "up", "mtu": 1500,
        "ipv4": { "enabled": true, "address": [{ "ip": "192.0.2.7", "prefix-length": 24 }] } });
    let interfaces: Vec<Value> = taps.chain([eth0.clone()]).collect();
    let routes: Vec<Value> = routes.collect();
    let state = document(json!({ "interfaces": interfaces, "routes": { "running": routes, "config": [] } }));
    let (fitting, omitted) = fit(state, BUDGET);
    assert!(size(&fitting) <= BUDGET);
    assert_eq!(
        omitted,
        [
            "10000 unmanaged interfaces of type tun: all but name, type, state and controller",
            "10000 running routes other than default ones"
        ]
    );
    assert_eq!(fitting["interfaces"].as_array().unwrap().last(), Some(&eth0));
}

proptest! {
    #[test]
    fn it_always_fits(state in observed(), bytes in 2_usize..4_000) {
        for state in [shown(&state), state] {
            let whole = size(&state);
            let (fitting, omitted) = fit(state.clone(), bytes);
            prop_assert!(size(&fitting) <= bytes);
            prop_assert_eq!(omitted.is_empty() && fitting == state, whole <= bytes, "left out without a description, or without need");
        }
    }

    /// More room never means that more is left out: the steps always have the same order.
    #[test]
    fn with_more_room_no_more_is_left_out(state in observed(), bytes in 2_usize..2_000, more in 0_usize..2_000) {
        let (little, _) = fit(state.clone(), bytes);
        let (much, _) = fit(state, bytes + more);
        prop_assert!(is_part_of(&json!(little), &json!(much)), "{little:?} is not in {much:?}");
    }
}

/// Whether everything in `part` is in `whole`, in the same place except for gaps in lists.
fn is_part_of(part: &Value, whole: &Value) -> bool {
    match (part, whole) {
        (Value::Object(part), Value::Object(whole)) => {
            part.iter().all(|(key, value)| whole.get(key).is_some_and(|other| is_part_of(value, other)))
        }
        (Value::Array(part), Value::Array(whole)) => {
            let mut rest = whole.iter();
            part.iter().all(|entry| rest.any(|other| is_part_of(entry, other)))
        }
        _ => part == whole,
    }
}
