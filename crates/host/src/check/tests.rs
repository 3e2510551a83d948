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

    // Nobody knows what it would be, so it may be right.
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
        assert_eq!(misunderstood::understood(&odd).is_ok(), is_lax(kind), "{kind}");
    }
}
