use std::{collections::BTreeMap, sync::Arc};

use serde_json::json;

use super::*;
use crate::admission::review::{
    Endpoint, respond,
    tests::{now, policy, review_of},
};

/// Two nodes and the policy "b", which sets the MTU of eth1.
fn index() -> PolicyIndex {
    let node =
        |name: &str| (name.to_owned(), Arc::new(BTreeMap::from([("name".to_owned(), name.to_owned())])));
    let mut b: NodeNetworkConfigurationPolicy =
        serde_json::from_value(policy(&mtu(&json!(1500)))).expect("a policy");
    b.metadata.name = Some("b".to_owned());
    PolicyIndex {
        policies: BTreeMap::from([("b".to_owned(), Arc::new(b))]),
        nodes: BTreeMap::from([node("worker-1"), node("worker-2")]),
    }
}

fn mtu(mtu: &Value) -> Value {
    json!({ "desiredState": { "interfaces": [{ "name": "eth1", "type": "ethernet", "mtu": mtu }] } })
}

fn reviewed(operation: &str, object: &Value, old: &Value, index: Option<&PolicyIndex>) -> AdmissionResponse {
    let body = review_of("admission.k8s.io/v1", operation, object, old);
    respond(Endpoint::ValidatePolicy, &body, index, &KnownChecks::default(), now())
        .expect("a review")
        .response
        .expect("a response")
}

fn created(spec: &Value) -> AdmissionResponse {
    reviewed("CREATE", &policy(spec), &Value::Null, Some(&index()))
}

#[test]
fn what_can_never_work_is_refused_with_a_helpful_message() {
    let by_node = |values: Value| {
        let mut spec = mtu(&json!("{{ values.mtu }}"));
        spec["nodeValues"] = values;
        spec
    };
    for (spec, code, expected) in [
        (
            json!({ "desiredState": { "interfaces": [{ "name": "eth1", "type": "ethernet", "mtuu": 1500 }] } }),
            422,
            "desiredState: interfaces[eth1].mtuu: unknown key \"mtuu\"; did you mean \"mtu\"?",
        ),
        (json!({ "capture": { "a": "interfaces.name=\"eth1\"" }, "desiredState": {} }), 422, "capture.a: "),
        (
            mtu(&json!("{{ capture.gw.interfaces.0.mtu }}")),
            422,
            "desiredState.interfaces[0].mtu: there is no capture \"gw\"; there are no captures",
        ),
        (
            mtu(&json!(9000)),
            403,
            "conflicts with policy \"b\" on node \"worker-1\" (and 1 more): interfaces[eth1].mtu is 9000 here and 1500 there; change one of them, or select different nodes",
        ),
        (
            by_node(json!({ "worker-1": { "mtu": 1500 } })),
            403,
            "node \"worker-2\": desiredState.interfaces[0].mtu: values.mtu is neither in nodeValues of node \"worker-2\" nor in values",
        ),
        (
            {
                let mut spec = by_node(json!({ "worker-1": { "mtu": "many" } }));
                spec["nodeSelector"] = json!({ "name": "worker-1" });
                spec["mode"] = json!("Plan");
                spec
            },
            422,
            "node \"worker-1\": desiredState: interfaces[eth1].mtu: invalid digit found in string",
        ),
    ] {
        let response = created(&spec);
        assert!(!response.allowed, "{spec}");
        assert_eq!(response.result.code, code, "{spec}");
        assert!(response.result.message.starts_with(expected), "{}", response.result.message);
    }
}

#[test]
fn what_may_work_is_allowed() {
    for spec in [json!({}), mtu(&json!(1500)), mtu(&json!("1500"))] {
        let response = created(&spec);
        assert!(response.allowed, "{spec}: {}", response.result.message);
        assert_eq!(response.warnings, None);
    }
}

#[test]
fn a_policy_is_compared_with_the_others_and_not_with_itself() {
    let mut b = policy(&mtu(&json!(9000)));
    b["metadata"]["name"] = json!("b");
    assert!(reviewed("UPDATE", &b, &Value::Null, Some(&index())).allowed);

    let mut leaving = index();
    let b = Arc::make_mut(leaving.policies.get_mut("b").expect("b"));
    b.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now()));
    assert!(reviewed("CREATE", &policy(&mtu(&json!(9000))), &Value::Null, Some(&leaving)).allowed);
}

#[test]
fn a_stored_policy_is_validated_again_only_if_its_spec_changes() {
    let bad = json!({ "desiredState": { "interfacs": [] } });
    let mut labelled = policy(&bad);
    labelled["metadata"]["labels"] = json!({ "a": "b" });
    assert!(reviewed("UPDATE", &labelled, &policy(&bad), Some(&index())).allowed);
    assert!(reviewed("DELETE", &Value::Null, &policy(&bad), Some(&index())).allowed);
    assert!(!reviewed("UPDATE", &policy(&bad), &policy(&json!({})), Some(&index())).allowed);
}

#[test]
fn without_an_index_policies_are_not_compared_and_a_warning_says_so() {
    let response = reviewed("CREATE", &policy(&mtu(&json!(9000))), &Value::Null, None);
    assert!(response.allowed);
    assert_eq!(response.warnings, Some(vec![NOT_COMPARED.to_owned()]));
    let bad = json!({ "desiredState": { "interfacs": [] } });
    assert!(!reviewed("CREATE", &policy(&bad), &Value::Null, None).allowed);
}

#[test]
fn the_examples_are_accepted() {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut policies = 0;
    for file in [
        "vlan/on-bond.yaml",
        "rolled-back/wrong-nic.yaml",
        "quickstart/10-storage-bridge.yaml",
        "quickstart/20-search-domain.yaml",
    ] {
        let text = std::fs::read_to_string(directory.join(file)).expect("an example");
        let example: NodeNetworkConfigurationPolicy = serde_saphyr::from_str(&text).expect("a policy");
        assert_eq!(refusal("example", &example.spec, None, &KnownChecks::default()), None, "{file}");
        policies += 1;
    }
    assert_eq!(policies, 4);
}

/// What is hidden in the state of a node is hidden in a refusal, too.
#[test]
fn what_the_host_hides_is_not_shown_in_a_conflict() {
    for key in [
        "password",
        "private-key-password",
        "psk",
        "mka-cak",
        "mka-ckn",
        "preshared-key",
        "secret",
        "private-key",
        "identity",
        "mtu",
    ] {
        for value in ["one", "/etc/a/file"] {
            let document = json!({ "interfaces": [{ "name": "eth1", "x": { key: value } }] });
            let state = knmstate_document::NetworkState::parse(document.clone()).expect("a state");
            let hidden = state.without_secrets().into_value() != document;
            let other = json!({ "interfaces": [{ "name": "eth1", "x": { key: "other" } }] });
            let [here, there] =
                [document, other].map(|document| serde_json::from_value(document).expect("a state"));
            let conflict = knmstate_core::conflicts::conflict(&here, &there).expect("a conflict");
            // The other value may be a secret although this one is the name of a file.
            let shown = conflict.to_string().contains(value);
            assert!(!(hidden && shown), "{key}: {conflict}");
            assert_eq!(hidden, knmstate_document::secrets::is_secret(key, &json!(value)), "{key}: {value}");
        }
    }
}
