//! Where in a document it is that nmstate's parser does not understand it.
//!
//! The parser says what is wrong and not where. So the part is looked for without which the rest is understood. Each
//! attempt parses the rest, so lists are bisected, and the size of all that may be parsed is limited ([`Work`]): a
//! search that reaches the limit answers with the place that it has reached.

use std::{cell::Cell, ops::Range};

use knmstate_document::{NetworkState, Place};
use nmstate::NetworkState as Document;
use serde_json::{Map, Value, json};

/// How much may be parsed for one document, in bytes of JSON: more than twenty times the largest object that etcd
/// stores. The largest document with a single mistake needs less than half of it.
const MOST_WORK: usize = 32 * 1024 * 1024;

/// How much may still be parsed. What is counted is the size of documents and not time, so the same document gets the
/// same answer on each machine.
#[derive(Debug)]
pub struct Work(Cell<usize>);

impl Default for Work {
    fn default() -> Self {
        Self(Cell::new(MOST_WORK))
    }
}

/// The limit of [`Work`] is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooMuchWork;

impl Work {
    /// Whether nmstate's parser takes a document, and if not, what it says.
    pub fn parse(&self, document: &Value) -> Result<Result<(), String>, TooMuchWork> {
        self.take(document)?;
        Ok(understood(document))
    }

    fn understands(&self, document: Value) -> Result<bool, TooMuchWork> {
        self.take(&document)?;
        Ok(is_understood(document))
    }

    fn take(&self, document: &Value) -> Result<(), TooMuchWork> {
        let left = self.0.get().checked_sub(size(document)).ok_or(TooMuchWork);
        self.0.set(left.unwrap_or_default());
        left.map(|_| ())
    }
}

/// About as many bytes as the value has as JSON.
fn size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 4,
        Value::String(text) => text.len() + 3,
        Value::Array(entries) => 2 + entries.iter().map(size).sum::<usize>(),
        Value::Object(map) => 2 + map.iter().map(|(key, below)| key.len() + 4 + size(below)).sum::<usize>(),
    }
}

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
    find_within(document, &Work::default())
}

/// The same with a limit of work. Where that is reached, the place may be above the mistake.
pub fn find_within(document: &Value, work: &Work) -> Place {
    let sections = document.as_object().into_iter().flatten();
    for (section, value) in sections {
        let alone = |value: Value| work.understands(json!({ section: value }));
        match alone(value.clone()) {
            Ok(true) => continue,
            Ok(false) => {}
            Err(TooMuchWork) => return Place::document(),
        }
        let Value::Array(entries) = value else { return descend(value, Place::key(section), &alone) };
        // Each interface by itself, so that a second mistake does not hide the first.
        for entry in entries {
            let alone = |entry: Value| alone(json!([entry]));
            match alone(entry.clone()) {
                Ok(true) => {}
                Ok(false) => {
                    let name = entry.get("name").and_then(Value::as_str).unwrap_or_default();
                    return descend(entry, Place::interface(name), &alone);
                }
                Err(TooMuchWork) => break,
            }
        }
        return Place::key(section);
    }
    Place::document()
}

type IsUnderstood<'a> = &'a dyn Fn(Value) -> Result<bool, TooMuchWork>;

fn descend(value: &Value, place: Place, is_understood: IsUnderstood<'_>) -> Place {
    let culprit = match value {
        Value::Object(map) => culprit_key(map, is_understood).map(|culprit| {
            culprit.map(|(key, below)| {
                let with = |below: Value| is_understood(Value::Object(replaced(map, key, Some(below))));
                descend(below, place.below(key), &with)
            })
        }),
        Value::Array(entries) => culprit_entry(entries, is_understood).map(|culprit| {
            culprit.and_then(|index| entries.get(index).map(|below| (index, below))).map(|(index, below)| {
                let with = |below: Value| {
                    is_understood(Value::Array(without(entries, index..index + 1, Some(below))))
                };
                descend(below, place.entry(index), &with)
            })
        }),
        _ => Ok(None),
    };
    culprit.ok().flatten().unwrap_or(place)
}

/// The first key without which an object is understood. Keys are tried one by one: without half of them, an object
/// may lack a key that it needs.
fn culprit_key<'a>(
    map: &'a Map<String, Value>,
    is_understood: IsUnderstood<'_>,
) -> Result<Option<(&'a String, &'a Value)>, TooMuchWork> {
    // Not the type: without it, nmstate takes any key for granted.
    for (key, below) in map.iter().filter(|(key, _)| *key != "type") {
        if is_understood(Value::Object(replaced(map, key, None)))? {
            return Ok(Some((key, below)));
        }
    }
    Ok(None)
}

/// The first entry without which a list is understood.
fn culprit_entry(entries: &[Value], is_understood: IsUnderstood<'_>) -> Result<Option<usize>, TooMuchWork> {
    let part = |range: Range<usize>| Value::Array(entries.get(range).unwrap_or_default().to_vec());
    let rest = |range: Range<usize>| Value::Array(without(entries, range, None));
    let Some(first) = first_mistake(entries.len(), &|range| is_understood(part(range)))? else {
        return Ok(None);
    };
    if !is_understood(part(first..first + 1))? {
        // No other entry can be the only one.
        return Ok(is_understood(rest(first..first + 1))?.then_some(first));
    }
    // Each entry is understood by itself, so it is about a combination of them.
    only_culprit(0..entries.len(), &|range| is_understood(rest(range)))
}

/// The first entry that is not understood, if the mistakes are in single entries. Halves what is parsed each time.
fn first_mistake(
    count: usize,
    is_understood: &dyn Fn(Range<usize>) -> Result<bool, TooMuchWork>,
) -> Result<Option<usize>, TooMuchWork> {
    let mut range = 0..count;
    while range.len() > 1 {
        let middle = range.start + range.len() / 2;
        range = if is_understood(range.start..middle)? { middle..range.end } else { range.start..middle };
    }
    Ok(range.next())
}

/// The first entry of a range without which the list is understood: there is none in a range without which the list is
/// still not understood.
fn only_culprit(
    range: Range<usize>,
    is_understood_without: &dyn Fn(Range<usize>) -> Result<bool, TooMuchWork>,
) -> Result<Option<usize>, TooMuchWork> {
    if range.is_empty() || !is_understood_without(range.clone())? {
        return Ok(None);
    }
    if range.len() == 1 {
        return Ok(Some(range.start));
    }
    let middle = range.start + range.len() / 2;
    match only_culprit(range.start..middle, is_understood_without)? {
        Some(found) => Ok(Some(found)),
        None => only_culprit(middle..range.end, is_understood_without),
    }
}

/// The object with another value at `key`, or without the key.
fn replaced(map: &Map<String, Value>, key: &str, mut value: Option<Value>) -> Map<String, Value> {
    map.iter()
        .filter_map(|(name, below)| {
            let below = if name == key { value.take()? } else { below.clone() };
            Some((name.clone(), below))
        })
        .collect()
}

/// The list without these entries, and with this one in their place.
fn without(entries: &[Value], left_out: Range<usize>, instead: Option<Value>) -> Vec<Value> {
    let before = entries.get(..left_out.start).unwrap_or_default().iter().cloned();
    let after = entries.get(left_out.end..).unwrap_or_default().iter().cloned();
    before.chain(instead).chain(after).collect()
}

fn is_understood(document: Value) -> bool {
    serde_json::from_value::<Document>(document).is_ok()
}

/// Whether nmstate's parser takes a document, and if not, what it says.
pub fn understood(document: &Value) -> Result<(), String> {
    serde_json::from_value::<Document>(document.clone()).map(|_| ()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
