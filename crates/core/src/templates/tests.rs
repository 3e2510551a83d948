use proptest::prelude::*;
use serde_json::json;

use super::{addresses::DuplicateAddress, *};

fn policy(spec: Value) -> NodeNetworkConfigurationPolicySpec {
    serde_json::from_value(spec).expect("a spec")
}

fn labels() -> BTreeMap<String, String> {
    BTreeMap::from([("rack".to_owned(), "r7".to_owned()), ("a.b/c".to_owned(), "x".to_owned())])
}

/// A policy with one interface that has this description.
fn describing(text: &Value) -> NodeNetworkConfigurationPolicySpec {
    policy(json!({
        "capture": { "gw": "routes.running.destination==\"0.0.0.0/0\"" },
        "values": { "mtu": 9000, "ip": "10.0.0.1", "list": [1, 2], "on": true, "nothing": null, "nested": "{{ values.ip }}" },
        "nodeValues": { "worker-1": { "ip": "10.0.0.2" }, "worker-2": { "only": "there" } },
        "desiredState": { "interfaces": [{ "name": "eth1", "description": text }] },
    }))
}

fn described(text: &Value, node: &str) -> Result<Value, String> {
    render(&describing(text), node, &labels())
        .map(|state| {
            state.expect("a state").into_value().pointer("/interfaces/0/description").cloned().expect("it")
        })
        .map_err(|error| error.to_string())
}

#[test]
fn references_are_filled_in() {
    for (text, expected) in [
        (json!("plain"), json!("plain")),
        (json!("{ not } a }} reference"), json!("{ not } a }} reference")),
        (json!(7), json!(7)),
        // Alone, a value keeps its type.
        (json!("{{ values.mtu }}"), json!(9000)),
        (json!("{{values.list}}"), json!([1, 2])),
        (json!("{{ values.on }}"), json!(true)),
        (json!("{{ values.nothing }}"), json!(null)),
        // Inside a longer string it becomes text.
        (json!("mtu {{ values.mtu }}, {{ values.on }}"), json!("mtu 9000, true")),
        // The node's own value wins.
        (json!("{{ values.ip }}"), json!("10.0.0.2")),
        (json!("{{ values['ip'] }}/24"), json!("10.0.0.2/24")),
        (json!("{{ node.name }}"), json!("worker-1")),
        (json!("{{ node.labels[\"a.b/c\"] }}-{{ node.labels['rack'] }}"), json!("x-r7")),
        // Captures are not resolved here.
        (json!("{{ capture.gw.interfaces.0.name }}"), json!("{{ capture.gw.interfaces.0.name }}")),
        (json!("{{capture.gw.x}} on {{ node.name }}"), json!("{{capture.gw.x}} on worker-1")),
        (json!(["{{ values.mtu }}", { "a": "{{ node.name }}" }]), json!([9000, { "a": "worker-1" }])),
    ] {
        assert_eq!(described(&text, "worker-1"), Ok(expected), "{text}");
    }
}

#[test]
fn an_unresolved_reference_is_an_error_with_path_and_reason() {
    let place = "node \"worker-9\": desiredState.interfaces[0].description";
    for (text, expected) in [
        ("{{ values.only }}", ": values.only is neither in nodeValues of node \"worker-9\" nor in values"),
        ("{{ node.labels['zone'] }}", ": the node has no label \"zone\""),
        ("a {{ values.list }}", ": values.list is a list: it cannot be inserted into a longer string"),
        ("a {{ values.nothing }}", ": values.nothing is null: it cannot be inserted into a longer string"),
        (
            "{{ values.nested }}",
            ": values.nested contains a reference itself; references in values are not resolved",
        ),
        (
            "{{ foo.bar }}",
            ": foo.bar is not a reference: it must start with capture, values, node.name or node.labels",
        ),
        ("a {{ b", ": a reference starts with {{ but has no closing }}"),
    ] {
        assert_eq!(described(&json!(text), "worker-9"), Err(format!("{place}{expected}")), "{text}");
    }
    let deep = policy(json!({ "desiredState": { "interfaces": [
        { "ipv4": { "address": [{ "ip": "{{ values.ip }}", "prefix-length": 24 }] } }
    ] } }));
    let error = render(&deep, "worker-1", &labels()).expect_err("there is no value");
    assert_eq!(error.path, "desiredState.interfaces[0].ipv4.address[0].ip");
}

#[test]
fn a_key_is_never_a_reference_and_a_password_may_have_any_braces() {
    let key = policy(json!({ "desiredState": { "{{ node.name }}": 1 } }));
    assert!(render(&key, "n", &labels()).expect_err("in a key").why.contains("not a key"));
    let with = |password: &str| {
        policy(json!({ "values": { "p": "{{" }, "desiredState": { "802.1x": { "password": password } } }))
    };
    for (password, expected) in [("a{{b", "a{{b"), ("{{ x }}", "{{ x }}"), ("{{ values.p }}", "{{")] {
        let state = render(&with(password), "n", &labels()).expect("it is rendered").expect("a state");
        assert_eq!(state.0["802.1x"]["password"], expected);
        assert_eq!(dangling(&with(password)), None, "{password}");
    }
    assert!(is_same_everywhere(&with("a{{b")));
    assert!(!is_same_everywhere(&with("{{ values.p }}")));
}

#[test]
fn a_policy_without_a_desired_state_has_none_for_any_node() {
    assert_eq!(render(&policy(json!({})), "n", &labels()), Ok(None));
    assert_eq!(dangling(&policy(json!({}))), None);
    assert!(is_same_everywhere(&policy(json!({}))));
    assert!(is_same_everywhere(&describing(&json!("{{ capture.gw.interfaces.0.name }}"))));
    assert!(!is_same_everywhere(&describing(&json!("{{ node.name }}"))));
}

#[test]
fn a_reference_that_no_node_can_resolve_is_found_and_the_names_that_exist_are_listed() {
    let place = "desiredState.interfaces[0].description: ";
    for (text, expected) in [
        ("plain", None),
        ("{{ values.only }}", None),
        ("{{ node.labels['no-node-has-it'] }}", None),
        ("{{ capture.gw.interfaces.0.name }}", None),
        ("{{ capture.wg.interfaces.0.name }}", Some("there is no capture \"wg\"; the captures are gw")),
        (
            "a {{ node.name }} {{ values.pi }}",
            Some(
                "values.pi is neither in values nor in nodeValues of any node; the values are ip, list, mtu, nested, nothing, on, only",
            ),
        ),
        (
            "{{ foo.bar }}",
            Some("foo.bar is not a reference: it must start with capture, values, node.name or node.labels"),
        ),
        ("{{ values.a", Some("a reference starts with {{ but has no closing }}")),
    ] {
        let expected = expected.map(|expected| format!("{place}{expected}"));
        assert_eq!(dangling(&describing(&json!(text))), expected, "{text}");
    }
    let bare = policy(json!({ "desiredState": { "a": "{{ capture.x.y }}" } }));
    assert_eq!(
        dangling(&bare).as_deref(),
        Some("desiredState.a: there is no capture \"x\"; there are no captures")
    );
}

#[test]
fn a_duplicate_address_from_values_is_found_and_a_literal_one_allowed() {
    let with = |interface: Value| {
        policy(json!({
            "values": { "ip": "10.0.0.1", "tail": 1, "list": [{ "ip": "10.0.0.1" }] },
            "nodeValues": {
                "a": { "own": "10.0.0.10", "v6": "fd00::1" },
                "b": { "own": "10.0.0.11", "v6": "fd00:0::1", "tail": 2 },
                "c": { "own": "10.0.0.10", "v6": "fd00::3", "tail": 3 },
            },
            "desiredState": { "interfaces": [interface] },
        }))
    };
    let address = |family: &str, entry: Value| json!({ "name": "eth1", family: { "address": [entry] } });
    for (interface, expected) in [
        (address("ipv4", json!({ "ip": "10.0.0.1" })), None),
        (address("ipv4", json!({ "ip": "10.0.0.1", "prefix-length": "{{ values.tail }}" })), None),
        (address("ipv4", json!({ "ip": "10.0.0.{{ values.tail }}" })), None),
        (address("ipv4", json!({ "ip": "{{ values.ip }}" })), Some(("10.0.0.1", "a", "b"))),
        (address("ipv4", json!({ "ip": "{{ values.own }}" })), Some(("10.0.0.10", "a", "c"))),
        (address("ipv6", json!({ "ip": "{{ values.v6 }}" })), Some(("fd00::1", "a", "b"))),
        (json!({ "name": "eth1", "ipv4": { "address": "{{ values.list }}" } }), Some(("10.0.0.1", "a", "b"))),
        (
            json!({ "name": "eth1", "state": "absent", "ipv4": { "address": [{ "ip": "{{ values.ip }}" }] } }),
            None,
        ),
    ] {
        let policy = with(interface.clone());
        let rendered = ["a", "b", "c"].map(|node| {
            (node.to_owned(), render(&policy, node, &labels()).expect("values").expect("a state"))
        });
        let found = duplicate_address(&policy, &rendered.into());
        let expected = expected.map(|(address, one, other)| DuplicateAddress {
            address: address.parse().expect("an address"),
            nodes: [one.to_owned(), other.to_owned()],
        });
        assert_eq!(found, expected, "{interface}");
    }
}

fn texts() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("{{ values.ip }}".to_owned()),
        Just("{{ node.name }}".to_owned()),
        Just("{{ node.labels['rack'] }}".to_owned()),
        Just("{{ capture.gw.interfaces.0.name }}".to_owned()),
        "[a-z}{ ]{0,6}",
    ];
    prop::collection::vec(piece, 0..5).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn rendering_again_changes_nothing(text in texts()) {
        let once = render(&describing(&json!(text)), "worker-1", &labels());
        if let Ok(once) = once {
            let again = NodeNetworkConfigurationPolicySpec { desired_state: once.clone(), ..describing(&json!("")) };
            prop_assert_eq!(render(&again, "worker-1", &labels()), Ok(once));
        }
    }

    #[test]
    fn a_text_without_braces_is_never_touched(text in "[^{]{0,20}") {
        prop_assert_eq!(described(&json!(text), "worker-1"), Ok(json!(text)));
    }
}
