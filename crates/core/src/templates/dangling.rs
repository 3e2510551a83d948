//! References that cannot be resolved on any node.

use std::collections::BTreeSet;

use knmstate_api::NodeNetworkConfigurationPolicySpec;
use serde_json::{Map, Value};

use super::{
    in_a_key, is_read,
    reference::{Part, Reference, parts},
};
use knmstate_document::secrets;

/// The first reference of a policy that cannot be resolved on any node, with the names that exist; `None` if there is
/// none.
pub fn dangling(policy: &NodeNetworkConfigurationPolicySpec) -> Option<String> {
    let desired = policy.desired_state.as_ref()?;
    below(&desired.0, "desiredState", policy)
}

fn below(
    map: &Map<String, Value>,
    path: &str,
    policy: &NodeNetworkConfigurationPolicySpec,
) -> Option<String> {
    map.iter().find_map(|(key, value)| {
        if key.contains("{{") {
            return Some(format!("{path}: {}", in_a_key(key)));
        }
        at(value, secrets::is_secret(key, value), &format!("{path}.{key}"), policy)
    })
}

fn at(
    value: &Value,
    secret: bool,
    path: &str,
    policy: &NodeNetworkConfigurationPolicySpec,
) -> Option<String> {
    match value {
        Value::String(text) if is_read(text, secret) => {
            wrong(text, policy).map(|why| format!("{path}: {why}"))
        }
        Value::Array(entries) => entries
            .iter()
            .enumerate()
            .find_map(|(index, entry)| at(entry, secret, &format!("{path}[{index}]"), policy)),
        Value::Object(map) => below(map, path, policy),
        _ => None,
    }
}

fn wrong(text: &str, policy: &NodeNetworkConfigurationPolicySpec) -> Option<String> {
    let parts = match parts(text) {
        Ok(parts) => parts,
        Err(why) => return Some(why),
    };
    let references = parts.iter().filter_map(|part| match part {
        Part::Text(_) => None,
        Part::Reference { inside, .. } => Some(Reference::read(inside)),
    });
    references.into_iter().find_map(|reference| match reference {
        Err(why) => Some(why),
        Ok(Reference::Capture(name)) if !policy.capture.contains_key(name) => {
            Some(format!("there is no capture {name:?}; {}", existing("captures", policy.capture.keys())))
        }
        Ok(reference @ Reference::Value(key)) => {
            let everywhere =
                policy.values.keys().chain(policy.node_values.values().flat_map(|own| own.keys()));
            let keys: BTreeSet<&String> = everywhere.collect();
            let missing = !keys.iter().any(|known| *known == key);
            missing.then(|| {
                format!(
                    "{reference} is neither in values nor in nodeValues of any node; {}",
                    existing("values", keys)
                )
            })
        }
        Ok(_) => None,
    })
}

fn existing<'a>(what: &str, names: impl IntoIterator<Item = &'a String>) -> String {
    const MAX: usize = 10;
    let names: Vec<&str> = names.into_iter().map(String::as_str).collect();
    match names.len() {
        0 => format!("there are no {what}"),
        count if count > MAX => {
            format!("the {what} are {} and {} more", names[..MAX].join(", "), count - MAX)
        }
        _ => format!("the {what} are {}", names.join(", ")),
    }
}
