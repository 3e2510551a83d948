//! Whether two desired states of one node can both be kept.
//!
//! Two documents conflict where both say something about the same thing and do not say the same. What they say of
//! different keys adds up, because nmstate merges a document into what is there:
//!
//! - an interface is merged key by key; so is everything below it that is a map;
//! - a list replaces the one that was there (addresses, ports, name servers), so lists have to be equal;
//! - routes, rules, mappings, alternative names and virtual functions are merged entry by entry, so only entries that
//!   mean the same one are compared;
//! - `state: absent` leaves nothing that anybody else could have said about the interface.
//!
//! What a capture will stand for is known on the node only: such a value conflicts with nothing.

mod compare;
mod controllers;
mod routing;
mod subjects;

use std::fmt;

use knmstate_api::State;

use crate::document::{Document, interfaces, is_absent, text};
use compare::{difference, entry_difference};
pub(crate) use subjects::Subjects;

/// What two documents say differently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Where, such as `interfaces[eth1].mtu`.
    pub path: String,
    /// What each of them says, short enough for a sentence; `None` when it is secret.
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

/// How a reference counts that is not filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Open {
    /// It conflicts with nothing.
    Agrees,
    /// It may become anything, so it may conflict with anything.
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
            let path = format!("interfaces[{}]", text(one, "name"));
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
            entry_difference(one, other, &path, open)
        })
    })
}

/// By name. An OVS bridge is no interface of the kernel, and may be called like one.
fn is_same_interface(one: &Document, other: &Document) -> bool {
    let name = text(one, "name");
    if name.is_empty() || name.contains("{{") || name != text(other, "name") {
        return false;
    }
    let types = [text(one, "type"), text(other, "type")];
    types[0] == types[1] || types.contains(&"") || !types.contains(&"ovs-bridge")
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
