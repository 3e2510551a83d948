//! Values that replace references while a document is checked.

use knmstate_document::{InvalidDocument, Place, secrets};
use serde_json::{Map, Value, json};

/// A document whose references are filled with values of a likely kind.
#[derive(Debug)]
pub(super) struct Filled {
    pub(super) document: Map<String, Value>,
    /// Where references were.
    pub(super) references: Vec<Place>,
    /// The names that replace references in the names of interfaces, with the references.
    names: Vec<(String, String)>,
    /// Whether something was removed already.
    doubted: bool,
}

impl Filled {
    pub(super) fn of(desired: &Map<String, Value>) -> Self {
        let mut filled =
            Self { document: Map::new(), references: Vec::new(), names: Vec::new(), doubted: false };
        let mut document = desired.clone();
        for (section, value) in &mut document {
            let place = Place::key(section);
            match value {
                Value::Array(interfaces) if section == "interfaces" => {
                    interfaces
                        .retain(|interface| !interface.as_str().is_some_and(|text| text.contains("{{")));
                    for (index, interface) in interfaces.iter_mut().enumerate() {
                        let place = filled.name(interface, index).unwrap_or_else(|| place.entry(index));
                        filled.fill(interface, "", &place);
                    }
                }
                value => filled.fill(value, section, &place),
            }
        }
        filled.document = document;
        filled
    }

    /// Gives an interface a name that no other has if its own is a reference, and says where it is.
    fn name(&mut self, interface: &mut Value, index: usize) -> Option<Place> {
        let name = interface.get("name").and_then(Value::as_str)?.to_owned();
        if !name.contains("{{") {
            return Some(Place::interface(name));
        }
        let stand_in = format!("reference{index}");
        interface["name"] = Value::from(stand_in.clone());
        let place = Place::interface(&stand_in);
        self.names.push((stand_in, name));
        Some(place)
    }

    fn fill(&mut self, value: &mut Value, key: &str, place: &Place) {
        match value {
            Value::String(text) if is_reference(text, key) => {
                self.references.push(place.clone());
                *value = likely(key, text);
            }
            Value::Array(entries) => {
                for (index, entry) in entries.iter_mut().enumerate() {
                    self.fill(entry, key, &place.entry(index));
                }
            }
            Value::Object(map) => {
                for (key, below) in map {
                    self.fill(below, key, &place.below(key));
                }
            }
            _ => {}
        }
    }

    /// Removes what may be wrong at `place` because of a reference. False when there is none.
    pub(super) fn remove_doubtful(&mut self, place: &Place, error: &str) -> bool {
        let culprit = place.to_string();
        let is_below = |reference: &&Place| reference.to_string().starts_with(&culprit);
        let is_above = |reference: &&Place| culprit.starts_with(&reference.to_string());
        let below: Vec<Place> = self.references.iter().filter(is_below).cloned().collect();
        let left_a_gap = self.doubted && error.starts_with("missing field");
        let removed = if !below.is_empty() {
            below
        } else if left_a_gap || self.references.iter().any(|reference| is_above(&reference)) {
            vec![place.clone()]
        } else {
            return false;
        };
        self.references.retain(|reference| !removed.contains(reference));
        self.document = std::mem::take(&mut self.document)
            .into_iter()
            .filter_map(|(section, value)| {
                let below = Place::key(&section);
                Some((section, without(value, &below, &removed)?))
            })
            .collect();
        self.doubted = true;
        true
    }

    /// The error with the names as they are written in the document.
    pub(super) fn as_written(&self, error: InvalidDocument) -> InvalidDocument {
        let name = self.names.iter().find(|(stand_in, _)| error.place.interface_name() == Some(stand_in));
        match name {
            Some((_, written)) => {
                InvalidDocument { place: error.place.of_interface(written), why: error.why }
            }
            None => error,
        }
    }
}

/// By the same rule as captures: in a secret, braces alone are no reference.
pub(crate) fn is_reference(text: &str, key: &str) -> bool {
    let is_meant = || {
        text.match_indices("{{").any(|(at, _)| {
            let inside = text[at + 2..].trim_start();
            ["capture.", "values", "node."].iter().any(|root| inside.starts_with(root))
        })
    };
    text.contains("{{") && (!secrets::is_secret(key, &Value::from(text)) || is_meant())
}

/// A value of the kind that this key has.
fn likely(key: &str, text: &str) -> Value {
    match key {
        "ip" | "next-hop-address" | "server" | "remote" | "local" => json!("192.0.2.1"),
        "destination" | "ip-from" | "ip-to" => json!("192.0.2.0/24"),
        "prefix-length" => json!(24),
        "mac-address" => json!("02:00:00:00:00:01"),
        "mtu" | "metric" | "table-id" | "id" | "priority" | "route-table" | "route-table-id"
        | "total-vfs" => json!(1500),
        "enabled" | "dhcp" | "autoconf" | "auto-dns" | "auto-routes" | "auto-gateway" => json!(true),
        "state" => json!("up"),
        "interfaces" | "config" | "address" | "search" => json!([]),
        "ipv4" | "ipv6" | "routes" | "route-rules" | "dns-resolver" | "ethtool" | "bridge" | "options" => {
            json!({})
        }
        // The text itself is a text.
        _ => json!(text.replace(['{', '}', ' '], "")),
    }
}

/// The value without what is at these places; `None` when that is all of it.
fn without(value: Value, place: &Place, removed: &[Place]) -> Option<Value> {
    if removed.contains(place) {
        return None;
    }
    Some(match value {
        Value::Array(entries) => Value::Array(
            entries
                .into_iter()
                .enumerate()
                .filter_map(|(index, entry)| {
                    let name = entry.get("name").and_then(Value::as_str);
                    let of_list = place.entry(index);
                    let below = match name {
                        Some(name) if *place == Place::key("interfaces") => Place::interface(name),
                        _ => of_list,
                    };
                    without(entry, &below, removed)
                })
                .collect(),
        ),
        Value::Object(map) => Value::Object(
            map.into_iter()
                .filter_map(|(key, value)| {
                    let below = place.below(&key);
                    Some((key, without(value, &below, removed)?))
                })
                .collect(),
        ),
        other => other,
    })
}
