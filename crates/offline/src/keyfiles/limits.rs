//! What files of NetworkManager cannot say, or only a machine knows.

use knmstate_document::{InvalidDocument, NetworkState, Place, RouteList, interface_name, is_absent};
use serde_json::{Map, Value};

use super::remarks::ports;
use crate::check::is_reference;

/// The types of interfaces that a file can describe in full. nmstate writes files for some others too, but leaves out
/// what makes them what they are.
const TYPES: [&str; 16] = [
    "ethernet",
    "veth",
    "bond",
    "linux-bridge",
    "vlan",
    "vxlan",
    "vrf",
    "dummy",
    "mac-vlan",
    "mac-vtap",
    "infiniband",
    "macsec",
    "ipsec",
    "ovs-bridge",
    "ovs-interface",
    "loopback",
];

/// The sections that files of profiles have a place for.
const SECTIONS: [&str; 4] = ["interfaces", "routes", "route-rules", "dns-resolver"];

/// Keys of an interface that are set by other means than profiles, or taken from the machine.
const KEYS: [(&str, &str); 3] = [
    ("alt-names", "alternative names are not part of a profile of NetworkManager; leave them to a policy"),
    (
        "dispatch",
        "scripts are not part of a profile of NetworkManager; put them into a MachineConfig as files of their own",
    ),
    (
        "copy-mac-from",
        "the MAC address of the node is not known here; write mac-address, or leave it to a policy",
    ),
];

/// Refuses what files cannot say, with the place and what to do instead.
pub fn refuse_what_no_file_can_say(desired: &NetworkState) -> Result<(), InvalidDocument> {
    for (section, value) in desired.sections() {
        if !SECTIONS.contains(&section.as_str()) {
            let why = if section == "hostname" {
                "all nodes of a pool would get the same name; leave it to DHCP or to a policy for one node"
            } else {
                "this is not part of a profile of NetworkManager; leave it to a policy"
            };
            return Err(InvalidDocument::new(Place::key(section), why));
        }
        if section != "interfaces" {
            refuse_texts(value, section, &Place::key(section))?;
        }
    }
    let ports = ports(desired);
    desired.interfaces().try_for_each(|interface| refuse_interface(interface, &ports))?;
    refuse_removals(desired)?;
    refuse_strange_next_hops(desired)
}

fn refuse_interface(interface: &Map<String, Value>, ports: &[String]) -> Result<(), InvalidDocument> {
    let place = Place::interface(interface_name(interface));
    let text = |key: &str| interface.get(key).and_then(Value::as_str);
    match text("state") {
        None | Some("up") => {}
        Some(state) => {
            let why = format!(
                "a file can only say that an interface is up, not {state:?}; take the interface out, or leave it to a \
                 policy"
            );
            return Err(InvalidDocument::new(place.below("state"), why));
        }
    }
    match text("type") {
        None => {
            let why = "no node can be asked what this interface is; add its type, such as ethernet";
            return Err(InvalidDocument::new(place.below("type"), why));
        }
        Some(kind) if !TYPES.contains(&kind) => {
            let why = format!(
                "an interface of type {kind:?} cannot be described in full by a file of NetworkManager; leave it to a \
                 policy"
            );
            return Err(InvalidDocument::new(place.below("type"), why));
        }
        Some("loopback") if interface.contains_key("mtu") => {
            let why = "a file cannot set the MTU of a loopback interface; leave it to a policy";
            return Err(InvalidDocument::new(place.below("mtu"), why));
        }
        Some(_) if is_silent_nic(interface, ports) => {
            let why = "a file describes an interface in full, and this one would lose its addresses; say what it has in \
                       ipv4 and ipv6, or enabled: false";
            return Err(InvalidDocument::new(place.below("ipv4"), why));
        }
        Some(_) => {}
    }
    for (key, why) in KEYS {
        if interface.get(key).is_some_and(|value| !value.is_null()) {
            return Err(InvalidDocument::new(place.below(key), why));
        }
    }
    interface.iter().try_for_each(|(key, value)| refuse_texts(value, key, &place.below(key)))
}

/// Whether this is a NIC of the machine without `ipv4` and `ipv6`. A policy leaves its addresses alone; a file without
/// them turns them off.
fn is_silent_nic(interface: &Map<String, Value>, ports: &[String]) -> bool {
    let is_said = |key: &str| interface.get(key).is_some_and(|value| !value.is_null());
    is_nic(interface)
        && !is_said("ipv4")
        && !is_said("ipv6")
        && !is_said("controller")
        && !ports.iter().any(|port| port == interface_name(interface))
}

/// Whether the interface is one that a machine has, not one that is made.
fn is_nic(interface: &Map<String, Value>) -> bool {
    let kind = interface.get("type").and_then(Value::as_str);
    matches!(kind, Some("ethernet" | "infiniband")) && !interface.contains_key("veth")
}

/// nmstate writes texts into files as they are, and a reader takes a backslash, a line break or a blank at an
/// end for something else. A password would be another one, and a line break would begin a line of its own.
fn refuse_texts(value: &Value, key: &str, place: &Place) -> Result<(), InvalidDocument> {
    match value {
        Value::String(text) => {
            let refuse = |why: &str| Err(InvalidDocument::new(place.clone(), why));
            if is_reference(text, key) {
                return refuse(
                    "a reference can only be filled in for a node; write the value, or leave this to a policy",
                );
            }
            if text.starts_with("sriov:") {
                return refuse(
                    "virtual functions are only known on the node; write the name of the interface",
                );
            }
            if text.contains('\\') || text.contains(char::is_control) || text.trim() != text {
                return refuse(
                    "a file of NetworkManager cannot hold a backslash, a control character, or a blank at an end",
                );
            }
            Ok(())
        }
        Value::Array(entries) => entries
            .iter()
            .enumerate()
            .try_for_each(|(index, entry)| refuse_texts(entry, key, &place.entry(index))),
        Value::Object(map) => map.iter().try_for_each(|(key, below)| {
            let place = place.below(key);
            // A key may be a name of the user's own, as in ovs-db.
            refuse_texts(&Value::from(key.as_str()), "", &place)?;
            refuse_texts(below, key, &place)
        }),
        _ => Ok(()),
    }
}

/// Files add; there is nothing on a machine that they could take away.
fn refuse_removals(desired: &NetworkState) -> Result<(), InvalidDocument> {
    let routes = desired.routes(RouteList::Config).map(|route| ("routes.config", route)).enumerate();
    let rules = desired.route_rules().map(|rule| ("route-rules.config", rule)).enumerate();
    for (index, (list, entry)) in routes.chain(rules) {
        if is_absent(entry) {
            let why = "a file cannot remove anything; take the entry out, or leave it to a policy";
            return Err(InvalidDocument::new(Place::key(list).entry(index).below("state"), why));
        }
    }
    Ok(())
}

/// A route is kept in the file of the interface that it leaves by.
fn refuse_strange_next_hops(desired: &NetworkState) -> Result<(), InvalidDocument> {
    for (index, route) in desired.routes(RouteList::Config).enumerate() {
        let key = "next-hop-interface";
        let place = Place::key("routes.config").entry(index).below(key);
        let text = |key: &str| route.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        match text(key) {
            Some(name) if desired.interface(name).is_none() => {
                let why = format!(
                    "the file of {name:?} has to hold this route; add that interface, with its type and addresses, to \
                     the same document"
                );
                return Err(InvalidDocument::new(place, why));
            }
            None if text("route-type").is_none() => {
                let why = "a file belongs to an interface; say by which one this route leaves";
                return Err(InvalidDocument::new(place, why));
            }
            _ => {}
        }
    }
    Ok(())
}

/// What nmstate objects to, with what to do about it where that is known.
pub(super) fn explained(text: &str, desired: &NetworkState) -> InvalidDocument {
    let lower = text.to_ascii_lowercase();
    let is_part_of_a_name = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    let mut words = text.split(|c| !is_part_of_a_name(c)).map(|word| word.trim_end_matches('.'));
    let names: Vec<&str> = desired.interfaces().map(interface_name).collect();
    let mentioned = words.find(|word| names.contains(word));
    let place = match mentioned {
        Some(name) => Place::interface(name),
        None if lower.contains("dns") => Place::key("dns-resolver.config"),
        None if lower.contains("rule") => Place::key("route-rules.config"),
        None if lower.contains("route") => Place::key("routes.config"),
        None => Place::document(),
    };
    let advice = if lower.contains("dns") {
        "; name servers are kept in the file of an interface: add one with an address of the same family, or with dhcp \
         and auto-dns: false"
    } else {
        ""
    };
    InvalidDocument::new(place, format!("{text}{advice}"))
}
