//! Reads what a command has to apply from the text of one document.

use std::collections::BTreeMap;

use knmstate_api::{NodeNetworkConfigurationEnactmentSpec, Permit, State};
use knmstate_core::order::{OrderSource, order};
use serde_json::Value;

use crate::stores::directory::policies::{documents, policy};

/// A desired state, and the settings that a policy may have besides.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChangeRequest {
    /// The desired state, its captures and probes, in the form of an order.
    pub spec: NodeNetworkConfigurationEnactmentSpec,
    /// Whether ports of bridges become VLAN trunks by default: true for policies, false for a plain state.
    pub bridge_defaults: bool,
}

impl ChangeRequest {
    /// Reads a document: a NodeNetworkConfigurationPolicy, a state as nmstate writes it, or a state with captures.
    ///
    /// Of a policy its desired state, captures and probes are used. Fails with a message for the admin, which does not
    /// quote the document, because that may hold secrets.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut documents = documents(text)
            .map_err(|(place, what)| if place.is_empty() { what } else { format!("{place}: {what}") })?;
        if documents.len() > 1 {
            return Err(format!("there are {} documents in it; one is applied at a time", documents.len()));
        }
        let document = documents.pop().unwrap_or_else(|| Value::Object(serde_json::Map::new()));
        let Some(map) = document.as_object() else {
            return Err("a state is a map of keys such as interfaces and routes".to_owned());
        };
        if map.contains_key("kind") || map.contains_key("apiVersion") {
            let policy = policy(&document)?;
            let name = policy.metadata.name.as_deref().unwrap_or_default();
            let source = OrderSource { name, uid: None, generation: 1 };
            let spec = order("", source, &policy.spec, policy.spec.desired_state.clone(), Permit::Apply);
            if spec.permit != Permit::Apply {
                return Err("spec.mode: this policy is to be planned and not to be applied".to_owned());
            }
            return Ok(Self { spec, bridge_defaults: true });
        }
        let mut spec = NodeNetworkConfigurationEnactmentSpec::default();
        let desired = map.get("desiredState").or_else(|| map.get("desired"));
        let state = if desired.is_some() || map.contains_key("capture") {
            spec.capture = match map.get("capture") {
                None | Some(Value::Null) => BTreeMap::new(),
                Some(captures) => serde_json::from_value(captures.clone())
                    .map_err(|_| "capture: a map of names and expressions is expected".to_owned())?,
            };
            desired.cloned().unwrap_or_default()
        } else {
            document
        };
        spec.desired_state = match state {
            Value::Null => None,
            Value::Object(map) => Some(State(map)),
            _ => {
                return Err(
                    "desiredState: a map of keys such as interfaces and routes is expected".to_owned()
                );
            }
        };
        check(&spec)?;
        Ok(Self { spec, bridge_defaults: false })
    }
}

/// Finds mistakes that do not depend on the node, before the node is read. A state with captures can only be checked
/// once they are resolved.
fn check(spec: &NodeNetworkConfigurationEnactmentSpec) -> Result<(), String> {
    if spec.capture.is_empty()
        && let Some(state) = &spec.desired_state
    {
        let parsed = knmstate_host::NetworkState::parse(Value::Object(state.0.clone()));
        parsed.map_err(|invalid| invalid.to_string())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn states_policies_and_states_with_captures_are_read() {
        let desired = json!({ "interfaces": [{ "name": "eth1", "mtu": 1400 }] });
        let policy = json!({ "apiVersion": "nmstate.io/v1", "kind": "NodeNetworkConfigurationPolicy",
            "metadata": { "name": "p" }, "spec": { "desiredState": desired,
            "probes": [{ "name": "web", "tcp": { "host": "10.0.0.1", "port": 80 } }] } });
        let captured = json!({ "capture": { "gw": "routes.running.destination==\"0.0.0.0/0\"" }, "desiredState": desired });
        for (case, text, bridge_defaults, captures, probes) in [
            ("a state", format!("---\n{desired}"), false, 0, 0),
            ("a policy", policy.to_string(), true, 0, 1),
            ("a state with captures", captured.to_string(), false, 1, 0),
        ] {
            let request = ChangeRequest::parse(&text).unwrap();
            let state = request.spec.desired_state.map(|state| Value::Object(state.0));
            assert_eq!(state, Some(desired.clone()), "{case}");
            assert_eq!(request.bridge_defaults, bridge_defaults, "{case}");
            assert_eq!((request.spec.capture.len(), request.spec.probes.len()), (captures, probes), "{case}");
        }
        assert!(ChangeRequest::parse("").unwrap().spec.desired_state.is_none_or(|state| state.0.is_empty()));
    }

    #[test]
    fn a_mistake_is_named_with_its_place_and_without_the_text() {
        for (text, expected) in [
            ("interfaces: [", "line "),
            ("a: 1\n---\nb: 2\n", "2 documents"),
            ("- name: eth1\n", "a map of keys"),
            ("desiredState: hush\n", "desiredState"),
            ("capture: hush\ndesiredState: {}\n", "capture"),
            ("kind: Pod\napiVersion: v1\n", "NodeNetworkConfigurationPolicy"),
            ("interfaces: 7\n", "interfaces"),
        ] {
            let why = ChangeRequest::parse(text).unwrap_err();
            assert!(why.contains(expected) && !why.contains("hush"), "{text:?}: {why}");
        }
    }
}
