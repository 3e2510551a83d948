//! Whether nmstate can read a desired state, checked without a machine.
//!
//! What depends on a machine (its interfaces, the results of captures) is not checked. A reference is replaced by a
//! value of the likely kind; where that value is refused, it is assumed that the real one is not.

mod placeholders;
mod wording;

use std::collections::BTreeMap;

use knmstate_document::{InvalidDocument, NetworkState, Place, interfaces::TYPES, secrets::Scrubber};
use serde_json::{Map, Value};

use crate::{
    captures,
    parser::{self, TooMuchWork, Work},
};
use placeholders::Filled;
pub(crate) use placeholders::is_reference;

const TAKES_TOO_LONG: &str = "takes too long to check: too many of its references are where nmstate accepts only certain \
                              values; split it into several";

/// Refuses a desired state, or captures, that nmstate cannot read on any machine.
pub fn check(
    desired: &Map<String, Value>,
    capture: &BTreeMap<String, String>,
) -> Result<(), InvalidDocument> {
    captures::check(capture)?;
    let mut scrubber = Scrubber::default();
    scrubber.learn(&Value::Object(desired.clone()));
    let mut filled = Filled::of(desired);
    NetworkState::parse(Value::Object(filled.document.clone())).map_err(|error| filled.as_written(error))?;
    check_types(&filled)?;
    let work = Work::default();
    // Each round removes at least one part that may be wrong because of a reference, or is the last.
    for _ in 0..=2 * filled.references.len() {
        let document = with_types(&filled.document, &work);
        let error = match work.parse(&document) {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error,
            Err(TooMuchWork) => return Err(InvalidDocument::new(Place::document(), TAKES_TOO_LONG)),
        };
        let place = parser::find_within(&document, &work);
        if !filled.remove_doubtful(&place, &error) {
            let why = wording::explained(&scrubber.clean(&error), place.interface_name().is_some());
            return Err(filled.as_written(InvalidDocument::new(place, why)));
        }
    }
    Ok(())
}

/// nmstate accepts any word as a type. An unknown one may come from the kernel; one that is nearly a known type is a
/// spelling mistake.
fn check_types(filled: &Filled) -> Result<(), InvalidDocument> {
    let interfaces = filled.document.get("interfaces").and_then(Value::as_array).into_iter().flatten();
    for interface in interfaces {
        let text = |key: &str| interface.get(key).and_then(Value::as_str).unwrap_or_default();
        let kind = text("type");
        if kind.len() > 4
            && kind != "unknown"
            && !TYPES.contains(&kind)
            && let Some(meant) = wording::nearest(kind, TYPES)
        {
            let why = format!("unknown type {kind:?}; did you mean {meant:?}?");
            return Err(
                filled.as_written(InvalidDocument::new(Place::interface(text("name")).below("type"), why))
            );
        }
    }
    Ok(())
}

/// The document with a type for each interface that has none, because nmstate accepts any key in such an interface. The
/// type of an existing interface may be left out, so any type that has all of its keys will do.
fn with_types(document: &Map<String, Value>, work: &Work) -> Value {
    let mut document = document.clone();
    for interface in document.get_mut("interfaces").and_then(Value::as_array_mut).into_iter().flatten() {
        let Some(interface) = interface.as_object_mut() else { continue };
        if interface.get("type").is_some_and(|kind| !kind.is_null()) {
            continue;
        }
        let makes_sense = |kind: &&str| {
            let mut typed = interface.clone();
            typed.insert("type".to_owned(), Value::from(*kind));
            let alone = Map::from_iter([("interfaces".to_owned(), Value::Array(vec![Value::Object(typed)]))]);
            matches!(work.parse(&Value::Object(alone)), Ok(Ok(())))
        };
        let kind = TYPES
            .iter()
            .copied()
            .filter(|kind| !is_lax(kind))
            .find(|kind| makes_sense(kind))
            .unwrap_or("ethernet");
        interface.insert("type".to_owned(), Value::from(kind));
    }
    Value::Object(document)
}

/// Whether nmstate accepts any key in an interface of this type.
fn is_lax(kind: &str) -> bool {
    kind == "tun"
}

#[cfg(test)]
mod tests;
