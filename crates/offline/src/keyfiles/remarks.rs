//! What a person should know about files that were made of a state: where they go further than it.

use knmstate_document::{NetworkState, interface_name, references};
use serde_json::{Map, Value};

/// What the files say beyond the document, as sentences.
pub fn remarks(desired: &NetworkState) -> Vec<String> {
    let described: Vec<&str> = desired.interfaces().map(interface_name).collect();
    let ports = ports(desired);
    let mut remarks = Vec::new();
    let presumed: Vec<&str> =
        ports.iter().map(String::as_str).filter(|port| !described.contains(port)).collect();
    if !presumed.is_empty() {
        remarks.push(format!(
            "{} taken for NICs, because the document only names them; describe those that are something else",
            are(&presumed)
        ));
    }
    for family in ["ipv4", "ipv6"] {
        let is_off = |interface: &&Map<String, Value>| {
            interface.get(family).is_none_or(Value::is_null)
                && interface.get("controller").is_none_or(Value::is_null)
                // No address is expected there: it is on an interface of its own.
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

/// The names of all ports, each once.
pub(super) fn ports(desired: &NetworkState) -> Vec<String> {
    let mut ports: Vec<String> = Vec::new();
    for port in desired.interfaces().flat_map(references::ports) {
        if !ports.iter().any(|known| known == port) {
            ports.push(port.to_owned());
        }
    }
    ports
}

fn are(names: &[&str]) -> String {
    format!("{} {}", names.join(", "), if names.len() == 1 { "is" } else { "are" })
}
