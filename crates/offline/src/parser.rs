//! Where in a document it is that nmstate's parser does not understand it.
//!
//! The parser says what is wrong and not where. So the part is looked for without which the rest is understood.

use knmstate_document::{NetworkState, Place};
use nmstate::NetworkState as Document;
use serde_json::{Map, Value, json};

/// The place of a mistake that nmstate finds only once it knows what kind of interface is meant: one that is on the
/// machine already may be named without its type. `None` when there is none of that sort.
pub fn find_with_types(desired: &NetworkState, current: &NetworkState) -> Option<Place> {
    let mut document = desired.clone().into_value();
    for interface in document.get_mut("interfaces").and_then(Value::as_array_mut).into_iter().flatten() {
        let name = interface.get("name").and_then(Value::as_str).unwrap_or_default();
        let known = current.interface(name).and_then(|interface| interface.get("type")).cloned();
        if let (Some(known), Some(interface)) = (known, interface.as_object_mut()) {
            // In a configuration, a veth is an ethernet interface.
            let kind = if known == "veth" { json!("ethernet") } else { known };
            interface.entry("type").or_insert(kind);
        }
    }
    (!is_understood(document.clone())).then(|| find(&document))
}

/// The place of the first mistake in a document that nmstate does not understand.
pub fn find(document: &Value) -> Place {
    let sections = document.as_object().into_iter().flatten();
    for (section, value) in sections {
        let alone = |value: Value| is_understood(json!({ section: value }));
        if alone(value.clone()) {
            continue;
        }
        let Value::Array(entries) = value else { return descend(value, Place::key(section), &alone) };
        // Each interface by itself, so that a second mistake does not hide the first.
        for entry in entries {
            let alone = |entry: Value| alone(json!([entry]));
            if !alone(entry.clone()) {
                let name = entry.get("name").and_then(Value::as_str).unwrap_or_default();
                return descend(entry, Place::interface(name), &alone);
            }
        }
        return Place::key(section);
    }
    Place::document()
}

fn descend(value: &Value, place: Place, is_understood: &dyn Fn(Value) -> bool) -> Place {
    let culprit = match value {
        // Not the type: without it, nmstate takes any key for granted.
        Value::Object(map) => map.iter().filter(|(key, _)| *key != "type").find_map(|(key, below)| {
            let with = |below: Option<Value>| is_understood(Value::Object(replaced(map, key, below)));
            with(None).then(|| descend(below, place.below(key), &|below| with(Some(below))))
        }),
        Value::Array(entries) => entries.iter().enumerate().find_map(|(index, below)| {
            let with = |below: Option<Value>| {
                let mut entries = entries.clone();
                entries.splice(index..=index, below);
                is_understood(Value::Array(entries))
            };
            with(None).then(|| descend(below, place.entry(index), &|below| with(Some(below))))
        }),
        _ => None,
    };
    culprit.unwrap_or(place)
}

fn replaced(map: &Map<String, Value>, key: &str, value: Option<Value>) -> Map<String, Value> {
    let mut map = map.clone();
    match value {
        Some(value) => map.insert(key.to_owned(), value),
        None => map.shift_remove(key),
    };
    map
}

fn is_understood(document: Value) -> bool {
    serde_json::from_value::<Document>(document).is_ok()
}

/// Whether nmstate's parser takes a document, and if not, what it says.
pub fn understood(document: &Value) -> Result<(), String> {
    serde_json::from_value::<Document>(document.clone()).map(|_| ()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mistake_is_found_wherever_it_is() {
        for (document, place) in [
            (json!({ "interfaces": [], "interfacs": [] }), "interfacs"),
            (
                json!({ "interfaces": [{ "name": "eth0" }, { "name": "eth1", "type": "ethernet", "mtuu": 1400 }] }),
                "interfaces[eth1].mtuu",
            ),
            (
                json!({ "interfaces": [{ "name": "eth1", "type": "ethernet", "ipv4": { "address": [
                    { "ip": "10.0.0.1", "prefix-length": 24 }, { "ip": "10.0.0.300", "prefix-length": 24 }
                ] } }] }),
                "interfaces[eth1].ipv4.address[1]",
            ),
            (
                json!({ "interfaces": [{ "name": "eth1", "type": "ethernet", "mtu": "many", "ipv4": { "dhcpp": true } }] }),
                "interfaces[eth1]",
            ),
            (
                json!({ "routes": { "config": [{ "destination": "10.0.0.0/8" }, { "metric": "low" }] } }),
                "routes.config[1].metric",
            ),
            (json!({ "dns-resolver": { "config": { "server": "1.1.1.1" } } }), "dns-resolver.config.server"),
        ] {
            assert!(!is_understood(document.clone()), "this is no mistake: {document}");
            assert_eq!(find(&document).to_string(), place, "{document}");
        }
    }

    #[test]
    fn an_interface_may_be_named_without_its_type() {
        let state = |document: Value| NetworkState::parse(document).expect("a state");
        let current = state(json!({ "interfaces": [{ "name": "eth1", "type": "veth" }] }));
        let find = |desired: Value| find_with_types(&state(desired), &current).map(|place| place.to_string());
        let wrong = json!({ "interfaces": [{ "name": "eth1", "mtuu": 1400 }] });
        assert!(is_understood(wrong.clone()), "without the type, nmstate takes it");
        assert_eq!(find(wrong).as_deref(), Some("interfaces[eth1].mtuu"));
        assert_eq!(find(json!({ "interfaces": [{ "name": "eth1", "mtu": 1400 }] })), None);
    }
}
