//! Evaluates captures. Errors name the capture, which those of nmstate do not.

use knmstate_document::{InvalidDocument, NetworkState, Place};
use std::collections::{BTreeMap, BTreeSet, HashMap};

use nmstate::{NetworkCaptureRules, NetworkState as Document};
use serde_json::{Map, Value, json};

use super::CaptureError;

/// What the captures select, by name.
pub(super) type CapturedStates = HashMap<String, Document>;

pub(super) fn evaluate(
    capture: &BTreeMap<String, String>,
    current: &NetworkState,
    known: &BTreeMap<String, Map<String, Value>>,
) -> Result<CapturedStates, CaptureError> {
    let mut found = CapturedStates::new();
    for (name, state) in known.iter().filter(|(name, _)| capture.contains_key(*name)) {
        found.insert(name.clone(), read_back(name, state)?);
    }
    let new: BTreeMap<_, _> = capture
        .iter()
        .filter(|(name, _)| !found.contains_key(*name))
        .map(|(name, expression)| (name.as_str(), expression.as_str()))
        .collect();
    if new.is_empty() {
        return Ok(found);
    }
    let mut rules = NetworkCaptureRules::default();
    for name in in_order(&new, &found)? {
        rules.cmds.extend(parse(name, new.get(name).copied().unwrap_or_default())?.cmds);
    }
    let current = serde_json::from_value(current.clone().into_value()).map_err(|error| {
        let why = format!("nmstate does not understand the state of this machine: {error}");
        CaptureError::UnreadableState { why }
    })?;
    match rules.execute(&current) {
        Ok(captured) => found.extend(captured),
        Err(error) => return Err(first_error(&rules, &current, &error).into()),
    }
    Ok(found)
}

/// Whether the expressions can be read, and are built on nothing but each other.
pub(super) fn check(capture: &BTreeMap<String, String>) -> Result<(), InvalidDocument> {
    let all = capture.iter().map(|(name, expression)| (name.as_str(), expression.as_str())).collect();
    for name in in_order(&all, &CapturedStates::new())? {
        parse(name, all.get(name).copied().unwrap_or_default())?;
    }
    Ok(())
}

/// A captured state as it is kept.
pub(super) fn written_down(name: &str, state: &Document) -> Result<Map<String, Value>, InvalidDocument> {
    match serde_json::to_value(state) {
        Ok(Value::Object(map)) => Ok(map),
        _ => Err(InvalidDocument::new(place(name), "what was captured cannot be written down")),
    }
}

fn read_back(name: &str, state: &Map<String, Value>) -> Result<Document, InvalidDocument> {
    serde_json::from_value(Value::Object(state.clone())).map_err(|error| {
        InvalidDocument::new(place(name), format!("what was captured earlier is not understood: {error}"))
    })
}

fn place(capture: &str) -> Place {
    Place::key("capture").below(capture)
}

/// The captures, each after those that it is built on.
fn in_order<'a>(
    new: &BTreeMap<&'a str, &'a str>,
    found: &CapturedStates,
) -> Result<Vec<&'a str>, InvalidDocument> {
    let mut needs = BTreeMap::new();
    for (&name, expression) in new {
        let needed = mentioned(expression);
        if let Some(missing) =
            needed.iter().find(|needed| !new.contains_key(*needed) && !found.contains_key(**needed))
        {
            return Err(InvalidDocument::new(place(name), format!("there is no capture {missing}")));
        }
        if let Some(old) = needed.iter().find(|needed| found.contains_key(**needed)) {
            let why = format!(
                "it is built on capture {old}, which was taken earlier; all captures are taken at the same time, so \
                 the policy has to be deleted and created again"
            );
            return Err(InvalidDocument::new(place(name), why));
        }
        needs.insert(name, needed);
    }
    // In waves: those that are built on none, those that are built on them only, and so on.
    let mut order: Vec<&str> = Vec::new();
    let mut missing: BTreeMap<&str, usize> =
        needs.iter().map(|(name, needed)| (*name, needed.len())).collect();
    let mut built_on: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, needed) in &needs {
        for &needed in needed {
            built_on.entry(needed).or_default().push(*name);
        }
    }
    let mut wave: BTreeSet<&str> =
        missing.iter().filter(|(_, count)| **count == 0).map(|(name, _)| *name).collect();
    while !wave.is_empty() {
        order.extend(&wave);
        let mut next = BTreeSet::new();
        for name in wave.iter().filter_map(|name| built_on.get(name)).flatten() {
            if let Some(count) = missing.get_mut(name) {
                *count -= 1;
                if *count == 0 {
                    next.insert(*name);
                }
            }
        }
        wave = next;
    }
    let rest: Vec<_> = missing.iter().filter(|(_, count)| **count > 0).map(|(name, _)| *name).collect();
    if let Some(first) = rest.first() {
        let why = format!("it refers to itself, or is built on one that does: {}", rest.join(", "));
        return Err(InvalidDocument::new(place(first), why));
    }
    Ok(order)
}

/// The captures that an expression names, outside of quotes.
fn mentioned(expression: &str) -> BTreeSet<&str> {
    let is_end = |c: char| c.is_whitespace() || matches!(c, '=' | '!' | '|' | ':');
    expression
        .split('"')
        .step_by(2)
        .flat_map(|unquoted| unquoted.split(is_end))
        .filter_map(|word| word.strip_prefix("capture.")?.split('.').next())
        .collect()
}

fn parse(name: &str, expression: &str) -> Result<NetworkCaptureRules, InvalidDocument> {
    let expression = expression.replace('\u{a0}', " ");
    if !expression.is_ascii() {
        // nmstate counts bytes where it means characters.
        return Err(InvalidDocument::new(place(name), "an expression can have ASCII characters only"));
    }
    serde_json::from_value(json!({ name: expression })).map_err(|error| {
        // "PolicyError: what is wrong", the expression, and a drawing of dots up to the place.
        let text = error.to_string();
        let first = text.lines().next().unwrap_or_default();
        let what = first.split_once("Error: ").map_or(first, |(_, what)| what);
        let dots = text.lines().last().and_then(|last| last.strip_prefix("| ")?.strip_suffix('^'));
        InvalidDocument::new(place(name), sentence(what, expression.trim(), dots.map(str::len)))
    })
}

/// The error of the first capture that fails, with its name.
fn first_error(
    rules: &NetworkCaptureRules,
    current: &Document,
    last: &nmstate::NmstateError,
) -> InvalidDocument {
    let mut so_far = NetworkCaptureRules::default();
    for (name, command) in &rules.cmds {
        so_far.cmds.push((name.clone(), command.clone()));
        if let Err(error) = so_far.execute(current) {
            return InvalidDocument::new(place(name), explained(&error));
        }
    }
    InvalidDocument::new(Place::key("capture"), explained(last))
}

/// nmstate's own words, without the drawing.
pub(super) fn explained(error: &nmstate::NmstateError) -> String {
    let position = (error.kind() == nmstate::ErrorKind::PolicyError).then(|| error.position());
    sentence(error.msg(), error.line(), position)
}

fn sentence(what: &str, text: &str, position: Option<usize>) -> String {
    match position {
        Some(position) => format!("{what}, at character {} of: {text}", position + 1),
        None => what.to_owned(),
    }
}
