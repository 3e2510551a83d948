//! A whole document, with the right shape.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::interfaces::{interface_name, interface_type};
use crate::place::{InvalidDocument, Place};
use crate::{objects, secrets};

/// A network state in the language of nmstate, as JSON.
///
/// Built by [`parse`](Self::parse), so the parts that are read here have the right shape: `interfaces` is a list
/// of objects with a `name` each, `routes`, `route-rules` and `dns-resolver` are maps of lists. Whether the keys inside
/// exist, nmstate decides.
///
/// `Debug` hides secrets. Serialising does not: what is written out is what was read in.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "Value")]
pub struct NetworkState(Map<String, Value>);

/// Which of the two lists of routes: those of the kernel, or those that were configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteList {
    /// What the kernel has, from any source.
    Running,
    /// What was configured. This is what a desired state is about.
    Config,
}

impl RouteList {
    fn key(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Config => "config",
        }
    }
}

impl NetworkState {
    /// Takes a document whose known sections have the right shape, and refuses any other.
    ///
    /// A section that is `null` counts as not there, because that is what an empty key in YAML becomes.
    pub fn parse(document: Value) -> Result<Self, InvalidDocument> {
        let mut sections = match document {
            Value::Object(map) => map,
            Value::Null => Map::new(),
            other => return Err(wrong_shape(&Place::document(), "a map of sections", &other)),
        };
        sections.retain(|_, section| !section.is_null());

        for (index, interface) in list(&sections, "interfaces", &Place::key("interfaces"))?.iter().enumerate()
        {
            let place = Place::key("interfaces").entry(index);
            let interface = object(interface, &place)?;
            match interface.get("name") {
                Some(Value::String(name)) if !name.is_empty() => {
                    let place = Place::interface(name);
                    for key in ["type", "state"] {
                        if let Some(value) = interface.get(key).filter(|v| !v.is_string() && !v.is_null()) {
                            return Err(wrong_shape(&place.below(key), "a word", value));
                        }
                    }
                }
                _ => return Err(InvalidDocument::new(place.below("name"), "every interface needs a name")),
            }
        }
        for (section, lists) in [("routes", &["running", "config"][..]), ("route-rules", &["config"])] {
            let Some(value) = sections.get(section) else { continue };
            let place = Place::key(section);
            let section = object(value, &place)?;
            for key in lists {
                let place = place.below(key);
                for (index, entry) in list(section, key, &place)?.iter().enumerate() {
                    object(entry, &place.entry(index))?;
                }
            }
        }
        if let Some(value) = sections.get("dns-resolver") {
            let place = Place::key("dns-resolver");
            let section = object(value, &place)?;
            for key in ["running", "config"] {
                if let Some(value) = section.get(key).filter(|v| !v.is_null()) {
                    object(value, &place.below(key))?;
                }
            }
        }
        if let Some(value) = sections.get("hostname") {
            object(value, &Place::key("hostname"))?;
        }
        Ok(Self(sections))
    }

    /// A document from sections that have the right shape.
    pub fn assembled<const N: usize>(sections: [(&str, Value); N]) -> Self {
        Self::from_sections(sections.into_iter().map(|(name, section)| (name.to_owned(), section)).collect())
    }

    /// As [`assembled`](Self::assembled), from a map.
    pub fn from_sections(sections: Map<String, Value>) -> Self {
        Self(sections)
    }

    /// The state without timers and lifetimes, which count down although nothing changes.
    #[must_use]
    pub fn without_moving_values(&self) -> Self {
        fn strip(value: &mut Value) {
            match value {
                Value::Object(map) => strip_map(map),
                Value::Array(entries) => entries.iter_mut().for_each(strip),
                _ => {}
            }
        }
        fn strip_map(map: &mut Map<String, Value>) {
            let moving = ["gc-timer", "hello-timer", "preferred-life-time", "valid-life-time"];
            map.retain(|key, _| !moving.contains(&key.as_str()));
            map.values_mut().for_each(strip);
        }
        let mut stripped = self.clone();
        strip_map(&mut stripped.0);
        stripped
    }

    /// This document with some sections out of another one.
    #[must_use]
    pub fn with_sections_of(mut self, other: &Self, names: &[&str]) -> Self {
        for name in names {
            if let Some(section) = other.0.get(*name) {
                self.0.insert((*name).to_owned(), section.clone());
            }
        }
        self
    }

    /// This document without the interfaces that `unwanted` picks.
    #[must_use]
    pub fn without_interfaces(mut self, unwanted: impl Fn(&Map<String, Value>) -> bool) -> Self {
        if let Some(Value::Array(interfaces)) = self.0.get_mut("interfaces") {
            interfaces.retain(|interface| !interface.as_object().is_some_and(&unwanted));
            if interfaces.is_empty() {
                self.0.shift_remove("interfaces");
            }
        }
        self
    }

    /// This document with its secrets hidden.
    #[must_use]
    pub fn without_secrets(mut self) -> Self {
        self.0.values_mut().for_each(secrets::hide);
        self
    }

    /// The sections, by name.
    pub fn sections(&self) -> &Map<String, Value> {
        &self.0
    }

    /// The document as plain JSON, secrets included.
    pub fn into_value(self) -> Value {
        Value::Object(self.0)
    }

    /// The interfaces, in the order in which they are written.
    pub fn interfaces(&self) -> impl Iterator<Item = &Map<String, Value>> {
        self.list("interfaces")
    }

    /// The interface called `name`.
    pub fn interface(&self, name: &str) -> Option<&Map<String, Value>> {
        self.interfaces().find(|interface| interface_name(interface) == name)
    }

    /// The interface that a desired one means: the one of its name, or the NIC with the address that its `identifier`
    /// selects.
    pub fn interface_meant_by(&self, desired: &Map<String, Value>) -> Option<&Map<String, Value>> {
        let text = |interface: &Map<String, Value>, key: &str| {
            interface.get(key).and_then(Value::as_str).map(str::to_ascii_lowercase)
        };
        let identifier = desired.get("identifier").and_then(Value::as_str).unwrap_or("name");
        let keys: &[&str] = match identifier {
            "mac-address" => &["permanent-mac-address", "mac-address"],
            "pci-address" => &["pci-address"],
            _ => return self.interface(interface_name(desired)),
        };
        let wanted = text(desired, identifier)?;
        let is_nic =
            |found: &&Map<String, Value>| matches!(interface_type(found), "ethernet" | "veth" | "infiniband");
        // The permanent address of a NIC counts more than the one that it has now: a bond sets its own on its
        // ports.
        keys.iter().find_map(|key| {
            self.interfaces().filter(is_nic).find(|found| text(found, key).as_ref() == Some(&wanted))
        })
    }

    /// One of the lists of routes; empty when it is not there.
    pub fn routes(&self, which: RouteList) -> impl Iterator<Item = &Map<String, Value>> {
        objects(self.0.get("routes").and_then(|routes| routes.get(which.key())))
    }

    /// The routing rules; empty when there are none.
    pub fn route_rules(&self) -> impl Iterator<Item = &Map<String, Value>> {
        objects(self.0.get("route-rules").and_then(|rules| rules.get("config")))
    }

    /// The resolver's configuration, when the document has it.
    pub fn resolver_config(&self) -> Option<&Map<String, Value>> {
        self.0.get("dns-resolver")?.get("config")?.as_object()
    }

    /// The host name section, when the document has it.
    pub fn hostname(&self) -> Option<&Map<String, Value>> {
        self.0.get("hostname")?.as_object()
    }

    fn list(&self, section: &str) -> impl Iterator<Item = &Map<String, Value>> {
        objects(self.0.get(section))
    }
}

impl TryFrom<Value> for NetworkState {
    type Error = InvalidDocument;

    fn try_from(document: Value) -> Result<Self, InvalidDocument> {
        Self::parse(document)
    }
}

impl fmt::Debug for NetworkState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = Value::Object(self.clone().without_secrets().0);
        if f.alternate() { write!(f, "NetworkState({shown:#})") } else { write!(f, "NetworkState({shown})") }
    }
}

fn list<'a>(map: &'a Map<String, Value>, key: &str, place: &Place) -> Result<&'a [Value], InvalidDocument> {
    match map.get(key) {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(entries)) => Ok(entries),
        Some(other) => Err(wrong_shape(place, "a list", other)),
    }
}

fn object<'a>(value: &'a Value, place: &Place) -> Result<&'a Map<String, Value>, InvalidDocument> {
    value.as_object().ok_or_else(|| wrong_shape(place, "a map of keys", value))
}

fn wrong_shape(place: &Place, expected: &str, found: &Value) -> InvalidDocument {
    let found = match found {
        Value::Null => "nothing",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a map",
    };
    InvalidDocument::new(place.clone(), format!("{expected} is expected here, but {found} was found"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_document_with_the_wrong_shape_is_refused_with_the_place() {
        for (document, error) in [
            (json!([]), "the document: a map of sections is expected here, but a list was found"),
            (json!({ "interfaces": {} }), "interfaces: a list is expected here, but a map was found"),
            (
                json!({ "interfaces": [{ "name": "eth0" }, "eth1"] }),
                "interfaces[1]: a map of keys is expected here, but a text was found",
            ),
            (
                json!({ "interfaces": [{ "type": "ethernet" }] }),
                "interfaces[0].name: every interface needs a name",
            ),
            (json!({ "interfaces": [{ "name": 7 }] }), "interfaces[0].name: every interface needs a name"),
            (
                json!({ "interfaces": [{ "name": "eth0", "state": true }] }),
                "interfaces[eth0].state: a word is expected here, but a truth value was found",
            ),
            (
                json!({ "routes": { "config": [7] } }),
                "routes.config[0]: a map of keys is expected here, but a number was found",
            ),
            (
                json!({ "route-rules": { "config": "all" } }),
                "route-rules.config: a list is expected here, but a text was found",
            ),
            (
                json!({ "dns-resolver": { "config": [] } }),
                "dns-resolver.config: a map of keys is expected here, but a list was found",
            ),
            (json!({ "hostname": "a" }), "hostname: a map of keys is expected here, but a text was found"),
        ] {
            let refusal = NetworkState::parse(document.clone()).expect_err("wrong shape was taken");
            assert_eq!(refusal.to_string(), error, "{document}");
        }
    }

    #[test]
    fn empty_sections_count_as_not_there() {
        let state = NetworkState::parse(json!({ "interfaces": null, "routes": { "config": null } }))
            .expect("an empty section is fine");
        assert_eq!(state.interfaces().count(), 0);
        assert_eq!(state.routes(RouteList::Config).count(), 0);
        assert_eq!(NetworkState::parse(Value::Null), Ok(NetworkState::default()));
    }

    #[test]
    fn serialising_keeps_the_order_and_the_secrets_that_debug_hides() {
        let text = r#"{"routes":{"config":[]},"interfaces":[{"name":"eth1","802.1x":{"password":"hush"}}]}"#;
        let state: NetworkState = serde_json::from_str(text).expect("well-formed");
        assert_eq!(serde_json::to_string(&state).expect("serialisable"), text);
        assert!(!format!("{state:?}{state:#?}").contains("hush"));

        let refusal = serde_json::from_str::<NetworkState>("[]").expect_err("not a document");
        assert!(refusal.to_string().starts_with("the document: "), "{refusal}");
    }
}
