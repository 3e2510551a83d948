//! Is there such a NIC?

use knmstate_document::{Place, interface_name};
use serde_json::Value;

use super::names::{Interface, Presence, World, closest};
use crate::error::HostError;
use knmstate_document::interfaces::interface_type;

pub(super) fn check(world: World<'_>) -> Result<(), HostError> {
    for interface in world.wanted() {
        let name = interface_name(interface);
        let named = match interface_type(interface) {
            "ethernet" => "ethernet interface",
            "infiniband" => "InfiniBand interface",
            "" | "unknown" => "interface",
            _ => continue,
        };
        if is_made_or_found_otherwise(interface) || is_there(world, name) {
            continue;
        }
        let why = format!("there is no {named} {name} on this machine; {}", what_there_is(world, name));
        return Err(HostError::invalid(Place::interface(name), why));
    }
    Ok(())
}

/// Both ends of a cable can be made; and a NIC that is known by an address may have any name.
fn is_made_or_found_otherwise(interface: &Interface) -> bool {
    let identifier = interface.get("identifier").and_then(Value::as_str).unwrap_or("name");
    interface.contains_key("veth")
        || identifier != "name"
        // A key of InfiniBand makes an interface of its own.
        || interface.get("infiniband").is_some_and(|section| section.get("base-iface").is_some())
}

/// Not by what the document says of it: that is what is in question.
fn is_there(world: World<'_>, name: &str) -> bool {
    let others = World {
        desired: &world.desired.clone().without_interfaces(|other| interface_name(other) == name),
        ..world
    };
    others.presence(name) != Presence::Nowhere
}

/// Names that may have been meant.
pub(super) fn what_there_is(world: World<'_>, name: &str) -> String {
    let nics = world
        .current
        .interfaces()
        .filter(|interface| !matches!(interface_type(interface), "loopback" | "unknown" | ""))
        .map(interface_name);
    match closest(name, nics).as_slice() {
        [] => "it has none".to_owned(),
        names => format!("it has {}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::names::tests::state_of;
    use super::*;

    #[test]
    fn a_nic_has_to_be_there() {
        let current = state_of(json!({ "interfaces": [
            { "name": "lo", "type": "loopback" }, { "name": "ens1f0", "type": "ethernet", "profile-name": "uplink" },
            { "name": "ens1f1", "type": "ethernet", "alt-names": [{ "name": "lan" }] },
        ] }));
        let refused = |desired: Value| {
            let desired = state_of(json!({ "interfaces": desired }));
            check(World { desired: &desired, current: &current }).err().map(|error| error.to_string())
        };
        for (desired, expected) in [
            (
                json!([{ "name": "ens1f7", "type": "ethernet", "state": "up" }]),
                "interfaces[ens1f7]: there is no ethernet interface ens1f7 on this machine; it has ens1f0, ens1f1",
            ),
            (
                json!([{ "name": "eth7" }]),
                "interfaces[eth7]: there is no interface eth7 on this machine; it has ens1f0, ens1f1",
            ),
            (
                json!([{ "name": "v7", "type": "ethernet" }, { "name": "v8", "type": "veth", "state": "absent", "veth": { "peer": "v7" } }]),
                "interfaces[v7]: there is no ethernet interface v7 on this machine; it has ens1f0, ens1f1",
            ),
        ] {
            assert_eq!(refused(desired.clone()).as_deref(), Some(expected), "{desired}");
        }
        for desired in [
            json!([{ "name": "ens1f0", "type": "ethernet" }]),
            json!([{ "name": "lan", "type": "ethernet" }]),
            json!([{ "name": "uplink", "type": "ethernet" }]),
            json!([{ "name": "eth7", "type": "ethernet", "state": "absent" }]),
            json!([{ "name": "eth7", "type": "ethernet", "state": "down" }]),
            json!([{ "name": "eth7", "type": "ethernet", "state": "ignore" }]),
            json!([{ "name": "by-mac", "type": "ethernet", "identifier": "mac-address", "mac-address": "02:00:00:00:00:01" }]),
            json!([{ "name": "by-pci", "type": "ethernet", "identifier": "pci-address", "pci-address": "0000:00:01.0" }]),
            json!([{ "name": "v1", "type": "ethernet", "veth": { "peer": "v2" } }]),
            json!([{ "name": "v1", "type": "veth", "veth": { "peer": "v2" } }, { "name": "v2", "type": "ethernet" }]),
            json!([{ "name": "ib0.8001", "type": "infiniband", "infiniband": { "base-iface": "ib0", "pkey": "0x8001" } }]),
            json!([{ "name": "sriov:ens1f0:0", "type": "ethernet" }]),
            json!([{ "name": "ens1f0", "type": "ethernet", "ethernet": { "sr-iov": { "total-vfs": 2 } } },
                   { "name": "ens1f0v1", "type": "ethernet" }]),
            json!([{ "name": "br1", "type": "linux-bridge" }, { "name": "ovs0", "type": "ovs-interface" }]),
        ] {
            assert_eq!(refused(desired.clone()), None, "{desired}");
        }
        let nothing = state_of(json!({}));
        let desired = state_of(json!({ "interfaces": [{ "name": "eth7" }] }));
        let error = check(World { desired: &desired, current: &nothing }).expect_err("there is none");
        assert!(error.to_string().ends_with("it has none"), "{error}");
    }
}
