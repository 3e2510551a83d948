//! Which interfaces a document speaks of, by whatever name it calls them.

use std::iter::once;

use serde_json::{Map, Value};

use crate::state::{NetworkState, interface_name};

pub(super) type Interface = Map<String, Value>;

/// Kinds that are gone when nobody wants them any more. A card stays, whatever a document says of it.
const MADE_BY_SOFTWARE: [&str; 12] = [
    "bond",
    "dummy",
    "hsr",
    "ipvlan",
    "linux-bridge",
    "mac-vlan",
    "mac-vtap",
    "macsec",
    "vlan",
    "vrf",
    "vxlan",
    "ovs-interface",
];

/// What is desired, on the machine as it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct World<'a> {
    pub(super) desired: &'a NetworkState,
    pub(super) current: &'a NetworkState,
}

/// What is to be known about an interface that another one stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    /// It is there or will be, or that cannot be told.
    There,
    /// The document takes it away.
    TakenAway,
    Nowhere,
}

impl<'a> World<'a> {
    /// The interfaces that the document wants up.
    pub(super) fn wanted(self) -> impl Iterator<Item = &'a Interface> {
        self.desired.interfaces().filter(|interface| is_up(interface))
    }

    /// What becomes of the interface that is called `name` somewhere in the document.
    pub(super) fn presence(self, name: &str) -> Presence {
        let mentioned = self.desired.interfaces().filter(|interface| goes_by(interface, name));
        let (absent, kept): (Vec<_>, Vec<_>) = mentioned.partition(|interface| state(interface) == "absent");
        if !kept.is_empty() || self.is_end_of_a_pair(name) || self.may_be_a_virtual_function(name) {
            return Presence::There;
        }
        let found = self.current.interfaces().find(|interface| goes_by(interface, name));
        let is_card = |found: &Interface| !MADE_BY_SOFTWARE.contains(&kind(found));
        match found {
            None if absent.is_empty() => Presence::Nowhere,
            Some(found) if absent.is_empty() || is_card(found) => Presence::There,
            _ => Presence::TakenAway,
        }
    }

    /// The name that the kernel has for the interface that is called `name`, as far as it is known. In nmstate's order:
    /// names of the kernel, then alternative ones, then those of profiles.
    pub(super) fn kernel_name<'b>(self, name: &'b str) -> &'b str
    where
        'a: 'b,
    {
        let by_name = |state: &'a NetworkState| state.interface(name);
        let by_alternative =
            || self.current.interfaces().find(|interface| alternative(interface).any(|known| known == name));
        let desired = by_name(self.desired);
        let found = by_name(self.current)
            .or_else(by_alternative)
            .or_else(|| desired.and_then(|desired| self.current.interface_meant_by(desired)))
            .or(desired)
            .or_else(|| {
                self.desired.interfaces().chain(self.current.interfaces()).find(|other| goes_by(other, name))
            });
        found.map_or(name, interface_name)
    }

    /// What the document says of the interface that the kernel knows by this name.
    pub(super) fn desired_of(self, kernel_name: &str) -> Option<&'a Interface> {
        self.desired.interfaces().find(|desired| self.kernel_name(interface_name(desired)) == kernel_name)
    }

    /// A pair of cables is made by naming one end of it.
    fn is_end_of_a_pair(self, name: &str) -> bool {
        self.wanted().any(|interface| text(interface, &["veth", "peer"]) == Some(name))
    }

    /// Virtual functions come with the card that they belong to, and by names that nobody knows before.
    pub(super) fn may_be_a_virtual_function(self, name: &str) -> bool {
        name.starts_with("sriov:") || self.wanted().any(has_virtual_functions)
    }
}

pub(super) fn has_virtual_functions(interface: &Interface) -> bool {
    number(interface, &["ethernet", "sr-iov", "total-vfs"]).is_some_and(|count| count > 0)
}

pub(super) fn state(interface: &Interface) -> &str {
    interface.get("state").and_then(Value::as_str).unwrap_or("up")
}

pub(super) fn is_up(interface: &Interface) -> bool {
    state(interface) == "up"
}

/// The type, as far as the document says it.
pub(super) fn kind(interface: &Interface) -> &str {
    interface.get("type").and_then(Value::as_str).unwrap_or_default()
}

/// Whether an interface that is there stays when this one is desired by its name. A cable's end counts as a card.
pub(super) fn is_same_kind(desired: &Interface, found: &Interface) -> bool {
    let plain = |interface| match kind(interface) {
        "veth" => "ethernet",
        kind => kind,
    };
    matches!(kind(desired), "" | "unknown") || plain(desired) == plain(found)
}

/// An interface may also be named by its profile, or by an alternative name.
pub(super) fn goes_by(interface: &Interface, name: &str) -> bool {
    names(interface).any(|known| known == name)
}

fn names(interface: &Interface) -> impl Iterator<Item = &str> {
    let profile = interface.get("profile-name").and_then(Value::as_str);
    once(interface_name(interface)).chain(profile).chain(alternative(interface))
}

fn alternative(interface: &Interface) -> impl Iterator<Item = &str> {
    let names = interface.get("alt-names").and_then(Value::as_array).into_iter().flatten();
    names.filter_map(|name| name.get("name").and_then(Value::as_str))
}

pub(super) fn value<'a>(interface: &'a Interface, path: &[&str]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    rest.iter().try_fold(interface.get(*first)?, |value, key| value.get(key))
}

pub(super) fn text<'a>(interface: &'a Interface, path: &[&str]) -> Option<&'a str> {
    value(interface, path)?.as_str()
}

pub(super) fn number(interface: &Interface, path: &[&str]) -> Option<u64> {
    value(interface, path)?.as_u64()
}

/// The names that come closest to one that is wrong, the best first; all of them where none is close.
pub(super) fn closest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    const SHOWN: usize = 6;
    let mut known: Vec<(usize, &str)> = known.map(|known| (distance(name, known), known)).collect();
    known.sort_unstable();
    known.dedup();
    known.into_iter().map(|(_, known)| known).take(SHOWN).collect()
}

/// How many letters have to be changed, added or left out to make one of the other.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (line, letter) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], line + 1);
        for column in 0..other.len() {
            let change = diagonal + usize::from(letter != other[column]);
            diagonal = row[column + 1];
            row[column + 1] = change.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    pub(in super::super) fn state_of(document: Value) -> NetworkState {
        NetworkState::parse(document).expect("a state")
    }

    #[test]
    fn an_interface_is_found_by_all_of_its_names() {
        use Presence::{Nowhere, TakenAway, There};
        let current = state_of(json!({ "interfaces": [
            { "name": "eth1", "type": "ethernet", "profile-name": "uplink", "alt-names": [{ "name": "lan" }] },
            { "name": "eth2", "type": "ethernet", "mac-address": "02:00:00:00:00:0A", "profile-name": "br1" },
            { "name": "bond0", "type": "bond" },
            { "name": "bond1", "type": "bond" },
        ] }));
        let desired = state_of(json!({ "interfaces": [
            { "name": "eth1", "type": "ethernet", "state": "absent" },
            { "name": "bond1", "type": "bond", "state": "absent" },
            { "name": "bond3", "type": "bond", "state": "absent" },
            { "name": "by-mac", "identifier": "mac-address", "mac-address": "02:00:00:00:00:0a" },
            { "name": "by-another", "identifier": "mac-address", "mac-address": "02:00:00:00:00:0b" },
            { "name": "br1", "type": "linux-bridge", "state": "down" },
            { "name": "v1", "type": "veth", "veth": { "peer": "v2" } },
        ] }));
        let world = World { desired: &desired, current: &current };
        for (name, expected, kernel) in [
            // A card is still there when its configuration is not.
            ("eth1", There, "eth1"),
            ("lan", There, "eth1"),
            ("uplink", There, "eth1"),
            ("bond0", There, "bond0"),
            ("bond1", TakenAway, "bond1"),
            ("bond3", TakenAway, "bond3"),
            ("by-mac", There, "eth2"),
            ("by-another", There, "by-another"),
            // A new interface that is called like somebody's profile.
            ("br1", There, "br1"),
            ("v1", There, "v1"),
            ("v2", There, "v2"),
            ("sriov:eth1:0", There, "sriov:eth1:0"),
            ("eth7", Nowhere, "eth7"),
        ] {
            assert_eq!((world.presence(name), world.kernel_name(name)), (expected, kernel), "{name}");
        }
        let with_functions = state_of(json!({ "interfaces": [
            { "name": "eth1", "type": "ethernet", "ethernet": { "sr-iov": { "total-vfs": 2 } } },
        ] }));
        let world = World { desired: &with_functions, current: &current };
        assert_eq!(world.presence("eth1v0"), There, "nobody knows how it will be called");
    }

    #[test]
    fn the_closest_names_come_first() {
        let known = ["lo", "ens1f0", "ens1f1", "ens2", "docker0", "enp0s31f6", "br-ex", "wlan0"];
        for (name, expected) in
            [("ens1f2", &["ens1f0", "ens1f1"][..]), ("ens2", &["ens2"]), ("enp0s31f", &["enp0s31f6"])]
        {
            let found = closest(name, known.into_iter());
            assert_eq!((&found[..expected.len()], found.len()), (expected, 6), "{name}");
        }
        assert_eq!(closest("eth7", ["eth0"].into_iter()), ["eth0"]);
        for (one, other, expected) in
            [("", "abc", 3), ("abc", "", 3), ("kitten", "sitting", 3), ("a", "a", 0)]
        {
            assert_eq!(distance(one, other), expected, "{one} {other}");
        }
    }
}
