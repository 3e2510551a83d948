//! Is NetworkManager new enough?
//!
//! By its release notes. A NetworkManager that is too old for a kind of interface, or for forwarding, is distinguished
//! from one that is not, and refused. Single settings are sometimes brought to older versions by those who distribute
//! them, and an old NetworkManager refuses them soon enough by itself: those are warnings.

use knmstate_document::{NetworkState, Place, interface_name};
use std::collections::BTreeMap;
use std::iter::once;
use std::path::Path;
use std::{fmt, fs};

use serde_json::Value;

use super::Facts;
use super::names::{Interface, is_same_kind, value};
use crate::error::HostError;
use crate::host::Warning;
use knmstate_document::interfaces::interface_type;

/// Which NetworkManager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version {
    major: u32,
    minor: u32,
}

impl Version {
    const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split(['.', '-']);
        Some(Self::new(numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    }

    /// Whether it has what came with `first`. The versions with odd numbers lead to the next one, and may have it.
    fn has(self, first: Self) -> bool {
        Self::new(self.major, self.minor.next_multiple_of(2)) >= first
    }

    /// Since when NetworkManager says which plugins it has.
    pub(crate) fn names_open_vswitch(self) -> bool {
        self >= Self::new(1, 24)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

const KINDS: [(&str, Version); 2] = [("ipvlan", Version::new(1, 52)), ("hsr", Version::new(1, 46))];

const FORWARDING: Version = Version::new(1, 54);

/// The key, the value that is meant (any, where none is named), and what has it first.
const SETTINGS: [(&[&str], Option<&str>, Version); 8] = [
    (&["ethtool", "fec"], None, Version::new(1, 52)),
    (&["hsr", "interlink"], None, Version::new(1, 56)),
    (&["hsr", "protocol"], Some("hsr-2012"), Version::new(1, 56)),
    (&["macsec", "offload"], None, Version::new(1, 46)),
    (&["vlan", "protocol"], Some("802.1ad"), Version::new(1, 42)),
    (&["link-aggregation", "options", "arp_missed_max"], None, Version::new(1, 44)),
    (&["link-aggregation", "options", "lacp_active"], None, Version::new(1, 44)),
    (&["link-aggregation", "options", "ns_ip6_target"], None, Version::new(1, 44)),
];

pub(super) fn check(
    interface: &Interface,
    current: &NetworkState,
    facts: &Facts,
) -> Result<Vec<Warning>, HostError> {
    let Some(found) = facts.network_manager else { return Ok(Vec::new()) };
    let kind = interface_type(interface);
    let place = Place::interface(interface_name(interface));
    let too_old = |place: Place, what: String, first: Version| {
        let why = format!("that takes NetworkManager {first} or newer, and it has {found}");
        Err(HostError::Unsupported { place, what, why })
    };
    let warning = |path: &[&str], first: Version| Warning {
        place: path.iter().fold(place.clone(), |place, key| place.below(key)),
        what: format!("this takes NetworkManager {first} or newer, and this machine has {found}"),
    };
    for (of_kind, first) in KINDS {
        if kind == of_kind && !found.has(first) {
            return too_old(place.below("type"), format!("interfaces of type {kind}"), first);
        }
    }
    let mut warnings = Vec::new();
    match forwarding(interface, current, facts) {
        Some(Forwarding::Stays) if !found.has(FORWARDING) => {
            let place = place.below("ipv4").below("forwarding");
            return too_old(place, "forwarding of a single interface".to_owned(), FORWARDING);
        }
        Some(Forwarding::ComesOtherwise) if !found.has(FORWARDING) => {
            warnings.push(warning(&["ipv4", "forwarding"], FORWARDING));
        }
        _ => {}
    }
    let newer = SETTINGS.iter().filter(|(path, meant, first)| {
        let wanted = value(interface, path);
        let is_meant = wanted.is_some_and(|wanted| meant.is_none_or(|meant| *wanted == meant));
        is_meant
            && !found.has(*first)
            && wanted.is_some_and(|wanted| !is_so(interface, wanted, path, current))
    });
    warnings.extend(newer.map(|(path, _, first)| warning(path, *first)));
    Ok(warnings)
}

/// What to report about `forwarding` when NetworkManager does not support it.
enum Forwarding {
    /// An interface that is there stays as it is, which is not as wanted.
    Stays,
    /// A new one comes as the machine's default is, which is not as wanted.
    ComesOtherwise,
}

/// `None` when it is as wanted, or will be, or nothing is wanted.
fn forwarding(interface: &Interface, current: &NetworkState, facts: &Facts) -> Option<Forwarding> {
    let wanted = value(interface, &["ipv4", "forwarding"])?.as_bool()?;
    // Without IPv4 there is nothing to forward, and nmstate says nothing about it.
    if facts.forwarding || value(interface, &["ipv4", "enabled"]) == Some(&Value::Bool(false)) {
        return None;
    }
    let name = interface_name(interface);
    let stays = current.interface(name).is_some_and(|found| is_same_kind(interface, found));
    if stays {
        (*facts.forwards.get(name)? != wanted).then_some(Forwarding::Stays)
    } else {
        (*facts.forwards.get(DEFAULT)? != wanted).then_some(Forwarding::ComesOtherwise)
    }
}

/// What the kernel calls the interfaces that are not there yet.
const DEFAULT: &str = "default";

/// Which of these interfaces forward IPv4, and whether new ones do. What cannot be read is left out.
pub(super) fn forwards<'a>(names: impl Iterator<Item = &'a str>) -> BTreeMap<String, bool> {
    let read = |name: &str| {
        let path = Path::new("/proc/sys/net/ipv4/conf").join(name).join("forwarding");
        Some((name.to_owned(), fs::read_to_string(path).ok()?.trim() == "1"))
    };
    names.filter(|name| !name.contains('/')).chain(once(DEFAULT)).filter_map(read).collect()
}

/// What is already as desired needs no support.
fn is_so(interface: &Interface, wanted: &Value, path: &[&str], current: &NetworkState) -> bool {
    let current = current.interface(interface_name(interface));
    current.and_then(|current| value(current, path)) == Some(wanted)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::names::tests::state_of;
    use super::*;

    #[test]
    fn versions_are_read_and_compared() {
        for (text, expected) in [
            ("1.42.4", Some(Version::new(1, 42))),
            ("1.58-rc1", Some(Version::new(1, 58))),
            ("1.57.2-dev", Some(Version::new(1, 57))),
            ("2.0", Some(Version::new(2, 0))),
            ("", None),
            ("new", None),
        ] {
            assert_eq!(Version::parse(text), expected, "{text}");
        }
        let first = Version::new(1, 52);
        for (minor, has) in [(42, false), (50, false), (51, true), (52, true), (58, true)] {
            assert_eq!(Version::new(1, minor).has(first), has, "1.{minor}");
        }
        assert!(Version::new(2, 0).has(first) && !Version::new(0, 99).has(first));
    }

    #[test]
    fn what_is_too_new_for_network_manager_is_refused_or_warned_of() {
        let current = state_of(json!({ "interfaces": [
            { "name": "eth1", "type": "veth", "ipv4": { "enabled": false } },
        ] }));
        let eth1 = |forwarding: bool| json!({ "name": "eth1", "type": "ethernet", "ipv4": { "forwarding": forwarding } });
        let new = |forwarding: bool| json!({ "name": "br1", "type": "linux-bridge", "ipv4": { "enabled": true, "forwarding": forwarding } });
        let recreated = json!({ "name": "eth1", "type": "dummy", "ipv4": { "forwarding": true } });
        let without =
            json!({ "name": "eth1", "type": "ethernet", "ipv4": { "enabled": false, "forwarding": true } });
        let bond = json!({ "name": "bond0", "type": "bond", "link-aggregation": { "options": { "lacp_active": "on" } } });
        let hsr = |protocol: &str| json!({ "name": "h", "type": "hsr", "hsr": { "protocol": protocol } });
        let (old, trixie, newest) = (Version::new(1, 42), Version::new(1, 52), Version::new(1, 58));
        let refused = |place: &str| Err(place.to_owned());
        let warned = |place: &str| Ok(vec![place.to_owned()]);
        let fine = || Ok(Vec::new());
        let ipvlan = json!({ "name": "i", "type": "ipvlan" });
        for (interface, version, forwarding, expected) in [
            (
                &ipvlan,
                Some(old),
                false,
                refused(
                    "interfaces[i].type: this machine cannot do interfaces of type ipvlan: that takes NetworkManager 1.52 or newer, and it has 1.42",
                ),
            ),
            (&ipvlan, Some(trixie), false, fine()),
            (&ipvlan, None, false, fine()),
            (&hsr("prp"), Some(old), false, refused("interfaces[h].type: ")),
            (&hsr("prp"), Some(trixie), false, fine()),
            (
                &hsr("hsr-2012"),
                Some(trixie),
                false,
                warned(
                    "interfaces[h].hsr.protocol: this takes NetworkManager 1.56 or newer, and this machine has 1.52",
                ),
            ),
            (&hsr("hsr-2012"), Some(newest), false, fine()),
            (&eth1(true), Some(old), false, refused("interfaces[eth1].ipv4.forwarding: ")),
            (&eth1(true), Some(trixie), false, refused("interfaces[eth1].ipv4.forwarding: ")),
            (&eth1(true), Some(newest), true, fine()),
            // Brought to an older one by those who distribute it; and already so.
            (&eth1(true), Some(trixie), true, fine()),
            (&eth1(false), Some(old), false, fine()),
            (&without, Some(old), false, fine()),
            // A new one comes as the default is.
            (&new(false), Some(old), false, fine()),
            (&new(true), Some(old), false, warned("interfaces[br1].ipv4.forwarding: ")),
            (&new(true), Some(newest), false, fine()),
            (&recreated, Some(old), false, warned("interfaces[eth1].ipv4.forwarding: ")),
            (&bond, Some(old), false, warned("interfaces[bond0].link-aggregation.options.lacp_active: ")),
            (&bond, Some(trixie), false, fine()),
        ] {
            let forwards = ["eth1", DEFAULT].map(|name| (name.to_owned(), false)).into();
            let facts = Facts { network_manager: version, forwarding, forwards, ..Facts::default() };
            let found = check(interface.as_object().expect("a map"), &current, &facts);
            let matches = match (&found, &expected) {
                (Err(error), Err(start)) => error.to_string().starts_with(start),
                (Ok(warnings), Ok(starts)) => {
                    warnings.len() == starts.len()
                        && warnings
                            .iter()
                            .zip(starts)
                            .all(|(warning, start)| warning.to_string().starts_with(start))
                }
                _ => false,
            };
            assert!(matches, "{interface} with {version:?}: {found:?} instead of {expected:?}");
        }
    }
}
