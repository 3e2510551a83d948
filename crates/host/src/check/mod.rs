//! Whether a desired state can be understood at all, asked without a machine.
//!
//! What only a machine knows (which interfaces it has, what its captures find) is not judged. A reference stands for a
//! value of the right kind here; where it is not clear which kind that would be, the benefit of the doubt is given.

mod placeholders;
mod words;

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::{
    captures,
    error::{HostError, Place},
    network_manager::misunderstood,
    secrets::Scrubber,
    state::NetworkState,
};
use placeholders::Filled;
pub(crate) use placeholders::is_reference;

/// The types of interfaces that nmstate knows.
const TYPES: [&str; 21] = [
    "ethernet",
    "bond",
    "linux-bridge",
    "vlan",
    "ovs-bridge",
    "ovs-interface",
    "vxlan",
    "vrf",
    "dummy",
    "veth",
    "mac-vlan",
    "mac-vtap",
    "hsr",
    "ip-tunnel",
    "loopback",
    "infiniband",
    "tun",
    "macsec",
    "ipsec",
    "xfrm",
    "ipvlan",
];

/// Refuses a desired state, or captures, that no machine would understand.
pub fn check(desired: &Map<String, Value>, capture: &BTreeMap<String, String>) -> Result<(), HostError> {
    captures::check(capture)?;
    let mut scrubber = Scrubber::default();
    scrubber.learn(&Value::Object(desired.clone()));
    let mut filled = Filled::of(desired);
    NetworkState::parse(Value::Object(filled.document.clone())).map_err(|error| filled.as_written(error))?;
    check_types(&filled)?;
    // Each round takes out at least one part that may be wrong because of a reference, or is the last.
    for _ in 0..=2 * filled.references.len() {
        let document = with_types(&filled.document);
        let Err(error) = misunderstood::understood(&document) else { return Ok(()) };
        let place = misunderstood::find(&document);
        if !filled.give_the_benefit_of_the_doubt(&place, &error) {
            let why = words::explained(&scrubber.clean(&error), place.interface_name().is_some());
            return Err(filled.as_written(HostError::invalid(place, why)));
        }
    }
    Ok(())
}

/// nmstate takes any word for a type. One that it does not know may come from the kernel; one that looks like another
/// is a slip.
fn check_types(filled: &Filled) -> Result<(), HostError> {
    let interfaces = filled.document.get("interfaces").and_then(Value::as_array).into_iter().flatten();
    for interface in interfaces {
        let text = |key: &str| interface.get(key).and_then(Value::as_str).unwrap_or_default();
        let kind = text("type");
        if kind.len() > 4
            && kind != "unknown"
            && !TYPES.contains(&kind)
            && let Some(meant) = words::nearest(kind, TYPES)
        {
            let why = format!("unknown type {kind:?}; did you mean {meant:?}?");
            return Err(
                filled.as_written(HostError::invalid(Place::interface(text("name")).below("type"), why))
            );
        }
    }
    Ok(())
}

/// The document with a type for each interface that has none, because nmstate takes any key of such a one. An interface
/// that is on the machine may be named without its type, so any type that makes sense of it will do.
fn with_types(document: &Map<String, Value>) -> Value {
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
            misunderstood::understood(&Value::Object(alone)).is_ok()
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

/// Whether nmstate takes any key of such an interface.
fn is_lax(kind: &str) -> bool {
    kind == "tun"
}

#[cfg(test)]
mod tests;
