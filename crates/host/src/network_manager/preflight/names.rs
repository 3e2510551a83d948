//! Which interfaces a document means, by any of their names.

use knmstate_document::{
    Document, NetworkState, edit_distance, interface_name,
    interfaces::{
        alternative_names, interface_state, interface_type, is_called, is_removed_with_configuration,
        is_same_type,
    },
};
use serde_json::Value;

pub(super) type Interface = Document;

/// What is desired, on the machine as it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct World<'a> {
    pub(super) desired: &'a NetworkState,
    pub(super) current: &'a NetworkState,
}

/// Whether an interface that another one refers to exists after the change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    /// It is there or will be, or that is not known.
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

    /// Whether the interface that the document calls `name` exists after the change.
    pub(super) fn presence(self, name: &str) -> Presence {
        let mentioned = self.desired.interfaces().filter(|interface| is_called(interface, name));
        let (absent, kept): (Vec<_>, Vec<_>) =
            mentioned.partition(|interface| interface_state(interface) == "absent");
        if !kept.is_empty() || self.is_end_of_a_pair(name) || self.may_be_a_virtual_function(name) {
            return Presence::There;
        }
        let found = self.current.interfaces().find(|interface| is_called(interface, name));
        let is_nic = |found: &Interface| !is_removed_with_configuration(interface_type(found));
        match found {
            None if absent.is_empty() => Presence::Nowhere,
            Some(found) if absent.is_empty() || is_nic(found) => Presence::There,
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
        let by_alternative = || {
            self.current
                .interfaces()
                .find(|interface| alternative_names(interface).any(|known| known == name))
        };
        let desired = by_name(self.desired);
        let found = by_name(self.current)
            .or_else(by_alternative)
            .or_else(|| desired.and_then(|desired| self.current.interface_meant_by(desired)))
            .or(desired)
            .or_else(|| {
                self.desired
                    .interfaces()
                    .chain(self.current.interfaces())
                    .find(|other| is_called(other, name))
            });
        found.map_or(name, interface_name)
    }

    /// The type of a desired interface, which the document may leave to the machine.
    pub(super) fn type_of(self, desired: &'a Interface) -> &'a str {
        match interface_type(desired) {
            "" | "unknown" => self.current.interface(interface_name(desired)).map_or("", interface_type),
            known => known,
        }
    }

    /// The desired entry for the interface that the kernel knows by this name.
    pub(super) fn desired_of(self, kernel_name: &str) -> Option<&'a Interface> {
        self.desired.interfaces().find(|desired| self.kernel_name(interface_name(desired)) == kernel_name)
    }

    /// A pair of cables is made by naming one end of it.
    fn is_end_of_a_pair(self, name: &str) -> bool {
        self.wanted().any(|interface| text(interface, &["veth", "peer"]) == Some(name))
    }

    /// Virtual functions come with their NIC, and their names are not known before.
    pub(super) fn may_be_a_virtual_function(self, name: &str) -> bool {
        name.starts_with("sriov:") || self.wanted().any(has_virtual_functions)
    }
}

pub(super) fn has_virtual_functions(interface: &Interface) -> bool {
    number(interface, &["ethernet", "sr-iov", "total-vfs"]).is_some_and(|count| count > 0)
}

pub(super) fn is_up(interface: &Interface) -> bool {
    interface_state(interface) == "up"
}

/// Whether an interface that is there stays when this one is desired by its name. A cable's end counts as a NIC.
pub(super) fn is_same_kind(desired: &Interface, found: &Interface) -> bool {
    matches!(interface_type(desired), "" | "unknown")
        || is_same_type(interface_type(desired), interface_type(found))
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
    let mut known: Vec<(usize, &str)> = known.map(|known| (edit_distance(name, known), known)).collect();
    known.sort_unstable();
    known.dedup();
    known.into_iter().map(|(_, known)| known).take(SHOWN).collect()
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
            // A NIC is still there when its configuration is not.
            ("eth1", There, "eth1"),
            ("lan", There, "eth1"),
            ("uplink", There, "eth1"),
            ("bond0", There, "bond0"),
            ("bond1", TakenAway, "bond1"),
            ("bond3", TakenAway, "bond3"),
            ("by-mac", There, "eth2"),
            ("by-another", There, "by-another"),
            // A new interface with the name of an existing profile.
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
        assert_eq!(world.presence("eth1v0"), There, "its name is not known yet");
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
            assert_eq!(edit_distance(one, other), expected, "{one} {other}");
        }
    }
}
