//! Several desired states as one, so that a node is changed once instead of once per policy.

use std::borrow::Cow;

use knmstate_document::{
    Document,
    interfaces::{interface_name, is_same_interface},
    is_absent,
    references::with_main_keys,
    routing::{canonical_route_or_as_written, is_same_route, route_name},
    scalar,
};
use serde_json::Value;

/// Two documents that cannot be joined: both set the same key, to different values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Where, such as `interfaces[eth1].mtu`.
    pub path: String,
}

/// One document that asks for everything that the given ones ask for.
///
/// Entries for the same interface are merged; routes, rules and mappings are united; everything else has to be equal
/// where both documents have it.
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
        let is_same = |other: &&mut Value| match (other.as_object(), interface.as_object()) {
            (Some(one), Some(other)) => is_same_interface(one, other),
            _ => false,
        };
        match known.iter_mut().find(is_same) {
            Some(Value::Object(known)) => merge_interface(known, interface)?,
            _ => known.push(interface.clone()),
        }
    }
    Ok(())
}

/// Under the main names of keys: with two names for one key, nmstate would refuse the whole.
fn merge_interface(known: &mut Document, added: &Value) -> Result<(), Conflict> {
    let Some(added) = added.as_object() else { return Ok(()) };
    let path = format!("interfaces[{}]", interface_name(added));
    if let Cow::Owned(renamed) = with_main_keys(known) {
        *known = renamed;
    }
    let mut whole = Value::Object(std::mem::take(known));
    let merged = merge(&mut whole, &Value::Object(with_main_keys(added).into_owned()), &path);
    if let Value::Object(whole) = whole {
        *known = whole;
    }
    merged
}

/// Adds the routes that are not there yet. A route that one of the documents gives a metric gets it.
fn add_routes(known: &mut Vec<Value>, added: &[Value]) -> Result<(), Conflict> {
    for entry in added {
        let is_same = |other: &&mut Value| match (other.as_object(), entry.as_object()) {
            (Some(one), Some(other)) if !is_absent(one) && !is_absent(other) => {
                is_same_route(&canonical_route_or_as_written(one), &canonical_route_or_as_written(other))
            }
            _ => **other == *entry,
        };
        let Some(same) = known.iter_mut().find(is_same) else {
            known.push(entry.clone());
            continue;
        };
        let Some(metric) = entry.get("metric").filter(|metric| !metric.is_null()) else { continue };
        match same.get("metric").filter(|known| !known.is_null()) {
            None => same["metric"] = metric.clone(),
            Some(known) if scalar::same(known, metric) => {}
            Some(_) => {
                let name = entry.as_object().map(route_name).unwrap_or_default();
                return Err(Conflict { path: format!("routes.config[{name}].metric") });
            }
        }
    }
    Ok(())
}

/// Adds the keys of `added`. Lists of routes, rules and mappings are united, other lists have to be equal.
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
        (Value::Array(known), Value::Array(added)) if path == "routes.config" => add_routes(known, added),
        (Value::Array(known), Value::Array(added)) if adds_up(path) => {
            for entry in added {
                if !known.contains(entry) {
                    known.push(entry.clone());
                }
            }
            Ok(())
        }
        (known, added) if scalar::same_value(known, added) => Ok(()),
        _ => Err(Conflict { path: path.to_owned() }),
    }
}

fn adds_up(path: &str) -> bool {
    matches!(path, "route-rules.config" | "ovn.bridge-mappings")
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
    fn a_difference_is_named() {
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

    #[test]
    fn the_other_name_of_a_key_is_the_same_key() {
        let one = json!({ "interfaces": [{ "name": "b", "type": "bond", "bond": { "ports": ["eth1"] } }] });
        let other = json!({ "interfaces": [{ "name": "b", "link-aggregation": { "mode": "active-backup", "port": ["eth1"] } }] });
        let expected = json!({ "interfaces": [{ "name": "b", "type": "bond",
            "link-aggregation": { "port": ["eth1"], "mode": "active-backup" } }] });
        assert_eq!(joined(&[one.clone(), other]), Ok(expected));
        let other = json!({ "interfaces": [{ "name": "b", "link-aggregation": { "port": ["eth2"] } }] });
        assert_eq!(joined(&[one, other]), Err("interfaces[b].link-aggregation.port".to_owned()));
    }

    #[test]
    fn an_interface_of_the_kernel_has_one_type() {
        let of_type = |kind: &str| json!({ "interfaces": [{ "name": "x0", "type": kind }] });
        assert_eq!(
            joined(&[of_type("bond"), of_type("linux-bridge")]),
            Err("interfaces[x0].type".to_owned())
        );
    }

    #[test]
    fn a_route_is_the_same_whatever_its_metric() {
        let route = |more: Value| {
            let mut route = json!({ "destination": "10.0.0.0/8", "next-hop-interface": "e", "next-hop-address": "10.1.0.1" });
            for (key, value) in more.as_object().unwrap() {
                route[key] = value.clone();
            }
            json!({ "routes": { "config": [route] } })
        };
        let path = "routes.config[10.0.0.0/8 via e].metric".to_owned();
        assert_eq!(joined(&[route(json!({ "metric": 100 })), route(json!({ "metric": 200 }))]), Err(path));
        for (other, expected) in [
            (json!({ "metric": "100" }), 1),
            (json!({}), 1),
            (json!({ "metric": 100, "destination": "10.0.0.1/8", "table-id": 254 }), 1),
            (json!({ "metric": 200, "next-hop-address": "10.1.0.2" }), 2),
            (json!({ "metric": 200, "table-id": 7 }), 2),
            (json!({ "metric": 200, "next-hop-interface": "f" }), 2),
            (json!({ "metric": 200, "state": "absent" }), 2),
        ] {
            let whole = joined(&[route(json!({ "metric": 100 })), route(other.clone())]).unwrap();
            assert_eq!(whole["routes"]["config"].as_array().unwrap().len(), expected, "{other}");
        }
    }
}
