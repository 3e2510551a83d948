use serde_json::json;

use super::*;

fn refusal(desired: &Value, capture: &Value) -> Option<String> {
    let capture = serde_json::from_value(capture.clone()).expect("captures");
    check(desired.as_object().expect("a document"), &capture).err().map(|error| error.to_string())
}

fn interface(rest: &Value) -> Value {
    let mut interface = json!({ "name": "eth1", "type": "ethernet" });
    for (key, value) in rest.as_object().expect("a map") {
        interface[key] = value.clone();
    }
    json!({ "interfaces": [interface] })
}

#[test]
fn what_is_misspelt_is_named() {
    for (desired, expected) in [
        (json!({ "interfacs": [] }), "interfacs: unknown key \"interfacs\"; did you mean \"interfaces\"?"),
        (
            interface(&json!({ "mtuu": 1400 })),
            "interfaces[eth1].mtuu: unknown key \"mtuu\"; did you mean \"mtu\"?",
        ),
        (
            interface(&json!({ "type": null, "mtuu": 1400 })),
            "interfaces[eth1].mtuu: unknown key \"mtuu\"; did you mean \"mtu\"?",
        ),
        (
            interface(&json!({ "ipv4": { "dhcpp": true } })),
            "interfaces[eth1].ipv4.dhcpp: unknown key \"dhcpp\"; did you mean \"dhcp\"?",
        ),
        (
            interface(&json!({ "type": "ethernett" })),
            "interfaces[eth1].type: unknown type \"ethernett\"; did you mean \"ethernet\"?",
        ),
        (
            interface(&json!({ "state": "upp" })),
            "interfaces[eth1].state: unknown value \"upp\"; did you mean \"up\"?",
        ),
        (interface(&json!({ "mtu": "many" })), "interfaces[eth1].mtu: invalid digit found in string"),
        (
            interface(&json!({ "ipv4": { "address": [{ "ip": "10.0.0.300", "prefix-length": 24 }] } })),
            "interfaces[eth1].ipv4.address[0]: invalid IP address syntax",
        ),
        (
            json!({ "routes": { "config": [{ "destination": "10.0.0.0/8" }, { "destinatoin": "10.0.0.0/8" }] } }),
            "routes.config[1].destinatoin: unknown key \"destinatoin\"; did you mean \"destination\"?",
        ),
        (
            json!({ "dns-resolver": { "config": { "servers": [] } } }),
            "dns-resolver.config.servers: unknown key \"servers\"; did you mean \"server\"?",
        ),
        (json!({ "interfaces": [{ "mtu": 1400 }] }), "interfaces[0].name: every interface needs a name"),
    ] {
        assert_eq!(refusal(&desired, &json!({})).as_deref(), Some(expected), "{desired}");
    }
}

#[test]
fn what_nmstate_understands_passes() {
    for desired in [
        json!({}),
        interface(&json!({ "mtu": 1400, "state": "up", "ipv4": { "enabled": true, "dhcp": true } })),
        interface(&json!({ "mtu": "1400" })),
        // Named without its type, which the machine knows.
        json!({ "interfaces": [{ "name": "bond0", "link-aggregation": { "mode": "active-backup", "port": ["eth1"] } }] }),
        json!({ "interfaces": [{ "name": "br0", "bridge": { "port": [{ "name": "eth1" }] } }] }),
        json!({ "interfaces": [{ "name": "wg0", "type": "wireguard", "mtu": 1400 }] }),
        json!({ "interfaces": [{ "name": "eth1", "state": "absent" }] }),
    ] {
        assert_eq!(refusal(&desired, &json!({})), None, "{desired}");
    }
}

#[test]
fn references_are_taken_for_what_they_could_stand_for() {
    let capture = json!({ "gw": "interfaces.name==\"eth1\"" });
    let bridge = json!({ "interfaces": [
        {
            "name": "br1", "type": "linux-bridge", "state": "up", "ipv4": "{{ capture.gw.interfaces.0.ipv4 }}",
            "mac-address": "{{ capture.gw.interfaces.0.mac-address }}", "mtu": "{{ values.mtu }}",
            "bridge": { "options": { "stp": { "enabled": false } }, "port": [{ "name": "{{ capture.gw.interfaces.0.name }}" }] }
        },
        { "name": "{{ capture.gw.interfaces.0.name }}", "type": "ethernet", "ipv6": { "address": [{ "ip": "{{ values.ip }}", "prefix-length": "{{ values.length }}" }] } },
        "{{ values.interface }}"
    ], "routes": { "config": "{{ capture.gw.routes.running }}" },
       "dns-resolver": { "config": { "server": ["{{ values.server }}"], "search": ["{{ node.name }}.example.com"] } } });
    assert_eq!(refusal(&bridge, &capture), None);

    // Its value is not known, so it may be right.
    let doubtful = json!({ "interfaces": [{ "name": "b", "type": "bond", "link-aggregation": { "mode": "{{ values.mode }}", "port": "{{ values.ports }}" } }] });
    assert_eq!(refusal(&doubtful, &capture), None);

    // What stands beside a reference is judged all the same.
    let beside = json!({ "interfaces": [
        { "name": "b", "type": "bond", "link-aggregation": { "mode": "{{ values.mode }}", "port": "{{ values.ports }}" } },
        { "name": "{{ capture.gw.interfaces.0.name }}", "type": "ethernet", "mtuu": "{{ values.mtu }}", "ipv4": { "dhcpp": true } },
    ] });
    let said = refusal(&beside, &capture).expect("a mistake");
    assert!(said.starts_with("interfaces[{{ capture.gw.interfaces.0.name }}]"), "{said}");
    assert!(said.contains("dhcpp") || said.contains("mtuu"), "{said}");
}

#[test]
fn captures_are_read_and_have_to_exist() {
    for (capture, expected) in [
        (json!({ "a": "interfaces.name==\"eth1\"", "b": "capture.a | interfaces.mtu:=1400" }), None),
        (json!({ "a": "interfaces.name=\"eth1\"" }), Some("capture.a: ")),
        (json!({ "a": "capture.c | interfaces.mtu:=1400" }), Some("capture.a: there is no capture c")),
        (json!({ "a": "capture.b", "b": "capture.a" }), Some("capture.a: it refers to itself")),
    ] {
        let said = refusal(&json!({}), &capture);
        match expected {
            None => assert_eq!(said, None, "{capture}"),
            Some(expected) => {
                assert!(said.as_ref().is_some_and(|said| said.starts_with(expected)), "{said:?}");
            }
        }
    }
}

#[test]
fn a_refusal_shows_no_secret() {
    let wrong = interface(
        &json!({ "802.1x": { "identity": "me", "eap-methods": ["tls"], "password": 7, "private-key": "hush", "psk": "hush" } }),
    );
    let said = refusal(&wrong, &json!({})).unwrap_or_default();
    assert!(!said.contains("hush"), "{said}");
}

#[test]
fn nmstate_is_strict_with_the_types_that_are_tried() {
    for kind in TYPES {
        let odd = json!({ "interfaces": [{ "name": "x", "type": kind, "no-such-key": 1 }] });
        assert_eq!(parser::understood(&odd).is_ok(), is_lax(kind), "{kind}");
    }
}

/// What users of nmstate write every day.
#[test]
fn everyday_documents_pass() {
    for desired in [
        json!({ "interfaces": [{
            "name": "br1", "type": "linux-bridge", "state": "up", "ipv4": { "enabled": true, "dhcp": true, "auto-dns": false },
            "bridge": { "options": { "stp": { "enabled": false }, "multicast-snooping": true }, "port": [
                { "name": "eth1", "stp-hairpin-mode": false, "vlan": { "mode": "trunk", "trunk-tags": [{ "id-range": { "min": 2, "max": 4094 } }], "tag": 1, "enable-native": true } },
                { "name": "eth2", "vlan": {} }
            ] }
        }] }),
        json!({ "interfaces": [
            { "name": "bond1", "type": "bond", "state": "up", "link-aggregation": { "mode": "802.3ad", "options": { "miimon": "140", "lacp_rate": "fast" }, "port": ["eth1", "eth2"] } },
            { "name": "bond1.102", "type": "vlan", "state": "up", "vlan": { "base-iface": "bond1", "id": 102 }, "ipv6": { "enabled": true, "autoconf": true, "dhcp": true, "auto-routes": true, "auto-route-table-id": 7 } }
        ] }),
        json!({ "interfaces": [
            { "name": "ovs0", "type": "ovs-interface", "state": "up", "ipv4": { "enabled": true, "address": [{ "ip": "192.0.2.1", "prefix-length": 24 }] } },
            { "name": "ovs-br0", "type": "ovs-bridge", "state": "up", "ovs-db": { "external_ids": { "k": "v" } }, "bridge": { "allow-extra-patch-ports": true, "options": { "stp": { "enabled": true } }, "port": [
                { "name": "ovs0" }, { "name": "b", "link-aggregation": { "mode": "balance-slb", "port": [{ "name": "eth1" }, { "name": "eth2" }] } }] } }
        ], "ovn": { "bridge-mappings": [{ "localnet": "net", "bridge": "ovs-br0", "state": "present" }] } }),
        json!({ "interfaces": [
            { "name": "vrf0", "type": "vrf", "state": "up", "vrf": { "port": ["eth1"], "route-table-id": 100 } },
            { "name": "vxlan1", "type": "vxlan", "state": "up", "vxlan": { "base-iface": "eth1", "id": 1000, "remote": "192.0.2.2", "destination-port": 4789 } },
            { "name": "d0", "type": "dummy", "state": "up" },
            { "name": "veth0", "type": "veth", "state": "up", "veth": { "peer": "veth1" } },
            { "name": "mv0", "type": "mac-vlan", "state": "up", "mac-vlan": { "base-iface": "eth1", "mode": "vepa", "promiscuous": true } }
        ] }),
        json!({ "interfaces": [
            { "name": "eth1", "type": "ethernet", "state": "up", "lldp": { "enabled": true }, "accept-all-mac-addresses": false, "ethernet": { "auto-negotiation": false, "speed": 1000, "duplex": "full", "sr-iov": { "total-vfs": 2, "vfs": [{ "id": 0, "trust": true }] } },
              "ethtool": { "feature": { "rx-all": true }, "ring": { "rx": 256 }, "pause": { "autoneg": false } },
              "802.1x": { "ca-cert": "/etc/ca.pem", "eap-methods": ["tls"], "identity": "me", "private-key": "/etc/k", "private-key-password": "p" } },
            { "name": "eth2", "profile-name": "wan", "identifier": "mac-address", "mac-address": "02:00:00:00:00:01", "type": "ethernet", "state": "up", "wait-ip": "ipv4" }
        ] }),
        json!({ "routes": { "config": [
            { "destination": "0.0.0.0/0", "next-hop-interface": "eth1", "next-hop-address": "192.0.2.254", "metric": 150, "table-id": 254 },
            { "state": "absent", "next-hop-interface": "eth2" }, { "destination": "203.0.113.0/24", "route-type": "blackhole" }
        ] }, "route-rules": { "config": [{ "ip-from": "192.0.2.0/24", "ip-to": "198.51.100.0/24", "priority": 100, "route-table": 200, "family": "ipv4" }] } }),
        json!({ "dns-resolver": { "config": { "search": ["example.com"], "server": ["192.0.2.53", "2001:db8::53"], "options": ["rotate"] } }, "hostname": { "running": "a", "config": "a" } }),
    ] {
        assert_eq!(refusal(&desired, &json!({})), None, "{desired}");
    }
}

#[test]
fn everyday_captures_pass() {
    let capture = json!({
        "default-gw": "routes.running.destination==\"0.0.0.0/0\"",
        "base-iface": "interfaces.name==capture.default-gw.routes.running.0.next-hop-interface",
        "base-iface-routes": "routes.running.next-hop-interface==capture.default-gw.routes.running.0.next-hop-interface",
        "bridge-routes": "capture.base-iface-routes | routes.running.next-hop-interface:=\"br1\"",
    });
    let desired = json!({
        "interfaces": [
            { "name": "br1", "type": "linux-bridge", "state": "up", "ipv4": "{{ capture.base-iface.interfaces.0.ipv4 }}",
              "bridge": { "options": { "stp": { "enabled": false } }, "port": [{ "name": "{{ capture.base-iface.interfaces.0.name }}" }] } },
            { "name": "{{ capture.base-iface.interfaces.0.name }}", "state": "up", "ipv4": { "enabled": false } },
            { "name": "bond.{{ node.labels['vlan'] }}", "type": "vlan", "vlan": { "base-iface": "bond", "id": "{{ node.labels['vlan'] }}" } },
        ],
        "routes": { "config": "{{ capture.bridge-routes.routes.running }}" },
        "dns-resolver": { "config": { "server": "{{ values.servers }}" } },
    });
    assert_eq!(refusal(&desired, &capture), None);
}
