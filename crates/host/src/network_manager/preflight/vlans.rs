//! Is the number of a VLAN one that there is, and still free on its base?

use knmstate_document::{Place, interface_name};
use std::collections::BTreeMap;

use super::names::{Interface, World, is_same_kind, number, text};
use crate::error::HostError;
use knmstate_document::interfaces::{interface_state, interface_type};

const HIGHEST: u64 = 4094;

/// What the kernel has one VLAN of: base, number, and the kind of tag.
type Tag<'a> = (&'a str, u64, &'a str);

pub(super) fn check(world: World<'_>) -> Result<(), HostError> {
    let mut taken: BTreeMap<Tag<'_>, &str> = BTreeMap::new();
    for interface in world.wanted().filter(|interface| interface_type(interface) == "vlan") {
        let name = interface_name(interface);
        let place = Place::interface(name).below("vlan").below("id");
        if let Some(id) = number(interface, &["vlan", "id"]).filter(|id| *id > HIGHEST) {
            return Err(HostError::invalid(
                place,
                format!("a VLAN has a number from 0 to {HIGHEST}, not {id}"),
            ));
        }
        let Some(tag) = tag(interface, world) else { continue };
        let (base, id, _) = tag;
        let what = |other: &str, whose: &str| {
            format!(
                "VLAN {id} of {base} is {other} already, {whose}; there can be one only: use {other}, let it be absent, or choose another number"
            )
        };
        if let Some(other) = taken.insert(tag, name) {
            return Err(HostError::invalid(place, what(other, "in this document")));
        }
        // The interface that has it may release it.
        if let Some((_, other)) = on_the_machine(world).find(|(other, _)| *other == tag) {
            return Err(HostError::Missing { place, what: what(other, "on this machine") });
        }
    }
    Ok(())
}

/// The VLANs that are there and stay as they are.
fn on_the_machine(world: World<'_>) -> impl Iterator<Item = (Tag<'_>, &str)> {
    world.current.interfaces().filter(|interface| interface_type(interface) == "vlan").filter_map(
        move |interface| {
            let tag = tag(interface, world)?;
            let name = interface_name(interface);
            let is_mentioned =
                world.desired_of(name).is_some_and(|desired| interface_state(desired) != "ignore");
            // A base that becomes something else takes its VLANs with it.
            let base_changes = world.desired_of(tag.0).is_some_and(|desired| {
                let stays = world.current.interface(tag.0).is_some_and(|found| is_same_kind(desired, found));
                interface_state(desired) != "up" || !stays
            });
            (!is_mentioned && !base_changes).then_some((tag, name))
        },
    )
}

fn tag<'a>(interface: &'a Interface, world: World<'a>) -> Option<Tag<'a>> {
    let base = text(interface, &["vlan", "base-iface"])?;
    let id = number(interface, &["vlan", "id"])?;
    let protocol = text(interface, &["vlan", "protocol"]).unwrap_or("802.1q");
    Some((world.kernel_name(base), id, protocol))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::names::tests::state_of;
    use super::*;

    fn refused(desired: &Value) -> Option<String> {
        let current = state_of(json!({ "interfaces": [
            { "name": "eth1", "type": "ethernet", "alt-names": [{ "name": "lan" }] },
            { "name": "bond0", "type": "bond" }, { "name": "veth0", "type": "veth" },
            { "name": "eth1.12", "type": "vlan", "alt-names": [{ "name": "twelve" }], "vlan": { "base-iface": "eth1", "id": 12, "protocol": "802.1q" } },
            vlan("eth1.10", "eth1", 10), vlan("bond0.10", "bond0", 10), vlan("veth0.10", "veth0", 10),
        ] }));
        let desired = state_of(json!({ "interfaces": desired }));
        check(World { desired: &desired, current: &current }).err().map(|error| error.to_string())
    }

    fn vlan(name: &str, base: &str, id: u64) -> Value {
        json!({ "name": name, "type": "vlan", "state": "up",
            "vlan": { "base-iface": base, "id": id, "protocol": "802.1q" } })
    }

    #[test]
    fn a_base_has_one_vlan_of_each_number() {
        let only_one = "there can be one only: use";
        for (desired, place, why) in [
            (
                json!([vlan("v", "eth1", 4095)]),
                "v",
                "a VLAN has a number from 0 to 4094, not 4095".to_owned(),
            ),
            (
                json!([vlan("v", "eth1", 10)]),
                "v",
                format!("VLAN 10 of eth1 is eth1.10 already, on this machine; {only_one} eth1.10"),
            ),
            (
                json!([vlan("v", "lan", 10)]),
                "v",
                format!("VLAN 10 of eth1 is eth1.10 already, on this machine; {only_one} eth1.10"),
            ),
            (
                json!([vlan("v", "veth0", 10), { "name": "veth0", "type": "ethernet" }]),
                "v",
                format!("VLAN 10 of veth0 is veth0.10 already, on this machine; {only_one} veth0.10"),
            ),
            (
                json!([vlan("v", "eth1", 11), vlan("w", "eth1", 11)]),
                "w",
                format!("VLAN 11 of eth1 is v already, in this document; {only_one} v"),
            ),
        ] {
            let found = refused(&desired).unwrap_or_default();
            assert!(found.starts_with(&format!("interfaces[{place}].vlan.id: {why}")), "{desired}: {found}");
        }
    }

    #[test]
    fn other_numbers_bases_and_tags_are_free_and_so_is_what_goes() {
        let absent = |name: &str| json!({ "name": name, "type": "vlan", "state": "absent" });
        let mut other_tag = vlan("v", "eth1", 10);
        other_tag["vlan"]["protocol"] = json!("802.1ad");
        for desired in [
            json!([vlan("v", "eth1", 0), vlan("w", "eth1", 4094)]),
            json!([vlan("eth1.10", "eth1", 10)]),
            json!([vlan("twelve", "eth1", 12)]),
            json!([vlan("eth1.11", "eth1", 11), vlan("bond0.11", "bond0", 11)]),
            json!([vlan("v", "eth1", 10), absent("eth1.10")]),
            json!([absent("eth1.10"), vlan("v", "eth1", 10)]),
            json!([vlan("v", "eth1", 10), { "name": "eth1.10", "type": "vlan", "state": "down" }]),
            json!([vlan("v", "eth1", 10), vlan("eth1.10", "eth1", 14)]),
            json!([vlan("v", "eth1", 10), vlan("eth1.10", "bond0", 14)]),
            json!([other_tag]),
            // Its base interface is created again.
            json!([vlan("v", "bond0", 10), { "name": "bond0", "type": "linux-bridge" }]),
            json!([vlan("v", "eth1", 13), absent("w"), { "name": "w2", "type": "vlan", "state": "absent", "vlan": { "base-iface": "eth1", "id": 13 } }]),
            json!([{ "name": "eth1.10", "type": "vlan" }]),
        ] {
            assert_eq!(refused(&desired), None, "{desired}");
        }
    }
}
