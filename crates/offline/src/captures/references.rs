//! References in a document: `{{ capture.default-gw.interfaces.0.name }}`.
//!
//! They are filled one by one, so that it can be said where one is that leads nowhere, and so that no text without one
//! is ever looked into: nmstate takes every brace for a reference, also that in a password.

use knmstate_document::{InvalidDocument, Place, secrets};
use nmstate::NetworkStateTemplate;
use serde_json::{Map, Value, json};

use super::expressions::{CapturedStates, explained};

/// Whether there is anything to fill.
pub(super) fn are_in(document: &Map<String, Value>) -> bool {
    document.iter().any(|(key, value)| is_meant(key) || is_in(value, secrets::is_secret(key, value)))
}

fn is_in(value: &Value, secret: bool) -> bool {
    match value {
        Value::String(text) => is_reference(text, secret),
        Value::Object(map) => are_in(map),
        Value::Array(entries) => entries.iter().any(|entry| is_in(entry, secret)),
        _ => false,
    }
}

/// Whether a text has to be filled. Braces alone count, so that a slip is not applied as a text; but not in a secret.
fn is_reference(text: &str, secret: bool) -> bool {
    is_meant(text) || (!secret && (text.contains("{{") || text.contains("}}")))
}

fn is_meant(text: &str) -> bool {
    text.match_indices("{{").any(|(at, _)| text[at + 2..].trim_start().starts_with("capture"))
}

/// Replaces every reference by what was found.
pub(super) fn fill(document: &mut Map<String, Value>, found: &CapturedStates) -> Result<(), InvalidDocument> {
    for (section, value) in document {
        refuse_in_key(section, &Place::document())?;
        let place = Place::key(section);
        match value {
            Value::Array(interfaces) if section == "interfaces" => {
                for (index, interface) in interfaces.iter_mut().enumerate() {
                    let name = interface.get("name").and_then(Value::as_str);
                    let place = match name {
                        Some(name) if !is_reference(name, false) => Place::interface(name),
                        _ => place.entry(index),
                    };
                    fill_below(interface, &place, false, found)?;
                }
            }
            value => fill_below(value, &place, false, found)?,
        }
    }
    Ok(())
}

fn fill_below(
    value: &mut Value,
    place: &Place,
    secret: bool,
    found: &CapturedStates,
) -> Result<(), InvalidDocument> {
    match value {
        Value::String(text) if is_reference(text, secret) => {
            *value = filled(text, place, secret, found)?;
        }
        Value::Object(map) => {
            for (key, below) in map {
                refuse_in_key(key, place)?;
                let secret = secrets::is_secret(key, below);
                fill_below(below, &place.below(key), secret, found)?;
            }
        }
        Value::Array(entries) => {
            for (index, entry) in entries.iter_mut().enumerate() {
                fill_below(entry, &place.entry(index), secret, found)?;
            }
        }
        _ => {}
    }
    Ok(())
}

fn refuse_in_key(key: &str, place: &Place) -> Result<(), InvalidDocument> {
    if is_meant(key) {
        let why = format!("a reference can stand for a value, not for a key: {key}");
        return Err(InvalidDocument::new(place.clone(), why));
    }
    Ok(())
}

fn filled(text: &str, place: &Place, secret: bool, found: &CapturedStates) -> Result<Value, InvalidDocument> {
    let refused = |why: String| InvalidDocument::new(place.clone(), why);
    if !text.is_ascii() {
        // nmstate counts bytes where it means characters.
        return Err(refused("beside a reference there can be ASCII characters only".to_owned()));
    }
    // nmstate fills whole documents. Of an interface without a type it takes any key and any value.
    let wrapped = json!({ "interfaces": [{ "name": "wrapped", "value": text }] });
    let unfilled = || refused("the reference could not be filled".to_owned());
    let template: NetworkStateTemplate = serde_json::from_value(wrapped).map_err(|_| unfilled())?;
    let document = template.fill_with_captured_data(found).map_err(|error| {
        refused(match error.msg() {
            "Got zero length prop_path" => {
                "the path into the capture is missing, as in capture.name.interfaces.0.name".to_owned()
            }
            message => match message.strip_prefix("Failed to find capture ") {
                Some(name) => format!("there is no capture {name}{}", those_there(found)),
                None if secret => message.to_owned(),
                None => explained(&error),
            },
        })
    })?;
    let document = serde_json::to_value(document).map_err(|_| unfilled())?;
    document.pointer("/interfaces/0/value").cloned().ok_or_else(unfilled)
}

fn those_there(found: &CapturedStates) -> String {
    let mut names: Vec<_> = found.keys().map(String::as_str).collect();
    names.sort_unstable();
    if names.is_empty() { String::new() } else { format!("; there are: {}", names.join(", ")) }
}
