//! Watch events for tests.

use knmstate_client::watch::ObjectEvent;
use kube::core::{DeserializeGuard, error_boundary::InvalidObject};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{SlimEnactment, SlimNode, SlimPod, SlimPolicy};

pub(crate) fn changed<K>(object: K) -> ObjectEvent<K> {
    ObjectEvent::Changed(DeserializeGuard(Ok(object)))
}

pub(crate) fn gone<K>(object: K) -> ObjectEvent<K> {
    ObjectEvent::Gone(DeserializeGuard(Ok(object)))
}

/// An object that cannot be read.
pub(crate) fn unreadable<K>(metadata: Value) -> DeserializeGuard<K> {
    DeserializeGuard(Err(InvalidObject { error: "it is odd".to_owned(), metadata: read(metadata) }))
}

/// JSON that is nested more deeply than what is read.
pub(crate) fn too_deep() -> String {
    format!("{}1{}", r#"{"a":"#.repeat(200), "}".repeat(200))
}

fn read<K: DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

pub(crate) fn policy(name: &str, generation: i64, spec: &Value) -> SlimPolicy {
    read(json!({"apiVersion": "nmstate.io/v1", "kind": "NodeNetworkConfigurationPolicy",
        "metadata": {"name": name, "uid": format!("uid-of-{name}"), "generation": generation,
            "resourceVersion": generation.to_string()},
        "spec": spec}))
}

/// A policy whose spec cannot be read. The managers of its fields are nested as deeply.
pub(crate) fn unreadable_policy(name: &str, generation: i64) -> SlimPolicy {
    let metadata = serde_json::to_string(&policy(name, generation, &json!({})).metadata).unwrap();
    let (metadata, deep) = (metadata.strip_suffix('}').unwrap(), too_deep());
    let fields = format!(r#""managedFields":[{{"fieldsV1":{deep}}}]"#);
    let spec = format!(r#"{{"desiredState":{deep}}}"#);
    serde_json::from_str(&format!(r#"{{"metadata":{metadata},{fields}}},"spec":{spec}}}"#)).unwrap()
}

pub(crate) fn node(name: &str, labels: &Value, ready: &str) -> SlimNode {
    read(json!({"metadata": {"name": name, "uid": format!("uid-of-{name}"), "labels": labels},
        "status": {"conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": "1970-01-01T00:00:00Z"}]}}))
}

pub(crate) fn pod(name: &str, node: &str) -> SlimPod {
    read(json!({"metadata": {"name": name}, "spec": {"nodeName": node}}))
}

pub(crate) fn ready_pod(name: &str, node: &str) -> SlimPod {
    read(json!({"metadata": {"name": name}, "spec": {"nodeName": node},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]}}))
}

/// An enactment with an order if there is a spec, whose fields override the defaults.
pub(crate) fn enactment(
    node: &str,
    policy: &str,
    version: u64,
    spec: Option<Value>,
    status: &Value,
) -> SlimEnactment {
    let mut object = json!({"apiVersion": "nmstate.io/v1beta1", "kind": "NodeNetworkConfigurationEnactment",
        "metadata": {"name": format!("{node}.{policy}"), "uid": "u", "resourceVersion": version.to_string(),
            "labels": {"nmstate.io/node": node, "nmstate.io/policy": policy}},
        "status": status});
    if let Some(Value::Object(fields)) = spec {
        let mut order =
            json!({"nodeName": node, "policyName": policy, "policyGeneration": 1, "permit": "Wait"});
        for (key, value) in fields {
            order[key] = value;
        }
        object["spec"] = order;
    }
    read(object)
}
