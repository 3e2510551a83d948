//! What a policy is about, so that two that have nothing in common are not compared node by node.

use std::collections::BTreeSet;

use knmstate_document::{
    Document, address::parse_network, config_routes, interfaces, interfaces::interface_name,
    references::keys_of_ports, text,
};
use serde_json::Value;

use super::controllers::controllers;
use crate::templates::is_template;

/// What a document may configure, with its references not yet filled in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Subjects {
    named: BTreeSet<(&'static str, String)>,
    /// Whether a name is filled in per node, so that it may be any.
    any: bool,
}

impl Subjects {
    pub(crate) fn of(document: &Document) -> Self {
        let mut subjects = Self::default();
        for (section, value) in document.iter().filter(|(_, value)| !value.is_null()) {
            match (section.as_str(), value) {
                ("description", _) => {}
                (_, Value::String(_)) => subjects.any = true,
                ("interfaces", _) => {
                    let names = interfaces(document).map(interface_name);
                    names
                        .chain(controllers(document).into_keys())
                        .for_each(|name| subjects.add("interface", name));
                    subjects.any |= has_text_entry(value) || ports_are_open(value);
                }
                ("routes", _) => {
                    let config = value.get("config");
                    subjects.any |= config.is_some_and(|config| config.is_string() || has_text_entry(config));
                    for route in config_routes(document) {
                        let destination = text(route, "destination");
                        // A removal without a destination matches all of them.
                        subjects.any |= destination.is_empty();
                        let network = parse_network(destination).map(|network| network.trunc().to_string());
                        subjects.add("route", network.as_deref().unwrap_or(destination));
                    }
                }
                (section, _) => {
                    subjects.named.insert(("section", section.to_owned()));
                }
            }
        }
        subjects
    }

    fn add(&mut self, kind: &'static str, name: &str) {
        self.any |= is_template(name, false);
        self.named.insert((kind, name.to_owned()));
    }

    /// Whether all names are known before anything is filled in.
    pub(crate) fn are_named(&self) -> bool {
        !self.any
    }

    /// Whether the two may configure the same thing.
    pub(crate) fn meet(&self, other: &Self) -> bool {
        self.any || other.any || !self.named.is_disjoint(&other.named)
    }
}

fn has_text_entry(list: &Value) -> bool {
    list.as_array().into_iter().flatten().any(Value::is_string)
}

/// Whether the ports of an interface are filled in per node.
fn ports_are_open(list: &Value) -> bool {
    fn is_open(value: &Value) -> bool {
        match value {
            Value::String(text) => is_template(text, false),
            Value::Array(entries) => entries.iter().any(is_open),
            Value::Object(map) => map.values().any(is_open),
            _ => false,
        }
    }
    let interfaces = list.as_array().into_iter().flatten();
    interfaces
        .filter_map(Value::as_object)
        .any(|interface| keys_of_ports().filter_map(|key| interface.get(key)).any(is_open))
}
