//! What a partial document makes of an interface that is there, key by key.

use serde_json::{Value, json};

use crate::common::{after, at, bond};

/// One key of one interface after a series of documents.
#[tokio::test]
async fn keys() {
    let address = |ip: &str| json!({ "ip": ip, "prefix-length": 24 });
    let eth1 = |keys: Value| {
        let mut interface = json!({ "name": "eth1", "type": "ethernet", "state": "up" });
        interface.as_object_mut().expect("a map").extend(keys.as_object().expect("a map").clone());
        json!({ "interfaces": [interface] })
    };
    let table: Vec<(&str, Vec<Value>, &str, &str, Value)> = vec![
        ("a key that is named changes", vec![eth1(json!({ "mtu": 9000 }))], "eth1", "/mtu", json!(9000)),
        (
            "a key that is not named stays",
            vec![eth1(json!({ "mtu": 9000 })), eth1(json!({ "description": "storage" }))],
            "eth1",
            "/mtu",
            json!(9000),
        ),
        (
            "null says nothing",
            vec![eth1(json!({ "mtu": 9000 })), eth1(json!({ "mtu": null }))],
            "eth1",
            "/mtu",
            json!(9000),
        ),
        ("numbers may be quoted", vec![eth1(json!({ "mtu": "1400" }))], "eth1", "/mtu", json!(1400)),
        (
            "maps are merged at every depth",
            vec![
                eth1(json!({ "ethtool": { "feature": { "rx-gro": true }, "pause": { "rx": true } } })),
                eth1(json!({ "ethtool": { "feature": { "tx-nocache-copy": false } } })),
            ],
            "eth1",
            "/ethtool",
            json!({ "feature": { "rx-gro": true, "tx-nocache-copy": false }, "pause": { "rx": true } }),
        ),
        (
            "addresses are replaced, not added",
            vec![
                eth1(json!({ "ipv4": { "enabled": true, "address": [address("198.51.100.1")] } })),
                eth1(json!({ "ipv4": { "address": [address("198.51.100.2"), address("198.51.100.3")] } })),
            ],
            "eth1",
            "/ipv4/address",
            json!([address("198.51.100.2"), address("198.51.100.3")]),
        ),
        (
            "an empty list removes all addresses",
            vec![
                eth1(json!({ "ipv4": { "enabled": true, "address": [address("198.51.100.1")] } })),
                eth1(json!({ "ipv4": { "enabled": true, "address": [] } })),
            ],
            "eth1",
            "/ipv4",
            json!({ "enabled": true, "dhcp": false, "address": [] }),
        ),
        (
            "a disabled stack has nothing left",
            vec![
                eth1(json!({ "ipv4": { "enabled": true, "address": [address("198.51.100.1")] } })),
                eth1(json!({ "ipv4": { "enabled": false } })),
            ],
            "eth1",
            "/ipv4",
            json!({ "enabled": false }),
        ),
        (
            "addresses for a stack that is not enabled are held back",
            vec![eth1(json!({ "ipv4": { "address": [address("198.51.100.1")] } }))],
            "eth1",
            "/ipv4",
            json!({ "enabled": false }),
        ),
        (
            "addresses are spelled in one way, once, and link-local ones are the kernel's",
            vec![eth1(json!({ "ipv6": { "enabled": true, "address": [
                { "ip": "2001:DB8:0:0::1", "prefix-length": "64" },
                { "ip": "2001:db8::1", "prefix-length": 64 },
                { "ip": "fe80::1", "prefix-length": 64 }
            ] } }))],
            "eth1",
            "/ipv6/address",
            json!([{ "ip": "2001:db8::1", "prefix-length": 64 }]),
        ),
        (
            "automatic addresses come with their usual options, and bring none on a silent wire",
            vec![eth1(json!({ "ipv4": { "enabled": true, "dhcp": true } }))],
            "eth1",
            "/ipv4",
            json!({
                "enabled": true, "dhcp": true, "address": [],
                "auto-dns": true, "auto-gateway": true, "auto-routes": true
            }),
        ),
        (
            "options of automatic addresses go with them",
            vec![
                eth1(json!({ "ipv4": { "enabled": true, "dhcp": true, "auto-dns": false } })),
                eth1(json!({ "ipv4": { "enabled": true, "dhcp": false } })),
            ],
            "eth1",
            "/ipv4",
            json!({ "enabled": true, "dhcp": false, "address": [] }),
        ),
        (
            "hardware addresses are shown in capitals",
            vec![eth1(json!({ "mac-address": "02:00:5e:10:00:0a" }))],
            "eth1",
            "/mac-address",
            json!("02:00:5E:10:00:0A"),
        ),
        (
            "a hardware address can be copied",
            vec![
                eth1(json!({ "mac-address": "02:00:5e:10:00:0a" })),
                json!({ "interfaces": [{
                    "name": "br0", "type": "linux-bridge", "copy-mac-from": "eth1", "bridge": { "port": [{ "name": "eth1" }] }
                }]}),
            ],
            "br0",
            "/mac-address",
            json!("02:00:5E:10:00:0A"),
        ),
        ("ports know their controller", vec![bond()], "eth1", "/controller", json!("bond0")),
        (
            "`ports` is another word for `port`",
            vec![
                json!({ "interfaces": [{ "name": "bond0", "type": "bond", "bond": { "mode": "802.3ad", "ports": ["eth2"] } }]}),
            ],
            "bond0",
            "/link-aggregation",
            json!({ "mode": "802.3ad", "port": ["eth2"] }),
        ),
        (
            "a list of ports is replaced, and who is not in it is free",
            vec![
                bond(),
                json!({ "interfaces": [{ "name": "bond0", "link-aggregation": { "port": ["eth2"] } }] }),
            ],
            "eth1",
            "/controller",
            Value::Null,
        ),
        (
            "options of a bond stay with its mode",
            vec![
                bond(),
                json!({ "interfaces": [{ "name": "bond0", "link-aggregation": { "options": { "updelay": 5 } } }] }),
            ],
            "bond0",
            "/link-aggregation/options",
            json!({ "miimon": 100, "updelay": 5 }),
        ),
        (
            "options of a bond go when its mode changes",
            vec![
                bond(),
                json!({ "interfaces": [{ "name": "bond0", "link-aggregation": { "mode": "balance-rr" } }] }),
            ],
            "bond0",
            "/link-aggregation",
            json!({ "mode": "balance-rr", "port": ["eth1", "eth2"] }),
        ),
        (
            "a port of a bond has no addresses",
            vec![eth1(json!({ "ipv4": { "enabled": true, "address": [address("198.51.100.1")] } })), bond()],
            "eth1",
            "/ipv4",
            json!({ "enabled": false }),
        ),
        (
            "a port of a VRF keeps its addresses",
            vec![
                eth1(json!({ "ipv4": { "enabled": true, "address": [address("198.51.100.1")] } })),
                json!({ "interfaces": [{ "name": "vrf0", "type": "vrf", "vrf": { "route-table-id": 100, "port": ["eth1"] } }]}),
            ],
            "eth1",
            "/ipv4/address",
            json!([address("198.51.100.1")]),
        ),
        (
            "a port moves to the controller that lists it",
            vec![
                bond(),
                json!({ "interfaces": [{ "name": "br0", "type": "linux-bridge", "bridge": { "port": [{ "name": "eth1" }] } }]}),
            ],
            "bond0",
            "/link-aggregation/port",
            json!(["eth2"]),
        ),
        (
            "a port can be attached from its own side",
            vec![
                json!({ "interfaces": [{ "name": "br0", "type": "linux-bridge", "bridge": { "port": [] } }]}),
                eth1(json!({ "controller": "br0" })),
            ],
            "br0",
            "/bridge/port",
            json!([{ "name": "eth1" }]),
        ),
        (
            "a port can be detached from its own side",
            vec![bond(), eth1(json!({ "controller": "" }))],
            "bond0",
            "/link-aggregation/port",
            json!(["eth2"]),
        ),
        (
            "a port that goes leaves its controller",
            vec![
                json!({ "interfaces": [
                    { "name": "dummy0", "type": "dummy" },
                    { "name": "bond0", "type": "bond", "link-aggregation": { "mode": "802.3ad", "port": ["dummy0", "eth1"] } }
                ]}),
                json!({ "interfaces": [{ "name": "dummy0", "state": "absent" }] }),
            ],
            "bond0",
            "/link-aggregation/port",
            json!(["eth1"]),
        ),
        (
            "a NIC that is put out of use leaves its controller",
            vec![bond(), json!({ "interfaces": [{ "name": "eth1", "state": "down" }] })],
            "bond0",
            "/link-aggregation/port",
            json!(["eth2"]),
        ),
        (
            "a bridge port keeps what the new list does not say",
            vec![
                json!({ "interfaces": [{ "name": "br0", "type": "linux-bridge", "bridge": { "port": [
                    { "name": "eth1", "vlan": { "mode": "access", "tag": 5 }, "stp-priority": 10 }
                ] } }]}),
                json!({ "interfaces": [{ "name": "br0", "type": "linux-bridge", "bridge": { "port": [
                    { "name": "eth1", "stp-priority": 20 }, { "name": "eth2" }
                ] } }]}),
            ],
            "br0",
            "/bridge/port",
            json!([{ "name": "eth1", "stp-priority": 20, "vlan": { "mode": "access", "tag": 5 } }, { "name": "eth2" }]),
        ),
        (
            "a NIC that is down has no configuration",
            vec![
                eth1(json!({ "ipv4": { "enabled": true, "address": [address("198.51.100.1")] } })),
                json!({ "interfaces": [{ "name": "eth1", "state": "down" }] }),
            ],
            "eth1",
            "/ipv4",
            json!({ "enabled": false }),
        ),
        (
            "a NIC that is desired absent is still there, and down",
            vec![json!({ "interfaces": [{ "name": "eth1", "type": "ethernet", "state": "absent" }] })],
            "eth1",
            "/state",
            json!("down"),
        ),
        (
            "`ignore` leaves alone",
            vec![json!({ "interfaces": [{ "name": "eth1", "state": "ignore", "mtu": 9000 }] })],
            "eth1",
            "/mtu",
            json!(1500),
        ),
        (
            "secrets are not shown",
            vec![eth1(json!({ "802.1x": { "identity": "node", "password": "hush" } }))],
            "eth1",
            "/802.1x",
            json!({ "identity": "node", "password": "<_password_hid_by_nmstate>" }),
        ),
    ];
    for (what, documents, interface, pointer, expected) in table {
        assert_eq!(at(&after(&documents).await, interface, pointer), expected, "{what}");
    }
}
