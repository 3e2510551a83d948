//! What is wished for, out of the text of one document.

use std::collections::BTreeMap;

use knmstate_api::{NodeNetworkConfigurationEnactmentSpec, Permit, State};
use knmstate_core::order::{Source, order};
use knmstate_host::HostError;
use serde_json::Value;

use crate::stores::directory::policies::{documents, policy};

/// A desired state, with what a policy may say about it besides.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wish {
    pub spec: NodeNetworkConfigurationEnactmentSpec,
    /// Policies fill in what they do not say about bridges; a state means what it says.
    pub bridge_defaults: bool,
}

/// Reads a document: a NodeNetworkConfigurationPolicy, a state as nmstate writes it, or a state with captures.
///
/// Of a policy its desired state, captures and probes count. Mistakes are told without quoting the document, which may
/// hold secrets.
pub fn read(text: &str) -> Result<Wish, String> {
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
        let source = Source { name, uid: None, generation: 1 };
        let spec = order("", source, &policy.spec, policy.spec.desired_state.clone(), Permit::Apply);
        if spec.permit != Permit::Apply {
            return Err("spec.mode: this policy is to be planned and not to be applied".to_owned());
        }
        return Ok(Wish { spec, bridge_defaults: true });
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
        _ => return Err("desiredState: a map of keys such as interfaces and routes is expected".to_owned()),
    };
    understood(&spec)?;
    Ok(Wish { spec, bridge_defaults: false })
}

/// What is wrong whatever the machine is like is found before it is looked at. Captures have to be filled in first.
fn understood(spec: &NodeNetworkConfigurationEnactmentSpec) -> Result<(), String> {
    if spec.capture.is_empty()
        && let Some(state) = &spec.desired_state
    {
        let parsed = knmstate_host::NetworkState::parse(Value::Object(state.0.clone()));
        parsed.map_err(|error: HostError| error.to_string())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn states_policies_and_states_with_captures_are_understood() {
        let wanted = json!({ "interfaces": [{ "name": "eth1", "mtu": 1400 }] });
        let policy = json!({ "apiVersion": "nmstate.io/v1", "kind": "NodeNetworkConfigurationPolicy",
            "metadata": { "name": "p" }, "spec": { "desiredState": wanted,
            "probes": [{ "name": "web", "tcp": { "host": "10.0.0.1", "port": 80 } }] } });
        let captured = json!({ "capture": { "gw": "routes.running.destination==\"0.0.0.0/0\"" }, "desiredState": wanted });
        for (case, text, bridge_defaults, captures, probes) in [
            ("a state", format!("---\n{wanted}"), false, 0, 0),
            ("a policy", policy.to_string(), true, 0, 1),
            ("a state with captures", captured.to_string(), false, 1, 0),
        ] {
            let wish = read(&text).unwrap();
            let state = wish.spec.desired_state.map(|state| Value::Object(state.0));
            assert_eq!(state, Some(wanted.clone()), "{case}");
            assert_eq!(wish.bridge_defaults, bridge_defaults, "{case}");
            assert_eq!((wish.spec.capture.len(), wish.spec.probes.len()), (captures, probes), "{case}");
        }
        assert!(read("").unwrap().spec.desired_state.is_none_or(|state| state.0.is_empty()));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place_and_without_the_text() {
        for (text, said) in [
            ("interfaces: [", "line "),
            ("a: 1\n---\nb: 2\n", "2 documents"),
            ("- name: eth1\n", "a map of keys"),
            ("desiredState: hush\n", "desiredState"),
            ("capture: hush\ndesiredState: {}\n", "capture"),
            ("kind: Pod\napiVersion: v1\n", "NodeNetworkConfigurationPolicy"),
            ("interfaces: 7\n", "interfaces"),
        ] {
            let why = read(text).unwrap_err();
            assert!(why.contains(said) && !why.contains("hush"), "{text:?}: {why}");
        }
    }
}
