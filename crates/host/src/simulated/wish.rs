//! What a document asks of each interface, understood but not yet done.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::interface::Interface;
use super::kind::Kind;
use crate::error::{HostError, Place};
use crate::state::{NetworkState, interface_name};

/// Who asks. The world outside may do what a document must not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// Somebody with a desired state.
    Agent,
    /// Somebody with `ip`, a container runtime, a cable.
    Outside,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    Up,
    Down,
    Absent,
    /// There, and not managed by anybody who takes documents.
    Unmanaged,
}

#[derive(Debug)]
pub(super) struct Wish<'a> {
    pub(super) kind: Kind,
    pub(super) wanted: Wanted,
    pub(super) keys: &'a Map<String, Value>,
}

impl Wish<'_> {
    /// Wants the interface to be there, in whatever condition.
    pub(super) fn keeps(&self) -> bool {
        matches!(self.wanted, Wanted::Up | Wanted::Unmanaged)
    }

    /// Names the ports of a controller.
    pub(super) fn names_ports(&self) -> bool {
        self.kind.is_controller()
            && self.keeps()
            && [self.kind.section(), (self.kind == Kind::Bond).then_some("bond")].into_iter().flatten().any(
                |key| {
                    let section = self.keys.get(key);
                    ["port", "ports"]
                        .into_iter()
                        .any(|key| section.and_then(|s| s.get(key)).is_some_and(|v| !v.is_null()))
                },
            )
    }
}

pub(super) type Wishes<'a> = BTreeMap<&'a str, Wish<'a>>;

/// The wishes of a document that mean something on this machine, by the name of the interface.
pub(super) fn wishes<'a>(
    desired: &'a NetworkState,
    there: &BTreeMap<String, Interface>,
    lacking: &BTreeSet<Kind>,
    origin: Origin,
) -> Result<Wishes<'a>, HostError> {
    let mut wishes = Wishes::new();
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
            wishes.insert(name, Wish { kind, wanted, keys });
        }
    }
    Ok(wishes)
}

/// The kind that is meant; `None` when the wish is to have what is not there anyway.
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
        (Some((_, Some(kind))), Some(there)) if alike(kind, there.kind) => Ok(Some(there.kind)),
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

/// To whoever configures it, a veth is an ethernet interface.
fn alike(a: Kind, b: Kind) -> bool {
    let ethernet = [Kind::Ethernet, Kind::Veth];
    a == b || ethernet.contains(&a) && ethernet.contains(&b)
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
