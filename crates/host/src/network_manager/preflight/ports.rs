//! Do the ports of a controller exist, and does each have one controller?

use knmstate_document::{Place, interface_name, references, text};
use std::collections::BTreeMap;

use super::missing::what_there_is;
use super::names::{Presence, World};
use crate::error::HostError;
use crate::host::Warning;

pub(super) fn check(world: World<'_>) -> Result<Vec<Warning>, HostError> {
    let mut warnings = Vec::new();
    let mut controllers: BTreeMap<&str, &str> = BTreeMap::new();
    for interface in world.wanted() {
        let controller = interface_name(interface);
        let place = Place::interface(controller);
        for port in references::of_interface(interface).into_iter().filter(|port| port.kind.is_port()) {
            match world.presence(port.name) {
                Presence::There => {}
                // Open vSwitch makes what it does not find.
                _ if world.type_of(interface) == "ovs-bridge" => warnings.push(Warning {
                    place: port.place(&place),
                    what: format!(
                        "there is no interface {}, so Open vSwitch makes an internal one of this name",
                        port.name
                    ),
                }),
                Presence::Nowhere => {
                    let what = format!(
                        "there is no interface {}, neither on this machine nor in the document; {}",
                        port.name,
                        what_there_is(world, port.name)
                    );
                    return Err(HostError::Missing { place: port.place(&place), what });
                }
                // nmstate knows what happens to it then.
                Presence::TakenAway => {}
            }
            if let Some(other) = controllers.insert(world.kernel_name(port.name), controller)
                && other != controller
            {
                let why = format!(
                    "{} is a port of {other} in this document, too; an interface can be a port of one controller only",
                    port.name
                );
                return Err(HostError::invalid(port.place(&place), why));
            }
        }
        if let Some(named) = Some(text(interface, "controller")).filter(|named| !named.is_empty())
            && world.presence(named) == Presence::Nowhere
        {
            let why = format!("there is no interface {named}, neither on this machine nor in the document");
            return Err(HostError::invalid(place.below("controller"), why));
        }
    }
    Ok(warnings)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::names::tests::state_of;
    use super::*;

    fn checked(desired: &Value) -> Result<Vec<String>, String> {
        let current = state_of(json!({ "interfaces": [
            { "name": "eth1", "type": "ethernet", "alt-names": [{ "name": "lan" }], "profile-name": "uplink" },
            { "name": "eth2", "type": "ethernet", "controller": "br0" }, { "name": "eth3", "type": "ethernet" },
            { "name": "br0", "type": "linux-bridge", "bridge": { "port": [{ "name": "eth2" }] } },
        ] }));
        let desired = state_of(json!({ "interfaces": desired }));
        let warnings = check(World { desired: &desired, current: &current });
        warnings
            .map(|warnings| warnings.iter().map(ToString::to_string).collect())
            .map_err(|error| error.to_string())
    }

    fn bond(name: &str, ports: &[&str]) -> Value {
        json!({ "name": name, "type": "bond", "link-aggregation": { "mode": "active-backup", "port": ports } })
    }

    fn bridge(name: &str, ports: &[&str]) -> Value {
        let ports: Vec<Value> = ports.iter().map(|port| json!({ "name": port })).collect();
        json!({ "name": name, "type": "linux-bridge", "bridge": { "port": ports } })
    }

    #[test]
    fn a_port_has_to_be_there_and_has_one_controller() {
        let there_is_none = "there is no interface eth9, neither on this machine nor in the document; it has eth1, eth2, eth3, br0";
        let vrf = json!({ "name": "vrf1", "type": "vrf", "vrf": { "port": ["eth9"], "route-table-id": 7 } });
        for (desired, place, why) in [
            (json!([bond("b", &["eth1", "eth9"])]), "interfaces[b].link-aggregation.port[1]", there_is_none),
            (json!([bridge("b", &["eth9"])]), "interfaces[b].bridge.port[0].name", there_is_none),
            (json!([vrf]), "interfaces[vrf1].vrf.port[0]", there_is_none),
            (
                json!([bond("b", &["eth1"]), bridge("c", &["eth3", "eth1"])]),
                "interfaces[c].bridge.port[1].name",
                "eth1 is a port of b in this document, too; an interface can be a port of one controller only",
            ),
            (
                json!([bond("b", &["eth1"]), bridge("c", &["lan"])]),
                "interfaces[c].bridge.port[0].name",
                "lan is a port of b in this document, too; an interface can be a port of one controller only",
            ),
            (
                json!([{ "name": "eth1", "type": "ethernet", "controller": "br9" }]),
                "interfaces[eth1].controller",
                "there is no interface br9, neither on this machine nor in the document",
            ),
        ] {
            assert_eq!(checked(&desired), Err(format!("{place}: {why}")), "{desired}");
        }
    }

    #[test]
    fn ports_by_any_name_of_what_is_there_or_will_be_are_fine() {
        for desired in [
            json!([bond("b", &["eth1", "eth3"])]),
            json!([bond("b", &["lan"]), bridge("c", &["b"])]),
            json!([bond("b", &["uplink"])]),
            json!([bridge("c", &["by-mac"]), { "name": "by-mac", "type": "ethernet", "identifier": "mac-address" }]),
            json!([bridge("c", &["v2"]), { "name": "v1", "type": "veth", "veth": { "peer": "v2" } }]),
            json!([bridge("c", &["sriov:eth1:3"])]),
            json!([bridge("c", &["eth1v3"]), { "name": "eth1", "type": "ethernet", "ethernet": { "sr-iov": { "total-vfs": 4 } } }]),
            // From one controller to another.
            json!([bridge("c", &["eth2"])]),
            json!([bridge("c", &["eth2"]), bridge("br0", &[])]),
            json!([bridge("c", &["eth1"]), { "name": "d", "type": "linux-bridge", "state": "absent", "bridge": { "port": [{ "name": "eth1" }] } }]),
            json!([bridge("c", &["eth1"]), { "name": "eth1", "type": "ethernet", "state": "absent" }]),
            json!([bridge("c", &["eth9"]), { "name": "eth9", "type": "dummy" }]),
            json!([{ "name": "eth1", "type": "ethernet", "controller": "" }]),
            json!([{ "name": "eth1", "type": "ethernet", "controller": "br0" }]),
            json!([{ "name": "b", "type": "bond", "state": "absent", "link-aggregation": { "port": ["eth9"] } }]),
            json!([{ "name": "b", "type": "linux-bridge" }]),
        ] {
            assert_eq!(checked(&desired), Ok(Vec::new()), "{desired}");
        }
    }

    #[test]
    fn ports_count_in_every_spelling() {
        let hsr = |ports: Value| json!({ "name": "h", "type": "hsr", "hsr": ports });
        let twice = |place: &str, other: &str| {
            format!(
                "{place}: eth1 is a port of {other} in this document, too; an interface can be a port of one controller only"
            )
        };
        let mut missed = Vec::new();
        for (controller, place) in [
            (hsr(json!({ "port1": "eth1", "port2": "eth3" })), "interfaces[h].hsr.port1"),
            (hsr(json!({ "port1": "eth3", "port2": "lan", "protocol": "prp" })), "interfaces[h].hsr.port2"),
            (
                json!({ "name": "h", "type": "bond", "bond": { "port": ["eth1"] } }),
                "interfaces[h].bond.port[0]",
            ),
            (
                json!({ "name": "h", "type": "bond", "link-aggregation": { "ports-config": [{ "name": "eth1" }] } }),
                "interfaces[h].link-aggregation.ports-config[0].name",
            ),
            (
                json!({ "name": "h", "type": "linux-bridge", "bridge": { "ports": [{ "name": "eth1" }] } }),
                "interfaces[h].bridge.ports[0].name",
            ),
            (
                json!({ "name": "h", "type": "ovs-bridge", "bridge": { "ports": [{ "name": "x", "bond": { "ports": [{ "name": "eth1" }] } }] } }),
                "interfaces[h].bridge.ports[0].bond.ports[0].name",
            ),
            // nmstate finds the type on the machine.
            (
                json!({ "name": "h", "bridge": { "port": [{ "name": "eth1" }] } }),
                "interfaces[h].bridge.port[0].name",
            ),
        ] {
            let found = checked(&json!([bond("b", &["eth1"]), controller]));
            let expected = twice(place, "b").replace(
                "eth1 is",
                if controller.to_string().contains("lan") { "lan is" } else { "eth1 is" },
            );
            if found != Err(expected) {
                missed.push(format!("{controller}: {found:?}"));
            }
        }
        assert!(missed.is_empty(), "not seen:\n{}", missed.join("\n"));
    }

    #[test]
    fn open_vswitch_makes_what_is_missing_and_that_is_said() {
        let ovs =
            |ports: Value| json!([{ "name": "ovs0", "type": "ovs-bridge", "bridge": { "port": ports } }]);
        for (ports, place) in [
            (json!([{ "name": "eth1" }]), None),
            (json!([{ "name": "eth9" }]), Some("interfaces[ovs0].bridge.port[0].name")),
            (
                json!([{ "name": "bond", "link-aggregation": { "port": [{ "name": "eth1" }, { "name": "eth9" }] } }]),
                Some("interfaces[ovs0].bridge.port[0].link-aggregation.port[1].name"),
            ),
        ] {
            let expected: Vec<String> = place
                .map(|place| {
                    format!("{place}: there is no interface eth9, so Open vSwitch makes an internal one of this name")
                })
                .into_iter()
                .collect();
            assert_eq!(checked(&ovs(ports.clone())), Ok(expected), "{ports}");
        }
    }
}
