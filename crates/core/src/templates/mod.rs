//! Templates: the desired state of a policy for one node, with its values filled in.
//!
//! `{{ values.ip }}`, `{{ node.name }}` and `{{ node.labels["rack"] }}` are filled in here, before an order is written.
//! `{{ capture.… }}` belongs to nmpolicy: only the node can resolve it, so it is not changed. A string that is exactly
//! one reference becomes the value with its type; inside a longer string the value is inserted as text.

mod addresses;
mod dangling;
mod reference;

use std::{collections::BTreeMap, fmt};

use knmstate_api::{NodeNetworkConfigurationPolicySpec, State};
use serde_json::{Map, Value};

pub(crate) use addresses::duplicate_address;
pub use dangling::dangling;
use knmstate_document::secrets;
use reference::{Part, Reference, parts};

/// A reference that cannot be resolved for a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateError {
    pub node: String,
    /// The path in the policy, such as `desiredState.interfaces[0].ipv4.address[0].ip`.
    pub path: String,
    pub why: String,
}

impl fmt::Display for TemplateError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "node {:?}: {}: {}", self.node, self.path, self.why)
    }
}

impl std::error::Error for TemplateError {}

/// The desired state of a policy for a node with these labels. nodeValues take precedence over values.
///
/// # Errors
///
/// If a reference cannot be read or has no value for the node.
pub fn render(
    policy: &NodeNetworkConfigurationPolicySpec,
    node: &str,
    labels: &BTreeMap<String, String>,
) -> Result<Option<State>, TemplateError> {
    let Some(desired) = &policy.desired_state else { return Ok(None) };
    let mut rendered = desired.clone();
    if has_braces_below(&rendered.0) {
        let own = policy.node_values.get(node);
        let values = NodeValues { node, labels, own, common: &policy.values };
        values.fill_map(&mut rendered.0, "desiredState").map_err(|(path, why)| TemplateError {
            node: node.to_owned(),
            path,
            why,
        })?;
    }
    Ok(Some(rendered))
}

/// Whether the desired state is the same on every node, because it has no references to values or to the node.
pub fn is_same_everywhere(policy: &NodeNetworkConfigurationPolicySpec) -> bool {
    policy
        .desired_state
        .as_ref()
        .is_none_or(|desired| !desired.0.iter().any(|(key, value)| is_filled(key, value)))
}

/// Whether a value, or anything below it, has references that are filled in here.
fn is_filled(key: &str, value: &Value) -> bool {
    match value {
        Value::String(text) => is_template(text, secrets::is_secret(key, value)),
        Value::Array(entries) => entries.iter().any(|entry| is_filled(key, entry)),
        Value::Object(map) => map.iter().any(|(key, below)| is_filled(key, below)),
        _ => false,
    }
}

/// Whether a string has references that are filled in here, well-formed or not.
pub(crate) fn is_template(text: &str, secret: bool) -> bool {
    is_read(text, secret)
        && parts(text).map_or(true, |parts| {
            parts.iter().any(|part| match part {
                Part::Text(_) => false,
                Part::Reference { inside, .. } => {
                    !matches!(Reference::read(inside), Ok(Reference::Capture(_)))
                }
            })
        })
}

/// Whether a string is searched for references. A secret may contain any braces, so there it has to be a reference with
/// one of our prefixes.
fn is_read(text: &str, secret: bool) -> bool {
    text.contains("{{") && (!secret || reference::is_meant(text))
}

fn has_braces_below(map: &Map<String, Value>) -> bool {
    fn has_braces(value: &Value) -> bool {
        match value {
            Value::String(text) => text.contains("{{"),
            Value::Array(entries) => entries.iter().any(has_braces),
            Value::Object(map) => has_braces_below(map),
            _ => false,
        }
    }
    map.iter().any(|(key, value)| key.contains("{{") || has_braces(value))
}

/// The values of one node. Errors are pairs of a path and a reason.
struct NodeValues<'a> {
    node: &'a str,
    labels: &'a BTreeMap<String, String>,
    own: Option<&'a BTreeMap<String, Value>>,
    common: &'a BTreeMap<String, Value>,
}

impl NodeValues<'_> {
    fn fill_map(&self, map: &mut Map<String, Value>, path: &str) -> Result<(), (String, String)> {
        for (key, value) in map {
            if key.contains("{{") {
                return Err((path.to_owned(), in_a_key(key)));
            }
            let secret = secrets::is_secret(key, value);
            self.fill(value, secret, &format!("{path}.{key}"))?;
        }
        Ok(())
    }

    fn fill(&self, value: &mut Value, secret: bool, path: &str) -> Result<(), (String, String)> {
        match value {
            Value::String(text) if is_read(text, secret) => {
                *value = self.filled(text, secret).map_err(|why| (path.to_owned(), why))?;
            }
            Value::Array(entries) => {
                for (index, entry) in entries.iter_mut().enumerate() {
                    self.fill(entry, secret, &format!("{path}[{index}]"))?;
                }
            }
            Value::Object(map) => self.fill_map(map, path)?,
            _ => {}
        }
        Ok(())
    }

    fn filled(&self, text: &str, secret: bool) -> Result<Value, String> {
        let parts = parts(text)?;
        if let [Part::Reference { inside, .. }] = parts[..] {
            return match Reference::read(inside)? {
                Reference::Capture(_) => Ok(Value::String(text.to_owned())),
                reference => self.value(&reference, secret),
            };
        }
        let mut whole = String::with_capacity(text.len());
        for part in parts {
            match part {
                Part::Text(text) => whole.push_str(text),
                Part::Reference { inside, written } => match Reference::read(inside)? {
                    Reference::Capture(_) => whole.push_str(written),
                    reference => match self.value(&reference, secret)? {
                        Value::String(text) => whole.push_str(&text),
                        scalar @ (Value::Number(_) | Value::Bool(_)) => whole.push_str(&scalar.to_string()),
                        other => {
                            return Err(format!(
                                "{reference} is {}: it cannot be inserted into a longer string",
                                kind(&other)
                            ));
                        }
                    },
                },
            }
        }
        Ok(Value::String(whole))
    }

    fn value(&self, reference: &Reference<'_>, secret: bool) -> Result<Value, String> {
        match reference {
            Reference::Capture(_) => Err("captures can only be resolved on the node".to_owned()),
            Reference::NodeName => Ok(Value::String(self.node.to_owned())),
            Reference::Label(label) => match self.labels.get(*label) {
                Some(value) => Ok(Value::String(value.clone())),
                None => Err(format!("the node has no label {label:?}")),
            },
            Reference::Value(key) => {
                let value = self.own.and_then(|own| own.get(*key)).or_else(|| self.common.get(*key));
                let value = value.ok_or_else(|| {
                    format!("{reference} is neither in nodeValues of node {:?} nor in values", self.node)
                })?;
                // Otherwise rendering twice would give another result than rendering once.
                if holds_reference(value, secret) {
                    return Err(format!(
                        "{reference} contains a reference itself; references in values are not resolved"
                    ));
                }
                Ok(value.clone())
            }
        }
    }
}

fn holds_reference(value: &Value, secret: bool) -> bool {
    match value {
        Value::String(text) => is_read(text, secret),
        Value::Array(entries) => entries.iter().any(|entry| holds_reference(entry, secret)),
        Value::Object(map) => map
            .iter()
            .any(|(key, below)| key.contains("{{") || holds_reference(below, secrets::is_secret(key, below))),
        _ => false,
    }
}

fn in_a_key(key: &str) -> String {
    format!("a reference can replace a value, but not a key: {key}")
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Array(_) => "a list",
        Value::Object(_) => "a map",
        Value::Bool(_) | Value::Number(_) | Value::String(_) => "a single value",
    }
}

#[cfg(test)]
mod tests;
