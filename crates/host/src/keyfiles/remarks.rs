//! What a person should know about files that were made of a state: where they go further than it.

use serde_json::{Map, Value};

use crate::state::{NetworkState, interface_name};

/// What the files say beyond the document, as sentences.
pub fn remarks(desired: &NetworkState) -> Vec<String> {
    let described: Vec<&str> = desired.interfaces().map(interface_name).collect();
    let ports = ports(desired);
    let mut remarks = Vec::new();
    let presumed: Vec<&str> =
        ports.iter().map(String::as_str).filter(|port| !described.contains(port)).collect();
    if !presumed.is_empty() {
        remarks.push(format!(
            "{} taken for network cards, because the document only names them; describe those that are something else",
            are(&presumed)
        ));
    }
    for family in ["ipv4", "ipv6"] {
        let is_off = |interface: &&Map<String, Value>| {
            interface.get(family).is_none_or(Value::is_null)
                && interface.get("controller").is_none_or(Value::is_null)
                // Nobody expects an address there: it is on an interface of its own.
                && interface.get("type").and_then(Value::as_str) != Some("ovs-bridge")
                && !ports.iter().any(|port| port == interface_name(interface))
        };
        let off: Vec<&str> = desired.interfaces().filter(is_off).map(interface_name).collect();
        if !off.is_empty() {
            remarks.push(format!("{} without {family}, because the document does not mention it", are(&off)));
        }
    }
    remarks
}

/// The names of all ports of bonds, bridges and VRFs, each once.
pub(super) fn ports(desired: &NetworkState) -> Vec<String> {
    let mut ports = Vec::new();
    for interface in desired.interfaces() {
        for section in ["link-aggregation", "bond", "bridge", "vrf"] {
            add_ports(interface.get(section), &mut ports);
        }
    }
    ports
}

fn add_ports(section: Option<&Value>, ports: &mut Vec<String>) {
    let lists = ["port", "ports"].into_iter().filter_map(|key| section?.get(key)?.as_array());
    for port in lists.flatten() {
        // A port of an Open vSwitch bridge can be a bond, of which only the ports are interfaces.
        let bond = port.get("link-aggregation");
        if bond.is_some_and(|bond| !bond.is_null()) {
            add_ports(bond, ports);
            continue;
        }
        let name = port.as_str().or_else(|| port.get("name")?.as_str()).unwrap_or_default();
        if !ports.iter().any(|known| known == name) {
            ports.push(name.to_owned());
        }
    }
}

fn are(names: &[&str]) -> String {
    format!("{} {}", names.join(", "), if names.len() == 1 { "is" } else { "are" })
}
