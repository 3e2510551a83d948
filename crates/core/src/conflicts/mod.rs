//! Whether two desired states of one node can both be kept.
//!
//! Two documents conflict where both set the same key to different values. Different keys add up, because nmstate
//! merges a document into the current state:
//!
//! - an interface is merged key by key; so is everything below it that is a map;
//! - a list replaces the current one (addresses, ports, name servers), so lists have to be equal;
//! - routes, rules, mappings, alternative names and virtual functions are merged entry by entry, so only entries with
//!   the same identity are compared;
//! - `state: absent` removes every key of the interface, so it conflicts with any.
//!
//! The value of a capture is known on the node only: such a value conflicts with nothing.

mod compare;
mod controllers;
mod routing;
mod subjects;

use std::fmt;

use knmstate_api::State;
use knmstate_document::{
    Document, interfaces,
    interfaces::{interface_name, is_same_interface},
    is_absent,
    references::with_main_keys,
    text,
};

use compare::{difference, entry_difference};
pub(crate) use subjects::Subjects;

/// A key that two documents set to different values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Where, such as `interfaces[eth1].mtu`.
    pub path: String,
    /// The value in each of them, short enough for a sentence; `None` when it is secret.
    pub values: Option<[String; 2]>,
}

impl fmt::Display for Conflict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.values {
            Some([here, there]) => write!(formatter, "{} is {here} here and {there} there", self.path),
            None => write!(formatter, "{} is not the same here and there", self.path),
        }
    }
}

/// How a reference that is not filled in counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Open {
    /// It conflicts with nothing.
    Agrees,
    /// It may get any value, so it may conflict with any.
    Differs,
}

/// The first conflict between two desired states of one node.
pub fn conflict(here: &State, there: &State) -> Option<Conflict> {
    first(&here.0, &there.0, Open::Agrees)
}

/// Whether two desired states could conflict once their references are filled in. The names in them must be known
/// ([`Subjects::are_named`]); values need not be.
pub(crate) fn could_conflict(here: &State, there: &State) -> bool {
    first(&here.0, &there.0, Open::Differs).is_some()
}

fn first(here: &Document, there: &Document, open: Open) -> Option<Conflict> {
    in_interfaces(here, there, open)
        .or_else(|| controllers::conflict(here, there))
        .or_else(|| routing::conflict(here, there, open))
        .or_else(|| in_other_sections(here, there, open))
}

fn in_interfaces(here: &Document, there: &Document, open: Open) -> Option<Conflict> {
    interfaces(here).find_map(|one| {
        interfaces(there).filter(|other| is_same_interface(one, other)).find_map(|other| {
            let path = format!("interfaces[{}]", interface_name(one));
            if is_absent(one) != is_absent(other) {
                let state = |interface: &Document| match text(interface, "state") {
                    "" => "configured".to_owned(),
                    state => state.to_owned(),
                };
                let values = Some([state(one), state(other)]);
                return Some(Conflict { path: format!("{path}.state"), values });
            }
            if is_absent(one) {
                return None;
            }
            entry_difference(&with_main_keys(one), &with_main_keys(other), &path, open)
        })
    })
}

fn in_other_sections(here: &Document, there: &Document, open: Open) -> Option<Conflict> {
    // A description of the whole document is for people.
    let is_other =
        |section: &str| !matches!(section, "interfaces" | "routes" | "route-rules" | "description");
    here.iter()
        .filter(|(section, _)| is_other(section))
        .find_map(|(section, value)| difference(value, there.get(section)?, section, section, open))
}

#[cfg(test)]
mod tests;
