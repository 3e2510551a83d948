//! Can a NIC have virtual functions?

use knmstate_document::{NetworkState, Place, interface_name};
use std::path::Path;

use super::Facts;
use super::names::{Interface, World, has_virtual_functions, number, text};
use crate::error::HostError;
use knmstate_document::interfaces::{interface_type, is_called};

pub(super) fn check(interface: &Interface, current: &NetworkState, facts: &Facts) -> Result<(), HostError> {
    let name = interface_name(interface);
    // A NIC that has another name here than in the kernel is left to nmstate.
    let Some(found) = current.interface(name).filter(|_| has_virtual_functions(interface)) else {
        return Ok(());
    };
    let place = Place::interface(name).below("ethernet").below("sr-iov").below("total-vfs");
    if !facts.with_functions.iter().any(|capable| capable == name) {
        return Err(HostError::Unsupported {
            place,
            what: format!("virtual functions (SR-IOV) on {name}"),
            why: "the NIC or its driver has none, or they are switched off in the firmware".to_owned(),
        });
    }
    let path = ["ethernet", "sr-iov", "total-vfs"];
    let most = number(found, &["ethernet", "sr-iov", "max-vfs"]);
    match (number(interface, &path), most) {
        (Some(wanted), Some(most)) if wanted > most => Err(HostError::invalid(
            place,
            format!("{name} can have {most} virtual functions at most, not {wanted}"),
        )),
        _ => Ok(()),
    }
}

/// The names of the NICs that the document wants and that can only be virtual functions which it makes. nmstate makes
/// them before it looks at the rest.
pub(super) fn to_come(world: World<'_>) -> Vec<String> {
    let is_made = |interface: &&Interface| {
        has_virtual_functions(interface) && world.current.interface(interface_name(interface)).is_some()
    };
    if world.wanted().find(is_made).is_none() {
        return Vec::new();
    }
    let is_unknown = |name: &str| !world.current.interfaces().any(|interface| is_called(interface, name));
    world
        .wanted()
        .filter(|interface| {
            matches!(interface_type(interface), "ethernet" | "unknown" | "")
                && !interface.contains_key("veth")
        })
        .filter(|interface| text(interface, &["identifier"]).is_none_or(|identifier| identifier == "name"))
        .map(interface_name)
        .filter(|name| is_unknown(name))
        .map(str::to_owned)
        .collect()
}

/// The names of those that can.
pub(super) fn capable<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let is_capable = |name: &&str| {
        !name.contains('/') && Path::new("/sys/class/net").join(name).join("device/sriov_numvfs").exists()
    };
    names.filter(is_capable).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::names::tests::state_of;
    use super::*;

    #[test]
    fn virtual_functions_need_a_nic_that_can_have_them() {
        let current = state_of(json!({ "interfaces": [
            { "name": "eth1", "type": "ethernet" },
            { "name": "eth2", "type": "ethernet", "ethernet": { "sr-iov": { "total-vfs": 0, "max-vfs": 8 } } },
        ] }));
        let facts = Facts { with_functions: vec!["eth2".to_owned()], ..Facts::default() };
        for (name, count, expected) in [
            ("eth1", 2, Some("this machine cannot do virtual functions (SR-IOV) on eth1: ")),
            ("eth1", 0, None),
            ("eth2", 0, None),
            ("eth2", 8, None),
            ("eth2", 9, Some("eth2 can have 8 virtual functions at most, not 9")),
            // By its MAC address, say.
            ("uplink", 2, None),
        ] {
            let interface =
                json!({ "name": name, "type": "ethernet", "ethernet": { "sr-iov": { "total-vfs": count } } });
            let found = check(interface.as_object().expect("a map"), &current, &facts).err();
            let expected =
                expected.map(|text| format!("interfaces[{name}].ethernet.sr-iov.total-vfs: {text}"));
            let found = found.map(|error| error.to_string());
            match (&found, &expected) {
                (Some(found), Some(expected)) => assert!(found.starts_with(expected), "{found}"),
                (found, expected) => assert_eq!(found, expected, "{name} {count}"),
            }
        }
        let functions =
            json!({ "name": "eth2", "type": "ethernet", "ethernet": { "sr-iov": { "total-vfs": 2 } } });
        let nic = |name: &str| json!({ "name": name, "type": "ethernet" });
        for (desired, expected) in [
            (json!([functions, nic("eth2v0"), nic("eth1")]), &["eth2v0"][..]),
            (json!([nic("eth2v0")]), &[]),
            (json!([functions, { "name": "v1", "type": "veth", "veth": { "peer": "v2" } }]), &[]),
            (json!([functions, { "name": "bond0", "type": "bond" }]), &[]),
            (json!([functions, { "name": "m", "type": "ethernet", "identifier": "mac-address" }]), &[]),
            (json!([functions, { "name": "eth2v0", "type": "ethernet", "state": "absent" }]), &[]),
        ] {
            let desired = state_of(json!({ "interfaces": desired }));
            assert_eq!(to_come(World { desired: &desired, current: &current }), expected, "{desired:?}");
        }
        assert_eq!(capable(["lo", "../../proc", "no-such-nic"].into_iter()), Vec::<String>::new());
    }
}
