//! A desired state as files of NetworkManager, written without a machine.
//!
//! For files that reach a host by other means, such as a MachineConfig. nmstate writes them; what it would
//! leave out in silence, or could only know from a machine, is refused here first (`limits`).

mod limits;
mod remarks;
mod stable;

use std::fmt;

use knmstate_document::{InvalidDocument, MAIN_TABLE, NetworkState, Place, secrets::Scrubber};
use nmstate::NetworkState as Document;
use serde_json::{Map, Value};

use crate::check::check;
pub use limits::refuse_what_no_file_can_say;
pub use remarks::remarks;

/// A profile of NetworkManager. Its text may hold secrets, and `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Keyfile {
    /// The name of the file, which ends in `.nmconnection`.
    pub name: String,
    pub text: String,
}

impl fmt::Debug for Keyfile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Keyfile").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The longest name that a file can have.
const MAX_FILE_NAME: usize = 255;

/// The files that give a machine this network, by name. The same state gives the same files, to the byte.
///
/// An interface may be held by a profile that the machine has already, so these are preferred to one that says nothing
/// about its priority; otherwise NetworkManager takes the profile that it has used last.
pub fn keyfiles(desired: &NetworkState) -> Result<Vec<Keyfile>, InvalidDocument> {
    check(desired.sections(), &std::collections::BTreeMap::new())?;
    refuse_what_no_file_can_say(desired)?;
    let value = with_tables(desired.clone());
    let mut scrubber = Scrubber::default();
    scrubber.learn(&value);
    let refuse = |text: &str| limits::explained(&scrubber.clean(text), desired);
    let document: Document = serde_json::from_value(value).map_err(|error| refuse(&error.to_string()))?;
    let mut generated = document.gen_conf().map_err(|error| refuse(error.msg()))?;
    let mut files: Vec<Keyfile> = generated
        .remove("NetworkManager")
        .unwrap_or_default()
        .into_iter()
        .map(|(name, text)| Keyfile { name, text: preferred(&text) })
        .collect();
    files.sort_by(|one, other| one.name.cmp(&other.name));
    stable::make_stable(&mut files);
    for file in &files {
        check_name(&file.name)?;
    }
    if let Some(twice) = files.windows(2).find(|pair| pair[0].name == pair[1].name) {
        let why = format!(
            "two interfaces would share the file {}; give one of them another profile-name",
            twice[0].name
        );
        return Err(InvalidDocument::new(Place::key("interfaces"), why));
    }
    Ok(files)
}

/// A route without a table goes into the main one, as on a machine.
fn with_tables(desired: NetworkState) -> Value {
    let mut value = desired.into_value();
    let routes = value.pointer_mut("/routes/config").and_then(Value::as_array_mut).into_iter().flatten();
    for route in routes.filter_map(Value::as_object_mut) {
        let is_unsaid = |route: &Map<String, Value>| {
            route.get("table-id").is_none_or(|table| table.is_null() || *table == 0)
        };
        if is_unsaid(route) {
            route.insert("table-id".to_owned(), Value::from(MAIN_TABLE));
        }
    }
    value
}

/// The profile, preferred to those of priority 0, which is what most have. OpenShift's own for `br-ex` have 100.
fn preferred(text: &str) -> String {
    text.replacen("[connection]\n", "[connection]\nautoconnect-priority=1\n", 1)
}

/// Names come from the document, and may only name a file in the directory that it is meant for.
fn check_name(name: &str) -> Result<(), InvalidDocument> {
    let is_plain = |c: char| c == ' ' || (c.is_ascii_graphic() && c != '/');
    if name.starts_with('.') || !name.chars().all(is_plain) || name.len() > MAX_FILE_NAME {
        let why = format!(
            "{name:?} cannot be the name of a file; give the interface a profile-name of letters, digits and dashes"
        );
        return Err(InvalidDocument::new(Place::key("interfaces"), why));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
