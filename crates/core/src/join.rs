//! Several desired states as one, so that a node is changed once instead of once per policy.

use serde_json::Value;

use crate::document::{Document, text};

/// Two documents that cannot be joined: both speak of the same thing and do not say the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Where, such as `interfaces[eth1].mtu`.
    pub path: String,
}

/// One document that asks for everything that the given ones ask for.
///
/// Interfaces are told apart by name, and by type where both have one; routes, rules and mappings are added up; everything
/// else has to be equal where it is said twice.
pub fn join<'a>(documents: impl IntoIterator<Item = &'a Document>) -> Result<Document, Conflict> {
    let mut whole = Document::new();
    for document in documents {
        for (section, value) in document.iter().filter(|(_, value)| !value.is_null()) {
            match whole.get_mut(section) {
                None => {
                    whole.insert(section.clone(), value.clone());
                }
                Some(known) if section == "interfaces" => add_interfaces(known, value)?,
                Some(known) => merge(known, value, section)?,
            }
        }
    }
    Ok(whole)
}

fn add_interfaces(known: &mut Value, added: &Value) -> Result<(), Conflict> {
    let (Value::Array(known), Value::Array(added)) = (known, added) else {
        return Err(Conflict { path: "interfaces".to_owned() });
    };
    for interface in added {
        let same = known.iter_mut().find(|other| is_same_interface(other, interface));
        match same {
            None => known.push(interface.clone()),
            Some(other) => {
                let name = interface.as_object().map(|interface| text(interface, "name")).unwrap_or_default();
                merge(other, interface, &format!("interfaces[{name}]"))?;
            }
        }
    }
    Ok(())
}

fn is_same_interface(one: &Value, other: &Value) -> bool {
    let (Some(one), Some(other)) = (one.as_object(), other.as_object()) else { return false };
    let (type_of_one, type_of_other) = (text(one, "type"), text(other, "type"));
    text(one, "name") == text(other, "name")
        && (type_of_one == type_of_other || type_of_one.is_empty() || type_of_other.is_empty())
}

/// Adds what is said in `added`. Lists of routes, rules and mappings add up, other lists have to be equal.
fn merge(known: &mut Value, added: &Value, path: &str) -> Result<(), Conflict> {
    match (known, added) {
        (Value::Object(known), Value::Object(added)) => {
            for (key, value) in added {
                match known.get_mut(key) {
                    None => {
                        known.insert(key.clone(), value.clone());
                    }
                    Some(known) => merge(known, value, &format!("{path}.{key}"))?,
                }
            }
            Ok(())
        }
        (Value::Array(known), Value::Array(added)) if adds_up(path) => {
            for entry in added {
                if !known.contains(entry) {
                    known.push(entry.clone());
                }
            }
            Ok(())
        }
        (known, added) if known == added => Ok(()),
        _ => Err(Conflict { path: path.to_owned() }),
    }
}

fn adds_up(path: &str) -> bool {
    matches!(path, "routes.config" | "route-rules.config" | "ovn.bridge-mappings")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn joined(documents: &[Value]) -> Result<Value, String> {
        join(documents.iter().map(|document| document.as_object().unwrap()))
            .map(Value::Object)
            .map_err(|conflict| conflict.path)
    }

    #[test]
    fn documents_add_up() {
        let one = json!({
            "interfaces": [{ "name": "eth1", "state": "up", "ipv4": { "enabled": true } }],
            "routes": { "config": [{ "destination": "10.1.0.0/16" }] },
        });
        let other = json!({
            "interfaces": [{ "name": "eth2" }, { "name": "eth1", "state": "up", "mtu": 9000, "ipv4": { "dhcp": true } }],
            "routes": { "config": [{ "destination": "10.1.0.0/16" }, { "destination": "10.2.0.0/16" }] },
            "dns-resolver": { "config": { "server": ["10.0.0.1"] } },
            "hostname": null,
        });
        let expected = json!({
            "interfaces": [
                { "name": "eth1", "state": "up", "ipv4": { "enabled": true, "dhcp": true }, "mtu": 9000 },
                { "name": "eth2" },
            ],
            "routes": { "config": [{ "destination": "10.1.0.0/16" }, { "destination": "10.2.0.0/16" }] },
            "dns-resolver": { "config": { "server": ["10.0.0.1"] } },
        });
        assert_eq!(joined(&[one.clone(), other]), Ok(expected));
        assert_eq!(joined(&[one.clone(), one.clone()]), Ok(one));
        assert_eq!(joined(&[]), Ok(json!({})));
    }

    #[test]
    fn an_interface_of_another_type_is_another_interface() {
        let of_type = |kind: &str| json!({ "interfaces": [{ "name": "br0", "type": kind }] });
        let both = joined(&[of_type("ovs-bridge"), of_type("ovs-interface")]).unwrap();
        assert_eq!(both["interfaces"].as_array().unwrap().len(), 2);
        let one = joined(&[of_type("ovs-bridge"), json!({ "interfaces": [{ "name": "br0", "mtu": 1400 }] })])
            .unwrap();
        assert_eq!(one["interfaces"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn what_is_said_differently_is_named() {
        for (one, other, path) in [
            (
                json!({ "interfaces": [{ "name": "eth1", "mtu": 1500 }] }),
                json!({ "interfaces": [{ "name": "eth1", "mtu": 9000 }] }),
                "interfaces[eth1].mtu",
            ),
            (
                json!({ "interfaces": [{ "name": "b", "link-aggregation": { "port": ["eth1"] } }] }),
                json!({ "interfaces": [{ "name": "b", "link-aggregation": { "port": ["eth2"] } }] }),
                "interfaces[b].link-aggregation.port",
            ),
            (
                json!({ "dns-resolver": { "config": { "server": ["10.0.0.1"] } } }),
                json!({ "dns-resolver": { "config": { "server": ["10.0.0.2"] } } }),
                "dns-resolver.config.server",
            ),
            (
                json!({ "hostname": { "config": "a" } }),
                json!({ "hostname": { "config": "b" } }),
                "hostname.config",
            ),
        ] {
            assert_eq!(joined(&[one, other]), Err(path.to_owned()));
        }
    }
}
