//! What a policy speaks of, so that two that have nothing in common are told apart without comparing them node by node.

use std::collections::BTreeSet;

use serde_json::Value;

use super::controllers::controllers;
use crate::{
    document::{Document, config_routes, interfaces, text},
    templates::is_template,
};

/// The things that a document, with its references not yet filled in, may say something about.
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
                    let names = interfaces(document).map(|interface| text(interface, "name"));
                    names
                        .chain(controllers(document).into_keys())
                        .for_each(|name| subjects.add("interface", name));
                    subjects.any |= has_text_entry(value) || ports_are_open(value);
                }
                ("routes", _) => {
                    let config = value.get("config");
                    subjects.any |= config.is_some_and(|config| config.is_string() || has_text_entry(config));
                    for route in config_routes(document) {
                        // One that removes whatever goes by an interface may mean any destination.
                        subjects.any |= text(route, "destination").is_empty();
                        subjects.add("route", text(route, "destination"));
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

    /// Whether the two may say something about the same thing.
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
    let sections = ["link-aggregation", "bridge", "vrf", "hsr", "controller"];
    let interfaces = list.as_array().into_iter().flatten();
    interfaces
        .filter_map(Value::as_object)
        .any(|interface| sections.iter().filter_map(|section| interface.get(*section)).any(is_open))
}
