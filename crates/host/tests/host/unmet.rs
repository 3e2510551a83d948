//! One row per part of a state that is compared, and per part that is not.

use knmstate_document::NetworkState;
use serde_json::{Value, json};

fn state(document: Value) -> NetworkState {
    NetworkState::parse(document).expect("a document of the right shape")
}

fn current() -> Value {
    json!({
        "hostname": { "running": "a", "config": "a" },
        "dns-resolver": { "config": { "server": ["192.0.2.53", "2001:db8::53"], "search": ["example.org"] } },
        "route-rules": { "config": [{ "ip-from": "192.0.2.0/24", "family": "ipv4", "priority": 5, "route-table": 100 }] },
        "routes": { "config": [{
            "destination": "0.0.0.0/0", "next-hop-interface": "eth0", "next-hop-address": "192.0.2.1",
            "metric": 100, "table-id": 254
        }]},
        "interfaces": [
            {
                "name": "eth0", "type": "ethernet", "state": "up", "mac-address": "02:00:5E:10:00:0A", "mtu": 1500,
                "ipv4": { "enabled": true, "dhcp": false, "address": [
                    { "ip": "192.0.2.10", "prefix-length": 24 }, { "ip": "192.0.2.11", "prefix-length": 24 }
                ]},
                "ipv6": { "enabled": false },
                "802.1x": { "identity": "node", "password": "<_password_hid_by_nmstate>" },
                "permanent-mac-address": "02:00:5E:10:00:0A"
            },
            { "name": "eth1", "type": "ethernet", "state": "up", "controller": "br0" },
            { "name": "eth2", "type": "ethernet", "state": "down" },
            { "name": "veth0", "type": "veth", "state": "up" },
            { "name": "br0", "type": "linux-bridge", "state": "up", "bridge": {
                "options": { "stp": { "enabled": true }, "list": [1, 2] },
                "port": [{ "name": "eth1", "stp-priority": 32 }, { "name": "veth0" }]
            }}
        ]
    })
}

#[expect(clippy::needless_pass_by_value, reason = "callers write json! in place")]
fn interface(keys: Value) -> Value {
    json!({ "interfaces": [keys] })
}

#[test]
fn what_is_there_satisfies() {
    for desired in [
        json!({}),
        current(),
        interface(json!({ "name": "eth0" })),
        interface(json!({ "name": "eth0", "mtu": "1500", "mac-address": "02:00:5e:10:00:0a", "type": null })),
        interface(
            json!({ "name": "eth0", "ipv4": { "enabled": true, "address": [{ "ip": "192.0.2.11", "prefix-length": "24" }] } }),
        ),
        interface(json!({ "name": "eth0", "ipv4": { "auto-dns": true, "allow-extra-address": true } })),
        interface(
            json!({ "name": "eth0", "ipv6": { "address": [{ "ip": "2001:db8::1", "prefix-length": 64 }] } }),
        ),
        interface(
            json!({ "name": "eth0", "permanent-mac-address": "AA", "min-mtu": 1, "driver": "x", "identifier": "name" }),
        ),
        interface(json!({ "name": "eth0", "802.1x": { "password": "hush" } })),
        interface(json!({ "name": "eth0", "state": "ignore", "mtu": 9 })),
        interface(json!({ "name": "eth0", "state": "absent" })),
        interface(json!({ "name": "eth2", "state": "down" })),
        interface(json!({ "name": "none", "state": "absent" })),
        interface(json!({ "name": "eth0", "controller": "" })),
        interface(json!({ "name": "veth0", "type": "ethernet" })),
        interface(json!({ "name": "br0", "bridge": { "ports": [{ "name": "veth0" }, { "name": "eth1" }] } })),
        json!({ "routes": { "config": [{ "destination": "0.0.0.0/0", "next-hop-interface": "eth0" }] } }),
        json!({ "routes": { "config": [{ "destination": "0.0.0.0/0", "table-id": 0, "metric": 7 }] } }),
        json!({ "routes": { "config": [{ "state": "absent", "next-hop-interface": "eth1" }] } }),
        json!({ "routes": { "config": [
            { "state": "absent" }, { "destination": "0.0.0.0/0", "next-hop-interface": "eth0" }
        ] } }),
        json!({ "routes": { "config": [{ "state": "ignore", "destination": "10.0.0.0/8" }] } }),
        json!({ "route-rules": { "config": [{ "ip-from": "192.0.2.7/24", "priority": -1 }] } }),
        json!({ "dns-resolver": { "config": { "server": ["192.0.2.53", "2001:DB8::53"] } } }),
        json!({ "hostname": { "config": "a" } }),
    ] {
        assert_eq!(state(desired.clone()).first_unmet_in(&state(current())), None, "{desired}");
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table of cases")]
fn what_is_missing_is_named() {
    for (desired, place, wanted, found) in [
        (interface(json!({ "name": "eth9" })), "interfaces[eth9]", "the interface", "no such interface"),
        (interface(json!({ "name": "eth2" })), "interfaces[eth2].state", "\"up\"", "\"down\""),
        (
            interface(json!({ "name": "br0", "state": "absent" })),
            "interfaces[br0].state",
            "\"absent\"",
            "\"up\"",
        ),
        (interface(json!({ "name": "br0", "state": "down" })), "interfaces[br0].state", "\"down\"", "\"up\""),
        (interface(json!({ "name": "eth0", "mtu": 9000 })), "interfaces[eth0].mtu", "9000", "1500"),
        (
            interface(json!({ "name": "eth0", "type": "dummy" })),
            "interfaces[eth0].type",
            "\"dummy\"",
            "\"ethernet\"",
        ),
        (
            interface(json!({ "name": "eth1", "controller": "" })),
            "interfaces[eth1].controller",
            "\"\"",
            "\"br0\"",
        ),
        (
            interface(json!({ "name": "eth0", "ipv4": { "enabled": false } })),
            "interfaces[eth0].ipv4.enabled",
            "false",
            "true",
        ),
        (
            interface(json!({ "name": "eth0", "ipv4": { "dhcp": true } })),
            "interfaces[eth0].ipv4.dhcp",
            "true",
            "false",
        ),
        (
            interface(
                json!({ "name": "eth0", "ipv4": { "address": [{ "ip": "192.0.2.10", "prefix-length": 25 }] } }),
            ),
            "interfaces[eth0].ipv4.address[0]",
            "{\"ip\":\"192.0.2.10\",\"prefix-length\":25}",
            "[{\"ip\":\"192.0.2.10\",\"prefix-length\":24},{\"ip\":\"192.0.2.11\",\"prefix-length\":24}]",
        ),
        (
            interface(json!({ "name": "br0", "bridge": { "options": { "stp": { "enabled": false } } } })),
            "interfaces[br0].bridge.options.stp.enabled",
            "false",
            "true",
        ),
        (
            interface(json!({ "name": "br0", "bridge": { "options": { "list": [2, 1] } } })),
            "interfaces[br0].bridge.options.list",
            "[2,1]",
            "[1,2]",
        ),
        (
            interface(json!({ "name": "br0", "bridge": { "port": [{ "name": "eth1" }] } })),
            "interfaces[br0].bridge.port",
            "[{\"name\":\"eth1\"}]",
            "[{\"name\":\"eth1\",\"stp-priority\":32},{\"name\":\"veth0\"}]",
        ),
        (
            interface(json!({ "name": "eth1", "802.1x": { "password": "hush" } })),
            "interfaces[eth1].802.1x",
            "{\"password\":\"<_password_hid_by_nmstate>\"}",
            "nothing",
        ),
        (
            interface(json!({ "name": "br0", "bridge": { "password": "hush" } })),
            "interfaces[br0].bridge.password",
            "(a secret)",
            "nothing",
        ),
        (
            json!({ "routes": { "config": [{ "destination": "10.0.0.0/8" }] } }),
            "routes.config[0]",
            "{\"destination\":\"10.0.0.0/8\"}",
            "nothing like it",
        ),
        (
            json!({ "routes": { "config": [{ "state": "absent", "table-id": 254 }] } }),
            "routes.config[0]",
            "nothing that matches",
            "{\"destination\":\"0.0.0.0/0\",\"next-hop-interface\":\"eth0\",\"next-hop-address\":\"192.0.2.1\",\"metric\":100,\"table-id\":254}",
        ),
        (
            json!({ "route-rules": { "config": [{ "state": "absent" }] } }),
            "route-rules.config[0]",
            "nothing that matches",
            "{\"ip-from\":\"192.0.2.0/24\",\"family\":\"ipv4\",\"priority\":5,\"route-table\":100}",
        ),
        (
            json!({ "dns-resolver": { "config": { "server": ["192.0.2.53"] } } }),
            "dns-resolver.config.server",
            "[\"192.0.2.53\"]",
            "[\"192.0.2.53\",\"2001:db8::53\"]",
        ),
        (
            json!({ "dns-resolver": { "config": {} } }),
            "dns-resolver.config.server",
            "[]",
            "[\"192.0.2.53\",\"2001:db8::53\"]",
        ),
        (json!({ "hostname": { "running": "b" } }), "hostname.running", "\"b\"", "\"a\""),
    ] {
        let unmet = state(desired.clone()).first_unmet_in(&state(current()));
        let unmet = unmet.unwrap_or_else(|| panic!("{desired} counts as fulfilled"));
        assert_eq!(
            (unmet.place.to_string().as_str(), unmet.wanted.as_str(), unmet.found.as_str()),
            (place, wanted, found)
        );
    }
}

#[test]
fn a_long_value_is_cut() {
    let long = "é".repeat(1000);
    let desired = state(interface(json!({ "name": "eth0", "description": long })));
    let unmet = desired.first_unmet_in(&state(current())).expect("no description there");
    assert_eq!(unmet.wanted.chars().count(), 201);
    assert!(unmet.wanted.ends_with('…'));
}
