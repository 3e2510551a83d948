//! What a partial document makes of routes, rules and names.

use knmstate_document::RouteList;
use knmstate_simulated_host::SimulatedMachine;
use serde_json::{Value, json};

use crate::common::{after, machine, vlan_on};

fn routes(machine: &SimulatedMachine, list: RouteList) -> Vec<String> {
    let text = |route: &serde_json::Map<String, Value>, key: &str| match route.get(key) {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => "-".to_owned(),
    };
    let keys = ["destination", "next-hop-interface", "next-hop-address", "metric", "table-id"];
    let mut lines: Vec<_> =
        machine.state().routes(list).map(|route| keys.map(|key| text(route, key)).join(" ")).collect();
    lines.sort();
    lines
}

#[tokio::test]
async fn configured_routes() {
    let to = |destination: &str, gateway: &str| json!({ "destination": destination, "next-hop-interface": "eth0", "next-hop-address": gateway });
    let config = |routes: Value| json!({ "routes": { "config": routes } });
    let default = "0.0.0.0/0 eth0 192.0.2.1 100 254";
    let table: Vec<(&str, Vec<Value>, Vec<&str>)> = vec![
        (
            "routes are added to those there are; table and metric have defaults",
            vec![config(json!([to("198.51.100.77/24", "192.0.2.2")]))],
            vec![default, "198.51.100.0/24 eth0 192.0.2.2 100 254"],
        ),
        (
            "a route that is there is not added again",
            vec![config(json!([to("0.0.0.0/0", "192.0.2.1")]))],
            vec![default],
        ),
        (
            "the metric is no part of what a route is: a new one replaces the old",
            vec![config(
                json!([{ "destination": "0.0.0.0/0", "next-hop-interface": "eth0", "next-hop-address": "192.0.2.1", "metric": 50 }]),
            )],
            vec!["0.0.0.0/0 eth0 192.0.2.1 50 254"],
        ),
        (
            "a removal that names nothing removes all",
            vec![config(json!([to("198.51.100.0/24", "192.0.2.2")])), config(json!([{ "state": "absent" }]))],
            vec![],
        ),
        (
            "a removal removes what matches",
            vec![
                config(json!([to("198.51.100.0/24", "192.0.2.2"), to("203.0.113.0/24", "192.0.2.3")])),
                config(json!([{ "state": "absent", "next-hop-address": "192.0.2.3" }])),
            ],
            vec![default, "198.51.100.0/24 eth0 192.0.2.2 100 254"],
        ),
        (
            "removal comes before addition: a gateway changes in one document",
            vec![config(json!([
                to("0.0.0.0/0", "192.0.2.254"),
                { "state": "absent", "destination": "0.0.0.0/0", "next-hop-interface": "eth0" }
            ]))],
            vec!["0.0.0.0/0 eth0 192.0.2.254 100 254"],
        ),
        (
            "a route without a gateway shows the address that means none",
            vec![config(
                json!([{ "destination": "2001:db8:1::/48", "next-hop-interface": "eth0", "table-id": 100 }]),
            )],
            vec![default, "2001:db8:1::/48 eth0 :: 100 100"],
        ),
        (
            "a route that leads nowhere needs no interface",
            vec![config(json!([{ "destination": "203.0.113.0/24", "route-type": "blackhole" }]))],
            vec![default, "203.0.113.0/24 - - 0 254"],
        ),
        (
            "routes go with their interface",
            vec![
                vlan_on("eth1", "eth1.5", 5),
                config(json!([{ "destination": "203.0.113.0/24", "next-hop-interface": "eth1.5" }])),
                json!({ "interfaces": [{ "name": "eth1.5", "state": "absent" }] }),
            ],
            vec![default],
        ),
        (
            "routes go with the stack they belong to",
            vec![
                config(
                    json!([{ "destination": "::/0", "next-hop-interface": "eth0", "next-hop-address": "2001:db8::1" }]),
                ),
                json!({ "interfaces": [{ "name": "eth0", "ipv6": { "enabled": false } }] }),
            ],
            vec![default],
        ),
        ("`ignore` leaves alone", vec![config(json!([{ "state": "ignore" }]))], vec![default]),
        (
            "the metric depends on the interface",
            vec![
                vlan_on("eth1", "eth1.5", 5),
                config(
                    json!([{ "destination": "203.0.113.0/24", "next-hop-interface": "eth1.5", "metric": -1 }]),
                ),
            ],
            vec![default, "203.0.113.0/24 eth1.5 0.0.0.0 400 254"],
        ),
    ];
    for (what, documents, expected) in table {
        assert_eq!(routes(&after(&documents).await, RouteList::Config), expected, "{what}");
    }
}

#[tokio::test]
async fn running_routes_are_the_configured_and_the_connected_ones() {
    assert_eq!(
        routes(&machine(), RouteList::Running),
        [
            "0.0.0.0/0 eth0 192.0.2.1 100 254",
            "192.0.2.0/24 eth0 0.0.0.0 100 254",
            "2001:db8::/64 eth0 :: 100 254",
        ]
    );
    let host_address = json!({ "interfaces": [{ "name": "eth1", "ipv4": {
        "enabled": true, "address": [{ "ip": "198.51.100.1", "prefix-length": 32 }]
    }}]});
    let with_single = after(&[host_address]).await;
    assert_eq!(routes(&with_single, RouteList::Running), routes(&machine(), RouteList::Running));
}

#[tokio::test]
async fn routing_rules() {
    let config = |rules: Value| json!({ "route-rules": { "config": rules } });
    let full = |from: &str, priority: i64, table: i64| json!({ "ip-from": from, "family": "ipv4", "priority": priority, "route-table": table });
    let first = config(json!([{ "ip-from": "192.0.2.0/24", "route-table": 100 }]));
    let table: Vec<(&str, Vec<Value>, Value)> = vec![
        (
            "a rule gets a family and a priority",
            vec![first.clone()],
            json!([full("192.0.2.0/24", 30_000, 100)]),
        ),
        (
            "a rule that is there is not added again",
            vec![first.clone(), first.clone()],
            json!([full("192.0.2.0/24", 30_000, 100)]),
        ),
        (
            "rules are added; priorities count up",
            vec![first.clone(), config(json!([{ "ip-from": "198.51.100.7" }]))],
            json!([full("192.0.2.0/24", 30_000, 100), full("198.51.100.7/32", 30_001, 254)]),
        ),
        (
            "rules are shown by priority",
            vec![
                first.clone(),
                config(json!([{ "ip-from": "10.0.0.0/8", "priority": 5, "route-table": 7 }])),
            ],
            json!([full("10.0.0.0/8", 5, 7), full("192.0.2.0/24", 30_000, 100)]),
        ),
        (
            "a removal removes what matches",
            vec![
                first.clone(),
                config(json!([{ "ip-from": "10.0.0.0/8", "priority": 5, "route-table": 7 }])),
                config(json!([{ "state": "absent", "route-table": 100 }])),
            ],
            json!([full("10.0.0.0/8", 5, 7)]),
        ),
        (
            "a removal that names nothing removes all",
            vec![first, config(json!([{ "state": "absent" }]))],
            json!([]),
        ),
    ];
    for (what, documents, expected) in table {
        let machine = after(&documents).await;
        assert_eq!(machine.state().sections()["route-rules"]["config"], expected, "{what}");
    }
}

#[tokio::test]
async fn the_resolver_and_the_host_name() {
    let dns = |config: Value| json!({ "dns-resolver": { "config": config } });
    let table: Vec<(&str, Value, &str, Value)> = vec![
        (
            "a list that is named is replaced",
            dns(json!({ "server": ["2001:DB8::53"] })),
            "/dns-resolver/config/server",
            json!(["2001:db8::53"]),
        ),
        (
            "a list that is not named stays",
            dns(json!({ "server": ["192.0.2.54"] })),
            "/dns-resolver/config/search",
            json!(["example.org"]),
        ),
        (
            "what is configured is in force",
            dns(json!({ "server": ["192.0.2.54"] })),
            "/dns-resolver/running/server",
            json!(["192.0.2.54"]),
        ),
        (
            "an empty list removes",
            dns(json!({ "search": [] })),
            "/dns-resolver/config",
            json!({ "server": ["192.0.2.53"] }),
        ),
        ("an empty configuration removes all", dns(json!({})), "/dns-resolver/config", json!({})),
        (
            "a link-local server names its interface",
            dns(json!({ "server": ["FE80::1%eth0"] })),
            "/dns-resolver/config/server",
            json!(["fe80::1%eth0"]),
        ),
        (
            "the name in force follows the configured one",
            json!({ "hostname": { "config": "b" } }),
            "/hostname",
            json!({ "running": "b", "config": "b" }),
        ),
        (
            "the two names can differ",
            json!({ "hostname": { "config": "b", "running": "c.example" } }),
            "/hostname",
            json!({ "running": "c.example", "config": "b" }),
        ),
        (
            "nothing said, nothing changed",
            json!({ "description": "no change" }),
            "/hostname",
            json!({ "running": "node-1" }),
        ),
    ];
    for (what, document, pointer, expected) in table {
        let machine = after(&[document]).await;
        let shown = machine.state().into_value();
        assert_eq!(shown.pointer(pointer), Some(&expected), "{what}");
    }
}
