use super::*;
use serde_json::json;

fn current() -> NetworkState {
    NetworkState::parse(json!({
        "interfaces": [
            { "name": "eth0", "type": "ethernet", "state": "up", "mtu": 1500, "mac-address": "02:00:00:00:00:01",
              "ipv4": { "enabled": true, "dhcp": false, "address": [{ "ip": "192.0.2.10", "prefix-length": 24 }] },
              "802.1x": { "identity": "me", "eap-methods": ["tls"], "private-key-password": "hush" } },
            { "name": "eth1", "type": "ethernet", "state": "up", "mtu": 9000, "mac-address": "02:00:00:00:00:02" }
        ],
        "routes": {
            "running": [
                { "destination": "0.0.0.0/0", "next-hop-interface": "eth0", "next-hop-address": "192.0.2.1", "table-id": 254 },
                { "destination": "198.51.100.0/24", "next-hop-interface": "eth1", "table-id": 254 }
            ],
            "config": [
                { "destination": "0.0.0.0/0", "next-hop-interface": "eth0", "next-hop-address": "192.0.2.1", "table-id": 254 }
            ]
        }
    }))
    .expect("a state")
}

fn map(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        other => panic!("not a map: {other}"),
    }
}

fn capture<const N: usize>(expressions: [(&str, &str); N]) -> BTreeMap<String, String> {
    expressions.into_iter().map(|(name, expression)| (name.to_owned(), expression.to_owned())).collect()
}

fn bridge_over_the_default_route() -> (Map<String, Value>, BTreeMap<String, String>) {
    let desired = map(json!({
        "interfaces": [
            { "name": "br1", "type": "linux-bridge", "state": "up",
              "mac-address": "{{ capture.base.interfaces.0.mac-address }}",
              "ipv4": "{{ capture.base.interfaces.0.ipv4 }}",
              "bridge": { "port": [{ "name": "{{ capture.base.interfaces.0.name }}" }] } },
            { "name": "{{ capture.base.interfaces.0.name }}.100", "type": "vlan",
              "vlan": { "base-iface": "{{ capture.base.interfaces.0.name }}", "id": 100 } }
        ],
        "routes": { "config": "{{ capture.moved.routes.config }}" }
    }));
    let capture = capture([
        ("gw", r#"routes.running.destination=="0.0.0.0/0""#),
        ("base", "interfaces.name==capture.gw.routes.running.0.next-hop-interface"),
        ("config", r#"routes.config.destination == "0.0.0.0/0""#),
        ("moved", r#"capture.config | routes.config.next-hop-interface := "br1""#),
    ]);
    (desired, capture)
}

#[test]
fn references_become_what_was_captured() {
    let (desired, capture) = bridge_over_the_default_route();
    let resolved = resolve(&desired, &capture, &current(), &BTreeMap::new()).expect("it resolves");
    let document = resolved.desired.clone().into_value();
    for (pointer, expected) in [
        ("/interfaces/0/mac-address", json!("02:00:00:00:00:01")),
        ("/interfaces/0/ipv4/address", json!([{ "ip": "192.0.2.10", "prefix-length": 24 }])),
        ("/interfaces/0/bridge/port/0/name", json!("eth0")),
        ("/interfaces/1/name", json!("eth0.100")),
        ("/interfaces/1/vlan/id", json!(100)),
        ("/routes/config/0/next-hop-interface", json!("br1")),
        ("/routes/config/0/next-hop-address", json!("192.0.2.1")),
    ] {
        assert_eq!(document.pointer(pointer), Some(&expected), "{pointer} in {document:#}");
    }
    assert_eq!(resolved.captured.keys().collect::<Vec<_>>(), ["base", "config", "gw", "moved"]);
    assert_eq!(resolved.captured["gw"]["routes"]["running"][0]["next-hop-interface"], "eth0");
    assert_eq!(resolved.captured["moved"]["routes"]["config"][0]["next-hop-interface"], "br1");
    assert!(!format!("{:?}", resolved.captured).contains("hush"), "{:?}", resolved.captured);
}

#[test]
fn what_was_captured_once_is_not_captured_again() {
    let (desired, capture) = bridge_over_the_default_route();
    let first = resolve(&desired, &capture, &current(), &BTreeMap::new()).expect("it resolves");
    // As after the change, and after a reboot: the way to everywhere leads over the bridge, or is not there yet.
    let moved = current().into_value().to_string().replace("eth0", "br1");
    for later in [serde_json::from_str(&moved).expect("a state"), NetworkState::default()] {
        let again = resolve(&desired, &capture, &later, &first.captured).expect("it resolves again");
        assert_eq!(again, first);
    }
    // Only what has not been captured is evaluated.
    let known: BTreeMap<_, _> = [("base".to_owned(), first.captured["base"].clone())].into();
    let again = resolve(&desired, &capture, &current(), &known).expect("it resolves");
    assert_eq!(again, first);

    let known: BTreeMap<_, _> = [("gw".to_owned(), first.captured["gw"].clone())].into();
    let refusal = resolve(&desired, &capture, &current(), &known).expect_err("captures of two times");
    assert!(refusal.to_string().starts_with("capture.base: it is built on capture gw, which"), "{refusal}");

    let known: BTreeMap<_, _> = [("gone".to_owned(), first.captured["gw"].clone())].into();
    let refers = map(json!({ "hostname": { "config": "{{ capture.gone.routes.running.0.destination }}" } }));
    let refusal = resolve(&refers, &BTreeMap::new(), &current(), &known).expect_err("no such capture");
    assert_eq!(refusal.to_string(), "hostname.config: there is no capture gone");
}

#[test]
fn a_document_without_references_stays_as_it_is() {
    // The last ones are no references, and would be refused by nmstate's own template.
    for document in [
        json!({ "interfaces": [{ "mtu": 1400, "name": "eth1" }], "routes": { "config": [] } }),
        json!({ "interfaces": [{ "name": "eth1", "description": "a {curly} thing, größer", "mtuu": 7 }] }),
        json!({ "interfaces": [{ "name": "eth1", "802.1x": { "private-key-password": "a{{b}c" } }] }),
    ] {
        let desired = map(document.clone());
        for capture in [capture([]), capture([("gw", r#"routes.running.destination=="0.0.0.0/0""#)])] {
            let resolved = resolve(&desired, &capture, &current(), &BTreeMap::new()).expect("nothing to do");
            assert_eq!(
                serde_json::to_string(&resolved.desired).expect("written"),
                document.to_string(),
                "order and all"
            );
            assert_eq!(resolved.captured.len(), capture.len());
        }
    }
    // Without captures the state of the machine is not even read.
    let odd = NetworkState::parse(json!({ "interfaces": [{ "name": "a", "type": "ethernet", "mtu": "x" }] }));
    let desired = map(json!({ "interfaces": [{ "name": "eth1" }] }));
    assert!(resolve(&desired, &BTreeMap::new(), &odd.expect("the right shape"), &BTreeMap::new()).is_ok());
}

#[test]
fn a_capture_that_does_not_resolve_is_named() {
    for (captures, error) in [
        (
            capture([("default-gw", r#"routes.running.destination=="::/0""#)]),
            "capture.default-gw: route with 'destination=::/0' not found, at character ",
        ),
        (
            capture([("a", "interfaces.name==\"eth0\""), ("b", "interfaces.name==\"eth7\"")]),
            "capture.b: interface with 'name=eth7' not found, at character ",
        ),
        (
            capture([("a", "interfaces.name=eth0")]),
            "capture.a: Invalid equal action string after =, expecting another '=', at character 17 of: interfaces.name=eth0",
        ),
        (
            capture([("a", "interfaces.name==\"eth0")]),
            "capture.a: No ending double quote, at character 18 of: interfaces.name==\"eth0",
        ),
        (capture([("a", "mtu.x == 7")]), "capture.a: Unsupported capture keyword 'mtu'"),
        (
            capture([("a", "interfaces.name==\"ethö\"")]),
            "capture.a: an expression can have ASCII characters only",
        ),
        (
            capture([("a", "interfaces.name==capture.gw.routes.running.0.next-hop-interface")]),
            "capture.a: there is no capture gw",
        ),
        (
            capture([
                ("a", "capture.b | interfaces.mtu:=7"),
                ("b", "capture.a | interfaces.mtu:=7"),
                ("c", "interfaces.x"),
            ]),
            "capture.a: it refers to itself, or is built on one that does: a, b",
        ),
        (
            capture([
                ("z", "interfaces.name==\"eth0\""),
                ("a", "interfaces.name==capture.z.interfaces.3.name"),
            ]),
            "capture.a: Failed to find index 3 from interfaces, at character ",
        ),
    ] {
        let refusal = resolve(&Map::new(), &captures, &current(), &BTreeMap::new()).expect_err(error);
        assert!(refusal.to_string().starts_with(error), "{refusal}\ninstead of {error}");
        assert!(
            !refusal.to_string().contains('\n') && matches!(refusal, CaptureError::Invalid(_)),
            "{refusal:?}"
        );
    }
    let known = [("a".to_owned(), map(json!({ "interfaces": 7 })))].into();
    let refusal = resolve(&Map::new(), &capture([("a", "interfaces.x")]), &current(), &known);
    let refusal = refusal.expect_err("nonsense was captured").to_string();
    assert!(refusal.starts_with("capture.a: what was captured earlier is not understood: "), "{refusal}");
}

#[test]
fn a_reference_that_leads_nowhere_is_never_applied_as_a_text() {
    let captures = capture([("gw", r#"interfaces.name=="eth0""#)]);
    let port = |text: &str| {
        json!({ "interfaces": [
            { "name": "eth1" },
            { "name": "br1", "type": "linux-bridge", "bridge": { "port": [{ "name": text }] } }
        ] })
    };
    for (document, error) in [
        (
            port("{{ capture.qw.interfaces.0.name }}"),
            "interfaces[br1].bridge.port[0].name: there is no capture qw; there are: gw",
        ),
        (
            port("{{ capture.gw.interfaces.1.name }}"),
            "interfaces[br1].bridge.port[0].name: Failed to find index 1 from interfaces, at character ",
        ),
        (
            port("{{ capture.gw.interfaces.0.nam }}"),
            "interfaces[br1].bridge.port[0].name: Failed to find property nam, exists properties are name,",
        ),
        (
            port("{{ capture.gw }}"),
            "interfaces[br1].bridge.port[0].name: the path into the capture is missing",
        ),
        (
            port("{{capture.gw.interfaces.0.name"),
            "interfaces[br1].bridge.port[0].name: No reference end }} found",
        ),
        (
            port("capture.gw.interfaces.0.name }}"),
            "interfaces[br1].bridge.port[0].name: No reference start {{ found",
        ),
        (port("{{ }}"), "interfaces[br1].bridge.port[0].name: No property path between"),
        (port("{{ captured.gw.x }}"), "interfaces[br1].bridge.port[0].name: Can only refer to captured data"),
        (
            port("{{ capture.gw.interfaces.0.name }}{{ capture.gw.interfaces.0.name }}"),
            "interfaces[br1].bridge.port[0].name: Nmpolicy does not allow multiple references {{}}",
        ),
        (
            port("x{{ capture.gw.interfaces.0.ipv4 }}"),
            "interfaces[br1].bridge.port[0].name: The resolved reference result is object or array",
        ),
        (
            port("ü{{ capture.gw.interfaces.0.name }}"),
            "interfaces[br1].bridge.port[0].name: beside a reference",
        ),
        (
            json!({ "interfaces": [{ "name": "{{ capture.no.interfaces.0.name }}" }] }),
            "interfaces[0].name: there is no capture no; there are: gw",
        ),
        (
            json!({ "interfaces": "{{ capture.no.interfaces }}" }),
            "interfaces: there is no capture no; there are: gw",
        ),
        (
            json!({ "routes": { "config": [{}, { "next-hop-interface": "{{ capture.no.x.y }}" }] } }),
            "routes.config[1].next-hop-interface: there is no capture no; there are: gw",
        ),
        (
            json!({ "interfaces": [{ "name": "eth1", "{{ capture.gw.interfaces.0.name }}": 7 }] }),
            "interfaces[eth1]: a reference can stand for a value, not for a key",
        ),
        (
            json!({ "interfaces": [{ "name": "eth1", "802.1x": { "password": "{{ capture.gw.hush" } }] }),
            "interfaces[eth1].802.1x.password: No reference end }} found",
        ),
        // A reference may stand for what does not fit there.
        (
            json!({ "interfaces": "{{ capture.gw.interfaces.0 }}" }),
            "interfaces: a list is expected here, but a map was found",
        ),
    ] {
        let refusal =
            resolve(&map(document.clone()), &captures, &current(), &BTreeMap::new()).expect_err(error);
        assert!(refusal.to_string().starts_with(error), "{refusal}\ninstead of {error}");
        assert!(matches!(refusal, CaptureError::Invalid(_)), "{refusal:?}");
        assert!(!refusal.to_string().contains("hush"), "{refusal}");
        let without = resolve(&map(document.clone()), &BTreeMap::new(), &current(), &BTreeMap::new());
        assert!(without.is_err(), "without a capture: {document}");
    }
}
