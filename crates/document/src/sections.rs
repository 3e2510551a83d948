//! The parts of a document.
//!
//! A part without the expected shape counts as missing: to refuse such a document is the task of
//! [`NetworkState::parse`](crate::NetworkState::parse) and of nmstate.

use serde_json::{Map, Value};

/// A network document, or a part of one.
pub type Document = Map<String, Value>;

/// The interfaces, in the order in which they are written.
pub fn interfaces(document: &Document) -> impl Iterator<Item = &Document> {
    objects(document.get("interfaces"))
}

/// The routes that are configured, or desired.
pub fn config_routes(document: &Document) -> impl Iterator<Item = &Document> {
    objects(document.get("routes").and_then(|routes| routes.get("config")))
}

/// The routes that the kernel has.
pub fn running_routes(document: &Document) -> impl Iterator<Item = &Document> {
    objects(document.get("routes").and_then(|routes| routes.get("running")))
}

/// The routing rules that are configured, or desired.
pub fn config_rules(document: &Document) -> impl Iterator<Item = &Document> {
    objects(document.get("route-rules").and_then(|rules| rules.get("config")))
}

/// A text below an object; empty when it is missing.
pub fn text<'a>(object: &'a Document, key: &str) -> &'a str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Whether an entry (an interface, route, rule or mapping) is to be removed. For a route or rule this makes it a
/// pattern.
pub fn is_absent(entry: &Document) -> bool {
    text(entry, "state") == "absent"
}

/// Whether an entry is to be left as it is.
pub fn is_ignored(entry: &Document) -> bool {
    text(entry, "state") == "ignore"
}

/// The objects of a list.
pub fn objects(list: Option<&Value>) -> impl Iterator<Item = &Document> {
    list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object)
}
