//! Comparing two values of the same key.

use knmstate_document::{Document, scalar::same_value, secrets};
use serde_json::Value;

use super::{Conflict, Open};

/// The longest value that is shown.
const SHOWN: usize = 60;

/// The first key that two entries for the same thing set to different values. `running` was found on a machine, and is
/// not desired.
pub(super) fn entry_difference(
    here: &Document,
    there: &Document,
    path: &str,
    open: Open,
) -> Option<Conflict> {
    here.iter()
        .filter(|(key, _)| *key != "running")
        .find_map(|(key, value)| difference(value, there.get(key)?, key, &format!("{path}.{key}"), open))
}

/// The first difference between two values of `key`. A key that one of them leaves out is no difference.
pub(super) fn difference(here: &Value, there: &Value, key: &str, path: &str, open: Open) -> Option<Conflict> {
    if here.is_null() || there.is_null() {
        return None;
    }
    if is_open(here) || is_open(there) {
        return (open == Open::Differs).then(|| found(here, there, key, path));
    }
    match (here, there) {
        // An empty map removes everything below the key.
        (Value::Object(one), Value::Object(other)) if is_purge(key) && one.is_empty() != other.is_empty() => {
            Some(found(here, there, key, path))
        }
        (Value::Object(one), Value::Object(other)) => entry_difference(one, other, path, open),
        (Value::Array(one), Value::Array(other)) => match identity(key) {
            Some(identity) => one.iter().find_map(|entry| {
                let name = entry.get(identity)?;
                let same = other
                    .iter()
                    .find(|other| other.get(identity).is_some_and(|other| same_value(name, other)))?;
                entry_difference(
                    entry.as_object()?,
                    same.as_object()?,
                    &format!("{path}[{}]", shown(name)),
                    open,
                )
            }),
            None => (!is_same_list(one, other, key)).then(|| found(here, there, key, path)),
        },
        _ => (!same_value(here, there)).then(|| found(here, there, key, path)),
    }
}

/// The key that identifies the entries of a list, where nmstate merges the list entry by entry.
fn identity(key: &str) -> Option<&'static str> {
    match key {
        "alt-names" => Some("name"),
        "vfs" => Some("id"),
        "bridge-mappings" => Some("localnet"),
        _ => None,
    }
}

/// Whether an empty map removes all that the section has.
fn is_purge(key: &str) -> bool {
    matches!(key, "config" | "ovs-db" | "external_ids" | "other_config")
}

/// Whether a value is not known before a reference is filled in. A map is compared key by key; a list is compared as a
/// whole, so one reference in it leaves all of it open.
fn is_open(value: &Value) -> bool {
    fn is_below(value: &Value) -> bool {
        match value {
            Value::Object(map) => map.values().any(is_below),
            Value::Array(entries) => entries.iter().any(is_below),
            Value::String(text) => text.contains("{{"),
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
        }
    }
    !value.is_object() && is_below(value)
}

/// Only name servers and search domains have an order.
fn is_same_list(one: &[Value], other: &[Value], key: &str) -> bool {
    if matches!(key, "server" | "search") {
        return one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same_value(one, other));
    }
    one.iter().all(|entry| other.iter().any(|other| same_value(entry, other)))
        && other.iter().all(|entry| one.iter().any(|one| same_value(entry, one)))
}

pub(super) fn found(here: &Value, there: &Value, key: &str, path: &str) -> Conflict {
    let secret = |value: &Value| secrets::is_secret(key, value) || secrets::holds_secret(value);
    let values = (!secret(here) && !secret(there)).then(|| [shown(here), shown(there)]);
    Conflict { path: path.to_owned(), values }
}

pub(super) fn shown(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
