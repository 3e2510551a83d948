//! What a document asks of each interface, understood but not yet done.

use knmstate_document::{
    NetworkState, Place, interface_name, interfaces::is_same_type, references::with_main_keys,
};
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::interface::Interface;
use super::kind::Kind;
use knmstate_host::HostError;

/// Who asks. The world outside may do what a document must not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// A desired state.
    Agent,
    /// Another program, such as `ip` or a container runtime, or a cable.
    Outside,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    Up,
    Down,
    Absent,
    /// It exists, and is not managed by any program that applies documents.
    Unmanaged,
}

#[derive(Debug)]
pub(super) struct DesiredInterface<'a> {
    pub(super) kind: Kind,
    pub(super) wanted: Wanted,
    pub(super) keys: &'a Map<String, Value>,
}

impl DesiredInterface<'_> {
    /// Whether the interface has to exist.
    pub(super) fn keeps(&self) -> bool {
        matches!(self.wanted, Wanted::Up | Wanted::Unmanaged)
    }

    /// Names the ports of a controller.
    pub(super) fn names_ports(&self) -> bool {
        self.kind.is_controller()
            && self.keeps()
            && with_main_keys(self.keys)
                .get(self.kind.section().unwrap_or_default())
                .and_then(|section| section.get("port"))
                .is_some_and(|ports| !ports.is_null())
    }
}

pub(super) type DesiredInterfaces<'a> = BTreeMap<&'a str, DesiredInterface<'a>>;

/// The desired interfaces that concern this machine, by name.
pub(super) fn interfaces<'a>(
    desired: &'a NetworkState,
    there: &BTreeMap<String, Interface>,
    lacking: &BTreeSet<Kind>,
    origin: Origin,
) -> Result<DesiredInterfaces<'a>, HostError> {
    let mut targets = DesiredInterfaces::new();
    let mut seen = BTreeSet::new();
    for keys in desired.interfaces() {
        let name = interface_name(keys);
        let place = Place::interface(name);
        if !seen.insert(name) {
            return Err(HostError::invalid(place, "the interface is listed twice"));
        }
        let wanted = match keys.get("state").and_then(Value::as_str).unwrap_or("up") {
            "up" => Wanted::Up,
            "down" => Wanted::Down,
            "absent" => Wanted::Absent,
            "ignore" if origin == Origin::Outside => Wanted::Unmanaged,
            "ignore" => continue,
            other => {
                let why = format!("{other:?} is not one of up, down, absent, ignore");
                return Err(HostError::invalid(place.below("state"), why));
            }
        };
        let identifier = keys.get("identifier").and_then(Value::as_str).unwrap_or("name");
        if identifier != "name" {
            return Err(HostError::Unsupported {
                place: place.below("identifier"),
                what: format!("an interface found by {identifier}"),
                why: "a simulated machine finds interfaces by name".to_owned(),
            });
        }
        if let Some(kind) = kind_of(keys, there.get(name), wanted, &place)? {
            if lacking.contains(&kind) && !there.contains_key(name) {
                return Err(HostError::Unsupported {
                    place: place.below("type"),
                    what: format!("an interface of type {}", kind.name()),
                    why: "its kernel has no such driver".to_owned(),
                });
            }
            targets.insert(name, DesiredInterface { kind, wanted, keys });
        }
    }
    Ok(targets)
}

/// The kind of a desired interface; `None` when it is to be absent and does not exist.
fn kind_of(
    keys: &Map<String, Value>,
    there: Option<&Interface>,
    wanted: Wanted,
    place: &Place,
) -> Result<Option<Kind>, HostError> {
    let said = keys.get("type").and_then(Value::as_str).filter(|name| *name != "unknown");
    let kept = matches!(wanted, Wanted::Up | Wanted::Unmanaged);
    let place = place.below("type");
    match (said.map(|name| (name, Kind::named(name))), there) {
        (None, Some(there)) => Ok(Some(there.kind)),
        (Some((_, Some(kind))), Some(there)) if is_same_type(kind.name(), there.kind.name()) => {
            Ok(Some(there.kind))
        }
        (Some((name, _)), Some(there)) => Err(HostError::invalid(
            place,
            format!("it is of type {}, and cannot be turned into {name}; remove it first", there.kind.name()),
        )),
        (_, None) if !kept => Ok(None),
        (None, None) => Err(HostError::invalid(
            place,
            "there is no such interface on this machine; give its type if it is to be created",
        )),
        (Some((_, Some(Kind::Ethernet))), None) if keys.get("veth").is_some_and(Value::is_object) => {
            Ok(Some(Kind::Veth))
        }
        (Some((name, Some(kind))), None) if kind.is_hardware() => Err(HostError::invalid(
            place,
            format!("there is no such {name} interface, and it cannot be created"),
        )),
        (Some((_, Some(kind))), None) => {
            check_name(interface_name(keys))?;
            Ok(Some(kind))
        }
        (Some((name, None)), None) if Kind::is_real_but_not_simulated(name) => Err(HostError::Unsupported {
            place,
            what: format!("an interface of type {name}"),
            why: "a simulated machine does not know how".to_owned(),
        }),
        (Some((name, None)), None) => {
            Err(HostError::invalid(place, format!("{name:?} is not a type of interface")))
        }
    }
}

/// The kernel's rule for names.
fn check_name(name: &str) -> Result<(), HostError> {
    let bad = name.len() > 15
        || name == "."
        || name == ".."
        || name.chars().any(|c| c == '/' || c == ':' || c.is_whitespace() || c.is_control());
    if bad {
        let why = "a name has at most 15 bytes and no slash, colon or blank";
        return Err(HostError::invalid(Place::interface(name).below("name"), why));
    }
    Ok(())
}
