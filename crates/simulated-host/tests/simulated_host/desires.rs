//! Documents of all sorts, of which a good part can be applied.
//!
//! Few names and few addresses, so that documents meet each other: the same bond with other ports, a VLAN on what the
//! next document removes, a route over what the last one made.

use proptest::prelude::*;
use proptest::sample::{Index, select, subsequence};
use serde_json::{Map, Value, json};

/// A document, and with it the sections it is made of.
pub fn document() -> impl Strategy<Value = Value> {
    (interfaces(), routes(), rules(), resolver(), hostname()).prop_map(
        |(interfaces, routes, rules, resolver, hostname)| {
            let mut document = Map::new();
            document.insert("interfaces".to_owned(), Value::Array(interfaces));
            for (name, section) in [
                ("routes", routes),
                ("route-rules", rules),
                ("dns-resolver", resolver),
                ("hostname", hostname),
            ] {
                document.extend(section.map(|section| (name.to_owned(), section)));
            }
            Value::Object(document)
        },
    )
}

fn interfaces() -> impl Strategy<Value = Vec<Value>> {
    let any_of = prop_oneof![
        6 => nic(),
        3 => made("dummy0", "dummy", Just(Map::new())),
        2 => made("dummy1", "dummy", Just(Map::new())),
        3 => made("bond0", "bond", bond()),
        3 => made("br0", "linux-bridge", bridge()),
        1 => made("br1", "linux-bridge", bridge()),
        3 => made("vlan0", "vlan", vlan()),
        2 => made("vlan1", "vlan", vlan()),
        1 => made("vxlan0", "vxlan", vxlan()),
        1 => made("vrf0", "vrf", vrf()),
        1 => made("veth0", "veth", Just(section("veth", json!({ "peer": "veth1" })))),
    ];
    // One entry per name: what comes later would only be refused for being listed twice.
    prop::collection::vec(any_of, 0..5).prop_map(|list| {
        let mut seen = std::collections::BTreeSet::new();
        list.into_iter().filter(|interface| seen.insert(interface["name"].to_string())).collect()
    })
}

fn nic() -> impl Strategy<Value = Value> {
    let states = prop_oneof![8 => Just("up"), 1 => Just("down"), 1 => Just("absent"), 1 => Just("ignore")];
    (select(vec!["eth0", "eth1", "eth2"]), states, common())
        .prop_map(|(name, state, keys)| interface(name, "ethernet", state, [keys]))
}

fn made(
    name: &'static str,
    kind: &'static str,
    own: impl Strategy<Value = Map<String, Value>>,
) -> impl Strategy<Value = Value> {
    let states = prop_oneof![7 => Just("up"), 1 => Just("down"), 2 => Just("absent")];
    (states, common(), own).prop_map(move |(state, keys, own)| interface(name, kind, state, [keys, own]))
}

fn interface<const N: usize>(name: &str, kind: &str, state: &str, keys: [Map<String, Value>; N]) -> Value {
    let mut interface = json!({ "name": name, "type": kind, "state": state });
    if let Some(map) = interface.as_object_mut().filter(|_| state == "up") {
        map.extend(keys.into_iter().flatten());
    }
    interface
}

fn common() -> impl Strategy<Value = Map<String, Value>> {
    let mtu = prop::option::of(select(vec![1280, 1500, 9000]));
    (mtu, ip("ipv4", "198.51.100", 24), ip("ipv6", "2001:db8:1:", 64)).prop_map(|(mtu, ipv4, ipv6)| {
        let mut keys = Map::new();
        keys.extend(mtu.map(|mtu| ("mtu".to_owned(), json!(mtu))));
        keys.extend(ipv4.map(|ip| ("ipv4".to_owned(), ip)));
        keys.extend(ipv6.map(|ip| ("ipv6".to_owned(), ip)));
        keys
    })
}

fn ip(key: &'static str, block: &'static str, prefix: u8) -> impl Strategy<Value = Option<Value>> {
    let separator = if key == "ipv4" { "." } else { ":" };
    let addresses = subsequence(vec![1, 2, 3], 0..=3).prop_map(move |hosts| {
        let address = |host| json!({ "ip": format!("{block}{separator}{host}"), "prefix-length": prefix });
        Value::Array(hosts.into_iter().map(address).collect())
    });
    prop_oneof![
        4 => Just(None),
        1 => Just(Some(json!({ "enabled": false }))),
        1 => Just(Some(json!({ "enabled": true, "dhcp": true }))),
        3 => addresses.prop_map(|list| Some(json!({ "enabled": true, "dhcp": false, "address": list }))),
    ]
}

fn section(name: &str, value: Value) -> Map<String, Value> {
    Map::from_iter([(name.to_owned(), value)])
}

const PORTS: [&str; 3] = ["eth1", "eth2", "dummy0"];

fn bond() -> impl Strategy<Value = Map<String, Value>> {
    let modes = select(vec!["active-backup", "balance-rr", "802.3ad"]);
    (modes, prop::option::of(subsequence(PORTS.to_vec(), 0..=2))).prop_map(|(mode, ports)| {
        let mut bond = json!({ "mode": mode });
        if let Some(ports) = ports {
            bond["port"] = json!(ports);
        }
        section("link-aggregation", bond)
    })
}

fn bridge() -> impl Strategy<Value = Map<String, Value>> {
    let ports = subsequence(["eth1", "eth2", "dummy1", "vlan0"].to_vec(), 0..=2);
    prop::option::of(ports).prop_map(|ports| match ports {
        None => Map::new(),
        Some(ports) => {
            let ports: Vec<_> = ports.into_iter().map(|name| json!({ "name": name })).collect();
            section("bridge", json!({ "port": ports }))
        }
    })
}

fn vlan() -> impl Strategy<Value = Map<String, Value>> {
    (select(vec!["eth0", "eth1", "bond0", "dummy0"]), select(vec![5, 6, 7]))
        .prop_map(|(base, id)| section("vlan", json!({ "base-iface": base, "id": id })))
}

fn vxlan() -> impl Strategy<Value = Map<String, Value>> {
    (select(vec!["eth0", "bond0"]), 1..4_u32).prop_map(|(base, id)| {
        section("vxlan", json!({ "base-iface": base, "id": id, "remote": "192.0.2.77" }))
    })
}

fn vrf() -> impl Strategy<Value = Map<String, Value>> {
    subsequence(PORTS.to_vec(), 0..=1)
        .prop_map(|ports| section("vrf", json!({ "route-table-id": 100, "port": ports })))
}

fn routes() -> impl Strategy<Value = Option<Value>> {
    let destination = select(vec!["0.0.0.0/0", "203.0.113.0/24", "2001:db8:f::/48"]);
    let over = select(vec!["eth0", "eth0", "eth1", "bond0", "vlan0"]);
    let add = (destination.clone(), over.clone(), any::<Index>(), select(vec![100, 300])).prop_map(
        |(destination, over, gateway, metric)| {
            let gateways = if destination.contains(':') {
                ["2001:db8::1", "2001:db8::2"]
            } else {
                ["192.0.2.1", "192.0.2.2"]
            };
            json!({
                "destination": destination, "next-hop-interface": over,
                "next-hop-address": gateway.get(&gateways), "metric": metric, "table-id": 254
            })
        },
    );
    let remove = (prop::option::of(destination), prop::option::of(over)).prop_map(|(destination, over)| {
        let mut pattern = json!({ "state": "absent" });
        if let Some(destination) = destination {
            pattern["destination"] = json!(destination);
        }
        if let Some(over) = over {
            pattern["next-hop-interface"] = json!(over);
        }
        pattern
    });
    prop::option::weighted(0.4, prop::collection::vec(prop_oneof![2 => add, 1 => remove], 1..3))
        .prop_map(|list| list.map(|list| json!({ "config": list })))
}

fn rules() -> impl Strategy<Value = Option<Value>> {
    let from = select(vec!["198.51.100.0/24", "2001:db8:1::/64"]);
    let rule = (from, any::<bool>(), select(vec![100, 200])).prop_map(|(from, absent, table)| {
        if absent {
            json!({ "state": "absent", "ip-from": from })
        } else {
            json!({ "ip-from": from, "route-table": table })
        }
    });
    prop::option::weighted(0.2, prop::collection::vec(rule, 1..3))
        .prop_map(|list| list.map(|list| json!({ "config": list })))
}

fn resolver() -> impl Strategy<Value = Option<Value>> {
    let servers = prop::option::of(subsequence(vec!["192.0.2.53", "2001:db8::53"], 0..=2));
    let search = prop::option::of(subsequence(vec!["example.org", "example.net"], 0..=2));
    let config = (servers, search).prop_map(|(servers, search)| {
        let mut config = Map::new();
        config.extend(servers.map(|servers| ("server".to_owned(), json!(servers))));
        config.extend(search.map(|search| ("search".to_owned(), json!(search))));
        json!({ "config": config })
    });
    prop::option::weighted(0.2, config)
}

fn hostname() -> impl Strategy<Value = Option<Value>> {
    prop::option::weighted(0.1, select(vec!["a", "b.example"]).prop_map(|name| json!({ "config": name })))
}
