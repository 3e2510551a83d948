//! Captures: parts of a machine's present state that a desired document refers to, by nmstate's policy language.
//!
//! Nothing here touches the machine. The state comes as an argument: left without one, nmstate would go and read it,
//! and block the thread.

mod expressions;
mod lifetimes;
mod references;

use knmstate_document::{InvalidDocument, NetworkState, secrets};
use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Why captures could not be resolved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CaptureError {
    /// The document or a capture is wrong, or does not fit the state.
    #[error(transparent)]
    Invalid(#[from] InvalidDocument),
    /// nmstate cannot read the state that captures are resolved in.
    #[error("{why}")]
    UnreadableState { why: String },
}

/// A document without references, and what they referred to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resolved {
    pub desired: NetworkState,
    /// What every capture has found, by the name of the capture, secrets hidden.
    pub captured: BTreeMap<String, Map<String, Value>>,
}

/// Puts what `capture` finds in `current` into the references of `desired`.
///
/// A capture that is among the `known` ones is used as it is and not evaluated again: what was found before a change
/// is often not there any more after it, and the document has to stay the same.
pub fn resolve(
    desired: &Map<String, Value>,
    capture: &BTreeMap<String, String>,
    current: &NetworkState,
    known: &BTreeMap<String, Map<String, Value>>,
) -> Result<Resolved, CaptureError> {
    let mut document = desired.clone();
    let mut captured = BTreeMap::new();
    if !capture.is_empty() || references::are_in(desired) {
        let found = expressions::evaluate(capture, current, known)?;
        references::fill(&mut document, &found)?;
        for (name, state) in found {
            let state = match known.get(&name) {
                Some(known) => known.clone(),
                None => expressions::written_down(&name, &state)?,
            };
            captured.insert(name, without_secrets(state));
        }
    }
    lifetimes::take_off(&mut document);
    Ok(Resolved { desired: NetworkState::parse(Value::Object(document))?, captured })
}

/// Refuses expressions that are wrong on every machine.
pub(crate) fn check(capture: &BTreeMap<String, String>) -> Result<(), InvalidDocument> {
    expressions::check(capture)
}

fn without_secrets(mut state: Map<String, Value>) -> Map<String, Value> {
    for (key, below) in &mut state {
        if !secrets::is_secret(key, below) {
            secrets::hide(below);
        }
    }
    state
}

#[cfg(test)]
mod tests;
