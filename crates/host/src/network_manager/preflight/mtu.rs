//! Is the MTU of an interface at most that of its base?
//!
//! The kernel refuses a VLAN, MAC-VLAN or IP-VLAN that is larger than its base, and NetworkManager then leaves it as
//! large as the base. Ports of a bond are made as large as the bond, and a bridge as large as its ports, so nothing is
//! said about those.

use super::bases;
use super::names::{World, number, text};
use crate::error::HostError;
use crate::host::Warning;
use knmstate_document::interfaces::interface_type;
use knmstate_document::{Place, interface_name};

/// The default of most interfaces.
const USUAL: u64 = 1500;

/// How large the base will be.
#[derive(Clone, Copy)]
enum Room {
    /// By the document.
    Desired(u64),
    /// As it is now.
    Found(u64),
    /// As it is now; but something in the document, or a DHCP server, may change that.
    Perhaps(u64),
}

pub(super) fn check(world: World<'_>) -> Result<Vec<Warning>, HostError> {
    let mut warnings = Vec::new();
    for interface in world.wanted() {
        if !matches!(interface_type(interface), "vlan" | "mac-vlan" | "mac-vtap" | "ipvlan") {
            continue;
        }
        let Some(mtu) = number(interface, &["mtu"]) else { continue };
        let Some(base) = bases::base_of(interface) else { continue };
        let place = Place::interface(interface_name(interface)).below("mtu");
        match room(world, base) {
            Some(room @ (Room::Desired(limit) | Room::Found(limit))) if mtu > limit => {
                let what = format!(
                    "{mtu} is more than the {limit} of its base {base}; give {base} a larger mtu, in this document, or this interface a smaller one"
                );
                return Err(match room {
                    // It may be about to grow, as at a start of the machine.
                    Room::Found(_) => HostError::Missing { place, what },
                    _ => HostError::invalid(place, what),
                });
            }
            Some(Room::Perhaps(limit)) if mtu > limit => warnings.push(Warning {
                place,
                what: format!(
                    "{mtu} is more than the {limit} that {base} has now; it fails unless {base} gets larger"
                ),
            }),
            _ => {}
        }
    }
    Ok(warnings)
}

fn room(world: World<'_>, base: &str) -> Option<Room> {
    let base = world.kernel_name(base);
    let current = world.current.interface(base);
    let now = current.and_then(|current| number(current, &["mtu"]));
    if let Some(desired) = world.desired_of(base) {
        let room = number(desired, &["mtu"]).map(Room::Desired);
        return room.or(Some(Room::Perhaps(now.unwrap_or(USUAL))));
    }
    // A NIC or a bond without a controller changes its MTU only if the document sets it.
    let current = current?;
    let stays = matches!(interface_type(current), "ethernet" | "veth" | "bond" | "dummy");
    let is_free = text(current, &["controller"]).unwrap_or_default().is_empty() && !is_mentioned(world, base);
    now.map(|now| if stays && is_free { Room::Found(now) } else { Room::Perhaps(now) })
}

/// Whether anything else in the document may reach the interface: as its port, say.
fn is_mentioned(world: World<'_>, name: &str) -> bool {
    let names = |interface| bases::base_of(interface).is_some_and(|base| world.kernel_name(base) == name);
    let others = world.desired.interfaces().filter(|interface| !names(interface));
    others.into_iter().any(|interface| {
        serde_json::Value::Object(interface.clone()).to_string().contains(&format!("\"{name}\""))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::names::tests::state_of;
    use super::*;

    fn checked(desired: &Value) -> Result<Vec<String>, String> {
        let current = state_of(json!({ "interfaces": [
            { "name": "eth1", "type": "ethernet", "mtu": 1500, "alt-names": [{ "name": "lan" }] },
            { "name": "eth2", "type": "ethernet", "mtu": 9000, "mac-address": "02:00:00:00:00:02" },
            { "name": "eth3", "type": "ethernet", "mtu": 1500, "controller": "bond0" },
            { "name": "bond0", "type": "bond", "mtu": 1500 }, { "name": "br0", "type": "linux-bridge", "mtu": 1500 },
            { "name": "eth1.5", "type": "vlan", "mtu": 1500, "vlan": { "base-iface": "eth1", "id": 5 } },
        ] }));
        let desired = state_of(json!({ "interfaces": desired }));
        let warnings = check(World { desired: &desired, current: &current });
        warnings
            .map(|warnings| warnings.iter().map(ToString::to_string).collect())
            .map_err(|error| error.to_string())
    }

    fn vlan(base: &str, mtu: u64) -> Value {
        json!({ "name": "v", "type": "vlan", "mtu": mtu, "vlan": { "base-iface": base, "id": 7 } })
    }

    #[test]
    fn what_is_larger_than_its_base_is_refused() {
        let of =
            |kind: &str| json!({ "name": "v", "type": kind, "mtu": 1501, kind: { "base-iface": "eth1" } });
        for (desired, mtu, limit, base) in [
            (json!([of("vlan")]), 1501, 1500, "eth1"),
            (json!([of("mac-vlan")]), 1501, 1500, "eth1"),
            (json!([of("mac-vtap")]), 1501, 1500, "eth1"),
            (json!([of("ipvlan")]), 1501, 1500, "eth1"),
            (json!([vlan("lan", 1501)]), 1501, 1500, "lan"),
            (json!([vlan("bond0", 9000)]), 9000, 1500, "bond0"),
            (
                json!([vlan("eth2", 9001), { "name": "eth9", "type": "dummy", "mtu": 9001 }]),
                9001,
                9000,
                "eth2",
            ),
            (
                json!([vlan("eth2", 9000), { "name": "eth2", "type": "ethernet", "mtu": 8000 }]),
                9000,
                8000,
                "eth2",
            ),
            (
                json!([vlan("bond1", 9000), { "name": "bond1", "type": "bond", "mtu": 1500 }]),
                9000,
                1500,
                "bond1",
            ),
        ] {
            let expected = format!(
                "interfaces[v].mtu: {mtu} is more than the {limit} of its base {base}; give {base} a larger mtu, in this document, or this interface a smaller one"
            );
            assert_eq!(checked(&desired), Err(expected), "{desired}");
        }
    }

    #[test]
    fn what_fits_is_fine() {
        for desired in [
            json!([vlan("eth1", 1500)]),
            json!([vlan("eth1", 1400)]),
            json!([vlan("eth2", 9000)]),
            json!([vlan("eth1", 9000), { "name": "eth1", "type": "ethernet", "mtu": 9000 }]),
            json!([vlan("bond1", 9000), { "name": "bond1", "type": "bond", "mtu": 9000 }]),
            json!([vlan("eth2", 9100), { "name": "second", "type": "ethernet", "identifier": "mac-address",
                "mac-address": "02:00:00:00:00:02", "mtu": 9100 }]),
            json!([vlan("second", 9100), { "name": "second", "type": "ethernet", "identifier": "mac-address",
                "mac-address": "02:00:00:00:00:02", "mtu": 9100 }]),
            json!([vlan("lan", 9000), { "name": "eth1", "type": "ethernet", "mtu": 9000 }]),
            json!([vlan("eth1", 9000), { "name": "lan", "type": "ethernet", "mtu": 9000 }]),
            json!([vlan("nowhere", 9000)]),
            json!([{ "name": "v", "type": "vlan", "mtu": 9000 }]),
            json!([{ "name": "v", "type": "vlan", "state": "absent", "mtu": 9000, "vlan": { "base-iface": "eth1" } }]),
            json!([{ "name": "v", "type": "vlan", "vlan": { "base-iface": "eth1" } }]),
            json!([{ "name": "x", "type": "vxlan", "mtu": 9000, "vxlan": { "base-iface": "eth1" } }]),
            json!([{ "name": "bond0", "type": "bond", "mtu": 9000, "link-aggregation": { "port": ["eth1"] } }]),
            json!([{ "name": "br0", "type": "linux-bridge", "mtu": 9000, "bridge": { "port": [{ "name": "eth1" }] } }]),
        ] {
            assert_eq!(checked(&desired), Ok(Vec::new()), "{desired}");
        }
    }

    #[test]
    fn where_the_base_may_grow_it_is_said_and_tried() {
        for (desired, base) in [
            (
                json!([vlan("eth1", 9000), { "name": "eth1", "type": "ethernet", "ipv4": { "dhcp": true } }]),
                "eth1",
            ),
            (json!([vlan("bond1", 9000), { "name": "bond1", "type": "bond" }]), "bond1"),
            (json!([vlan("br0", 9000)]), "br0"),
            (json!([vlan("eth3", 9000)]), "eth3"),
            (json!([vlan("eth1.5", 9000)]), "eth1.5"),
            (
                json!([vlan("eth1", 9000), { "name": "bond0", "type": "bond", "mtu": 9000, "link-aggregation": { "port": ["eth1"] } }]),
                "eth1",
            ),
        ] {
            let expected = format!(
                "interfaces[v].mtu: 9000 is more than the 1500 that {base} has now; it fails unless {base} gets larger"
            );
            assert_eq!(checked(&desired), Ok(vec![expected]), "{desired}");
        }
    }
}
