//! Watch events for tests.

use knmstate_api::{NodeNetworkConfigurationEnactment, NodeNetworkConfigurationPolicy};
use knmstate_client::watch::ObjectEvent;
use kube::core::DeserializeGuard;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{SlimNode, SlimPod};

pub(crate) fn changed<K>(object: K) -> ObjectEvent<K> {
    ObjectEvent::Changed(DeserializeGuard(Ok(object)))
}

pub(crate) fn gone<K>(object: K) -> ObjectEvent<K> {
    ObjectEvent::Gone(DeserializeGuard(Ok(object)))
}

fn read<K: DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

pub(crate) fn policy(name: &str, generation: i64, spec: &Value) -> NodeNetworkConfigurationPolicy {
    read(json!({"apiVersion": "nmstate.io/v1", "kind": "NodeNetworkConfigurationPolicy",
        "metadata": {"name": name, "uid": format!("uid-of-{name}"), "generation": generation,
            "resourceVersion": generation.to_string()},
        "spec": spec}))
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
) -> NodeNetworkConfigurationEnactment {
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
