use serde_json::{Value, json};

use super::*;

fn spec(spec: Value) -> NodeNetworkConfigurationPolicySpec {
    serde_json::from_value(spec).expect("a spec")
}

/// Workers 1 to 4 with their number and parity as labels.
fn nodes() -> BTreeMap<String, BTreeMap<String, String>> {
    let labels = |number: u8| {
        let parity = if number.is_multiple_of(2) { "even" } else { "odd" };
        BTreeMap::from([("number".to_owned(), number.to_string()), ("parity".to_owned(), parity.to_owned())])
    };
    (1..=4).map(|number| (format!("worker-{number}"), labels(number))).collect()
}

fn check(candidate: Value, others: Vec<(&str, Value)>) -> Option<String> {
    let nodes = nodes();
    let nodes: Vec<_> = nodes.iter().map(|(name, labels)| NodeFacts { name, labels }).collect();
    let others: Vec<_> = others.into_iter().map(|(name, other)| (name, spec(other))).collect();
    let others: Vec<_> = others.iter().map(|(name, spec)| Candidate { name, spec }).collect();
    objection(&Candidate { name: "a", spec: &spec(candidate) }, &others, &nodes)
}

fn mtu(mtu: &Value) -> Value {
    json!({ "desiredState": { "interfaces": [{ "name": "eth1", "mtu": mtu }] } })
}

fn with(mut spec: Value, key: &str, value: Value) -> Value {
    spec[key] = value;
    spec
}

#[test]
fn a_conflict_names_the_policy_the_nodes_and_the_key() {
    let advice = "; change one of them, or select different nodes";
    let b = |spec: Value| vec![("b", spec)];
    assert_eq!(
        check(mtu(&json!(9000)), b(mtu(&json!(1500)))),
        Some(format!(
            "conflicts with policy \"b\" on node \"worker-1\" (and 3 more): interfaces[eth1].mtu is 9000 here and 1500 there{advice}"
        ))
    );
    let even = json!({ "parity": "even" });
    assert_eq!(
        check(mtu(&json!(9000)), b(with(mtu(&json!(1500)), "nodeSelector", even.clone()))),
        Some(format!(
            "conflicts with policy \"b\" on node \"worker-2\" (and 1 more): interfaces[eth1].mtu is 9000 here and 1500 there{advice}"
        ))
    );
    // A conflict only on the node whose values cause it.
    let per_node = with(
        with(mtu(&json!("{{ values.mtu }}")), "values", json!({ "mtu": 1500 })),
        "nodeValues",
        json!({ "worker-3": { "mtu": 9000 } }),
    );
    assert_eq!(
        check(per_node.clone(), b(mtu(&json!(1500)))),
        Some(format!(
            "conflicts with policy \"b\" on node \"worker-3\": interfaces[eth1].mtu is 9000 here and 1500 there{advice}"
        ))
    );
    assert_eq!(
        check(mtu(&json!(1500)), b(per_node.clone())),
        Some(format!(
            "conflicts with policy \"b\" on node \"worker-3\": interfaces[eth1].mtu is 1500 here and 9000 there{advice}"
        ))
    );
    let named_per_node = json!({ "desiredState": { "interfaces": [{ "name": "eth{{ node.labels['number'] }}", "mtu": 9000 }] } });
    assert_eq!(
        check(named_per_node, b(mtu(&json!(1500)))),
        Some(format!(
            "conflicts with policy \"b\" on node \"worker-1\": interfaces[eth1].mtu is 9000 here and 1500 there{advice}"
        ))
    );
}

#[test]
fn policies_without_conflicts_are_valid() {
    let nine = mtu(&json!(9000));
    let odd = with(mtu(&json!(1500)), "nodeSelector", json!({ "parity": "odd" }));
    let even = with(nine.clone(), "nodeSelector", json!({ "parity": "even" }));
    for (candidate, other) in [
        (nine.clone(), ("b", nine.clone())),
        (even, ("b", odd)),
        // The policy itself before the change is no conflict.
        (nine.clone(), ("a", mtu(&json!(1500)))),
        (with(nine.clone(), "mode", json!("Plan")), ("b", mtu(&json!(1500)))),
        (nine.clone(), ("b", with(mtu(&json!(1500)), "mode", json!("Plan")))),
        // The other policy cannot be rendered on any node.
        (nine.clone(), ("b", mtu(&json!("{{ values.nowhere }}")))),
        (nine.clone(), ("b", json!({}))),
        (json!({}), ("b", nine)),
    ] {
        assert_eq!(check(candidate.clone(), vec![other.clone()]), None, "{candidate} with {other:?}");
    }
}

#[test]
fn missing_values_are_reported_before_conflicts() {
    let some = with(
        with(mtu(&json!("{{ values.mtu }}")), "nodeValues", json!({ "worker-1": { "mtu": 1500 } })),
        "nodeSelector",
        json!({ "parity": "odd" }),
    );
    assert_eq!(
        check(some, vec![("b", mtu(&json!(9000)))]).as_deref(),
        Some(
            "node \"worker-3\": desiredState.interfaces[0].mtu: values.mtu is neither in nodeValues of node \"worker-3\" nor in values"
        )
    );
    let address = json!({ "values": { "ip": "10.0.0.1" }, "desiredState": { "interfaces": [
        { "name": "eth1", "ipv4": { "address": [{ "ip": "{{ values.ip }}", "prefix-length": 24 }] } }
    ] } });
    assert_eq!(
        check(address.clone(), Vec::new()).as_deref(),
        Some(
            "nodes \"worker-1\" and \"worker-2\" would both have the address 10.0.0.1; give each its own in nodeValues"
        )
    );
    assert_eq!(check(with(address, "nodeSelector", json!({ "number": "1" })), Vec::new()), None);
}
