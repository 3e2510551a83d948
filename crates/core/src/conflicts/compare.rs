//! Comparing two values of the same key.

use std::net::IpAddr;

use serde_json::Value;

use super::{Conflict, Open};
use crate::{document::Document, secrets};

/// Values are told up to this length.
const SHOWN: usize = 60;

/// The first key that two entries for the same thing say differently. What is `running` is what was found somewhere, and
/// no wish.
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

/// The first difference between two values of `key`. What one of them leaves out is no difference.
pub(super) fn difference(here: &Value, there: &Value, key: &str, path: &str, open: Open) -> Option<Conflict> {
    if here.is_null() || there.is_null() {
        return None;
    }
    if is_open(here) || is_open(there) {
        return (open == Open::Differs).then(|| found(here, there, key, path));
    }
    match (here, there) {
        // Nothing below the key is an order to remove everything below it.
        (Value::Object(one), Value::Object(other)) if is_purge(key) && one.is_empty() != other.is_empty() => {
            Some(found(here, there, key, path))
        }
        (Value::Object(one), Value::Object(other)) => entry_difference(one, other, path, open),
        (Value::Array(one), Value::Array(other)) => match identity(key) {
            Some(identity) => one.iter().find_map(|entry| {
                let name = entry.get(identity)?;
                let same = other
                    .iter()
                    .find(|other| other.get(identity).is_some_and(|other| is_same(name, other)))?;
                entry_difference(
                    entry.as_object()?,
                    same.as_object()?,
                    &format!("{path}[{}]", shown(name)),
                    open,
                )
            }),
            None => (!is_same_list(one, other, key)).then(|| found(here, there, key, path)),
        },
        _ => (!is_same(here, there)).then(|| found(here, there, key, path)),
    }
}

/// What the entries of a list are told apart by, where nmstate merges the list entry by entry.
fn identity(key: &str) -> Option<&'static str> {
    match key {
        "alt-names" => Some("name"),
        "vfs" => Some("id"),
        "bridge-mappings" => Some("localnet"),
        _ => None,
    }
}

/// The sections that an empty map empties.
fn is_purge(key: &str) -> bool {
    matches!(key, "config" | "ovs-db" | "external_ids" | "other_config")
}

/// Whether a value is not known before a reference is filled in. A map is looked into key by key; a list is compared as
/// a whole, so one reference in it leaves all of it open.
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
        return one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_same(one, other));
    }
    one.iter().all(|entry| other.iter().any(|other| is_same(entry, other)))
        && other.iter().all(|entry| one.iter().any(|one| is_same(entry, one)))
}

/// nmstate reads `"1500"` and `1500`, and any spelling of an address, as the same.
pub(super) fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(key, value)| other.get(key).is_some_and(|other| is_same(value, other)))
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_same(one, other))
        }
        (Value::String(one), Value::String(other)) => {
            let address = |text: &str| text.parse::<IpAddr>().ok();
            one == other || address(one).is_some_and(|one| Some(one) == address(other))
        }
        (Value::String(text), Value::Number(number)) | (Value::Number(number), Value::String(text)) => {
            number.to_string() == text.as_str()
        }
        (Value::String(text), Value::Bool(yes)) | (Value::Bool(yes), Value::String(text)) => {
            text == if *yes { "true" } else { "false" }
        }
        (one, other) => one == other,
    }
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
