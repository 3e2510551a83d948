//! Routes and rules: lists that nmstate merges entry by entry, so only those that mean the same one can conflict.

use serde_json::Value;

use super::{
    Conflict, Open,
    compare::{is_same, shown},
};
use crate::document::{Document, MAIN_TABLE, config_routes, is_absent, objects, text};

/// What a route is found by; a route with another metric is a spare one, and not the same.
const ROUTE_IDENTITY: [&str; 4] = ["destination", "next-hop-interface", "table-id", "metric"];
/// What a packet has to be like for a rule to apply; rules with different priorities are two.
const RULE_IDENTITY: [&str; 9] = [
    "ip-from",
    "ip-to",
    "family",
    "fwmark",
    "fwmask",
    "iif",
    "suppress-prefix-length",
    "suppress-prefix-length-default",
    "priority",
];

pub(super) fn conflict(here: &Document, there: &Document, open: Open) -> Option<Conflict> {
    let in_routes = pairs(config_routes(here), || config_routes(there)).find_map(|(one, other)| {
        let path = || format!("routes.config[{}]", route_name(if is_absent(one) { other } else { one }));
        entries(one, other, &ROUTE_IDENTITY, open, path)
    });
    in_routes.or_else(|| {
        pairs(rules(here), || rules(there)).find_map(|(one, other)| {
            let path =
                || format!("route-rules.config[{}]", rule_name(if is_absent(one) { other } else { one }));
            entries(one, other, &RULE_IDENTITY, open, path)
        })
    })
}

fn pairs<'a, I: Iterator<Item = &'a Document>>(
    here: impl Iterator<Item = &'a Document>,
    there: impl Fn() -> I,
) -> impl Iterator<Item = (&'a Document, &'a Document)> {
    here.flat_map(move |one| there().map(move |other| (one, other)))
}

fn rules(document: &Document) -> impl Iterator<Item = &Document> {
    objects(document.get("route-rules").and_then(|rules| rules.get("config")))
}

fn entries(
    one: &Document,
    other: &Document,
    identity: &[&str],
    open: Open,
    path: impl Fn() -> String,
) -> Option<Conflict> {
    if is_open(one) || is_open(other) {
        let apart = is_elsewhere(one, other);
        return (open == Open::Differs && !apart).then(|| removal(path(), ["not known", "not known"]));
    }
    match (is_absent(one), is_absent(other)) {
        (true, false) => removes(one, other).then(|| removal(path(), ["absent", "wanted"])),
        (false, true) => removes(other, one).then(|| removal(path(), ["wanted", "absent"])),
        (false, false) if identity.iter().all(|key| agree(one, other, key, identity)) => {
            let said = one.iter().filter(|(key, _)| !identity.contains(&key.as_str()) && *key != "state");
            said.filter_map(|(key, value)| {
                Some((key, value, other.get(key).filter(|other| !other.is_null())?))
            })
            .find(|(_, value, other)| !value.is_null() && !is_same(value, other))
            .map(|(key, value, other)| Conflict {
                path: format!("{}.{key}", path()),
                values: Some([shown(value), shown(other)]),
            })
        }
        (true, true) | (false, false) => None,
    }
}

/// Whether both entries have the same value of a key. A metric or priority that one leaves out is any: the machine
/// chooses it.
fn agree(one: &Document, other: &Document, key: &str, identity: &[&str]) -> bool {
    let chosen = identity.last() == Some(&key);
    match (value(one, key), value(other, key)) {
        (None, None) => true,
        (Some(one), Some(other)) => is_same(&one, &other),
        _ => chosen,
    }
}

/// A value with the spellings of the main table made one.
fn value(entry: &Document, key: &str) -> Option<Value> {
    let value = entry.get(key).filter(|value| !value.is_null())?;
    let is_main = key == "table-id" && matches!(value.as_u64(), Some(0 | MAIN_TABLE));
    (!is_main).then(|| value.clone())
}

/// An entry with `state: absent` removes every one that has all that it names.
fn removes(absent: &Document, entry: &Document) -> bool {
    absent
        .iter()
        .filter(|(key, value)| *key != "state" && !value.is_null())
        .all(|(key, value)| entry.get(key).is_some_and(|other| is_same(value, other)))
}

fn removal(path: String, values: [&str; 2]) -> Conflict {
    Conflict { path, values: Some(values.map(str::to_owned)) }
}

/// Whether two routes lead to different places, whatever else becomes known of them.
fn is_elsewhere(one: &Document, other: &Document) -> bool {
    let destination =
        |route| Some(text(route, "destination")).filter(|text| !text.is_empty() && !text.contains("{{"));
    matches!((destination(one), destination(other)), (Some(one), Some(other)) if one != other)
}

fn is_open(entry: &Document) -> bool {
    entry.values().any(|value| value.as_str().is_some_and(|text| text.contains("{{")))
}

fn route_name(route: &Document) -> String {
    let via = text(route, "next-hop-interface");
    let destination = text(route, "destination");
    if via.is_empty() { destination.to_owned() } else { format!("{destination} via {via}") }
}

fn rule_name(rule: &Document) -> String {
    let names = ["ip-from", "ip-to", "iif"].into_iter().filter_map(|key| {
        let value = text(rule, key);
        (!value.is_empty()).then(|| format!("{key} {value}"))
    });
    let name = names.collect::<Vec<_>>().join(", ");
    if name.is_empty() { "any packet".to_owned() } else { name }
}
