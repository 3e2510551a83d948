//! Reading the parts of a network document that decisions are made by.
//!
//! Documents are nmstate's, carried as JSON. What does not have the expected shape counts as not there: judging that
//! is for nmstate.

use serde_json::{Map, Value};

/// A network document, or a part of one.
pub type Document = Map<String, Value>;

/// The routing table that a machine routes by unless a rule says otherwise.
pub const MAIN_TABLE: u64 = 254;

/// The interfaces, in the order in which they are written.
pub fn interfaces(document: &Document) -> impl Iterator<Item = &Document> {
    objects(document.get("interfaces"))
}

/// The routes that are configured, or wanted.
pub fn config_routes(document: &Document) -> impl Iterator<Item = &Document> {
    objects(document.get("routes").and_then(|routes| routes.get("config")))
}

/// The routes that are in force.
pub fn running_routes(document: &Document) -> impl Iterator<Item = &Document> {
    objects(document.get("routes").and_then(|routes| routes.get("running")))
}

/// A text below an object; empty when it is not there.
pub fn text<'a>(object: &'a Document, key: &str) -> &'a str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Whether a route leads everywhere, in either family, by the main table.
pub fn is_default_route(route: &Document) -> bool {
    matches!(text(route, "destination"), "0.0.0.0/0" | "::/0")
        && route.get("table-id").and_then(Value::as_u64).is_none_or(|table| table == 0 || table == MAIN_TABLE)
}

/// Whether an entry says that something should not be there.
pub fn is_absent(entry: &Document) -> bool {
    text(entry, "state") == "absent"
}

/// The objects of a list.
pub fn objects(list: Option<&Value>) -> impl Iterator<Item = &Document> {
    list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object)
}
