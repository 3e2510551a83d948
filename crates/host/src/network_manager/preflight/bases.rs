//! Do the interfaces that another one cannot exist without exist, and do they stay?

use super::missing::what_there_is;
use super::names::{Interface, Presence, World};
use crate::error::HostError;
use knmstate_document::{
    Place, interface_name,
    references::{self, ReferenceKind},
};

pub(super) fn check(world: World<'_>) -> Result<(), HostError> {
    for interface in world.wanted() {
        for required in references::of_interface(interface).into_iter().filter(|base| base.kind.is_required())
        {
            let (base, place) = (required.name, required.place(&Place::interface(interface_name(interface))));
            match world.presence(base) {
                Presence::There => {}
                Presence::Nowhere => {
                    return Err(HostError::Missing {
                        place,
                        what: format!(
                            "there is no interface {base}, neither on this machine nor in the document; {}",
                            what_there_is(world, base)
                        ),
                    });
                }
                Presence::TakenAway => {
                    let why = format!(
                        "{base} is absent by this very document; keep it, or let {} be absent, too",
                        interface_name(interface)
                    );
                    return Err(HostError::invalid(place, why));
                }
            }
        }
    }
    Ok(())
}

/// The interface that this one sends its packets through; none for most types.
pub(super) fn base_of(interface: &Interface) -> Option<&str> {
    let references = references::of_interface(interface);
    references.into_iter().find(|base| base.kind == ReferenceKind::Base).map(|base| base.name)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::names::tests::state_of;
    use super::*;

    #[test]
    fn what_an_interface_stands_on_has_to_be_there() {
        let current = state_of(json!({ "interfaces": [
            { "name": "eth1", "type": "ethernet", "profile-name": "uplink", "alt-names": [{ "name": "lan" }] },
            { "name": "eth2", "type": "ethernet", "state": "down" },
            { "name": "bond0", "type": "bond" },
        ] }));
        let refused = |desired: Value| {
            let desired = state_of(json!({ "interfaces": desired }));
            check(World { desired: &desired, current: &current }).err()
        };
        let vlan =
            |base: &str| json!({ "name": "v", "type": "vlan", "vlan": { "base-iface": base, "id": 7 } });
        for (kind, section) in [
            ("vlan", "vlan"),
            ("vxlan", "vxlan"),
            ("mac-vlan", "mac-vlan"),
            ("mac-vtap", "mac-vtap"),
            ("ipvlan", "ipvlan"),
            ("macsec", "macsec"),
        ] {
            let error = refused(json!([{ "name": "x", "type": kind, section: { "base-iface": "bond7" } }]))
                .expect("there is none");
            let expected = format!(
                "interfaces[x].{section}.base-iface: there is no interface bond7, neither on this machine nor in the document; it has bond0, eth1, eth2"
            );
            assert_eq!(error.to_string(), expected);
            assert!(error.is_retryable(), "another policy may make it");
        }
        let hsr = |ports: Value| {
            refused(json!([{ "name": "h", "type": "hsr", "hsr": ports }])).map(|error| error.to_string())
        };
        let found = hsr(json!({ "port1": "eth1", "port2": "eth9" })).expect("there is none");
        assert!(found.starts_with("interfaces[h].hsr.port2: there is no interface eth9, "), "{found}");
        assert_eq!(hsr(json!({ "port1": "eth1", "port2": "eth2" })), None);

        let absent = json!({ "name": "bond0", "type": "bond", "state": "absent" });
        let error = refused(json!([vlan("bond0"), absent])).expect("it is taken away");
        assert_eq!(
            error.to_string(),
            "interfaces[v].vlan.base-iface: bond0 is absent by this very document; keep it, or let v be absent, too"
        );
        assert!(!error.is_retryable());
        for desired in [
            json!([vlan("eth1")]),
            json!([vlan("uplink")]),
            json!([vlan("lan")]),
            json!([vlan("eth2")]),
            json!([vlan("eth1"), { "name": "eth1", "type": "ethernet", "state": "absent" }]),
            json!([vlan("eth1"), { "name": "eth1", "type": "ethernet", "state": "down" }]),
            json!([vlan("bond0"), { "name": "bond0", "type": "bond", "state": "down" }]),
            json!([vlan("bond1"), { "name": "bond1", "type": "bond" }]),
            json!([vlan("by-mac"), { "name": "by-mac", "type": "ethernet", "identifier": "mac-address" }]),
            json!([vlan("v2"), { "name": "v1", "type": "veth", "veth": { "peer": "v2" } }]),
            json!([vlan("eth1v0"), { "name": "eth1", "type": "ethernet", "ethernet": { "sr-iov": { "total-vfs": 1 } } }]),
            json!([vlan("sriov:eth1:0")]),
            json!([{ "name": "v", "type": "vlan", "state": "absent", "vlan": { "base-iface": "bond7", "id": 7 } }, absent]),
            json!([{ "name": "v", "type": "vlan", "state": "absent" }]),
            json!([{ "name": "x", "type": "vxlan", "vxlan": { "base-iface": "", "id": 7 } }]),
            json!([{ "name": "x", "type": "vxlan", "vxlan": { "id": 7 } }]),
        ] {
            assert_eq!(refused(desired.clone()), None, "{desired}");
        }
    }
}
