//! Are the ports of a controller there, and does each have one controller?

use std::collections::BTreeMap;

use serde_json::Value;

use super::missing::what_there_is;
use super::names::{Interface, Presence, World, kind, text, value};
use crate::error::{HostError, Place};
use crate::host::Warning;
use crate::state::interface_name;

/// One mention of a port.
struct Port<'a> {
    name: &'a str,
    place: Place,
}

pub(super) fn check(world: World<'_>) -> Result<Vec<Warning>, HostError> {
    let mut warnings = Vec::new();
    let mut controllers: BTreeMap<&str, &str> = BTreeMap::new();
    for interface in world.wanted() {
        let controller = interface_name(interface);
        for port in ports(interface) {
            match world.presence(port.name) {
                Presence::There => {}
                // Open vSwitch makes what it does not find.
                _ if kind(interface) == "ovs-bridge" => warnings.push(Warning {
                    place: port.place.clone(),
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
                    return Err(HostError::Missing { place: port.place, what });
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
                return Err(HostError::invalid(port.place, why));
            }
        }
        if let Some(named) = text(interface, &["controller"]).filter(|named| !named.is_empty())
            && world.presence(named) == Presence::Nowhere
        {
            let why = format!("there is no interface {named}, neither on this machine nor in the document");
            return Err(HostError::invalid(Place::interface(controller).below("controller"), why));
        }
    }
    Ok(warnings)
}

fn ports(interface: &Interface) -> Vec<Port<'_>> {
    let place = Place::interface(interface_name(interface));
    match kind(interface) {
        "bond" => plain(interface, &["link-aggregation", "port"], &place),
        "vrf" => plain(interface, &["vrf", "port"], &place),
        "linux-bridge" => named(value(interface, &["bridge", "port"]), &place.below("bridge").below("port")),
        "ovs-bridge" => {
            let place = place.below("bridge").below("port");
            let list = value(interface, &["bridge", "port"]);
            let mut ports = Vec::new();
            for (index, port) in entries(list) {
                let place = place.entry(index);
                match port.get("link-aggregation") {
                    // Its name is that of the bond, which is no interface.
                    Some(bond) => {
                        ports.extend(named(bond.get("port"), &place.below("link-aggregation").below("port")));
                    }
                    None => ports.extend(port_of(port, &place)),
                }
            }
            ports
        }
        _ => Vec::new(),
    }
}

/// A list of names.
fn plain<'a>(interface: &'a Interface, path: &[&str], place: &Place) -> Vec<Port<'a>> {
    let place = path.iter().fold(place.clone(), |place, key| place.below(key));
    entries(value(interface, path))
        .filter_map(|(index, name)| Some(Port { name: name.as_str()?, place: place.entry(index) }))
        .collect()
}

/// A list of maps with a name.
fn named<'a>(list: Option<&'a Value>, place: &Place) -> Vec<Port<'a>> {
    entries(list).filter_map(|(index, port)| port_of(port, &place.entry(index))).collect()
}

fn port_of<'a>(port: &'a Value, place: &Place) -> Option<Port<'a>> {
    Some(Port { name: port.get("name")?.as_str()?, place: place.below("name") })
}

fn entries(list: Option<&Value>) -> impl Iterator<Item = (usize, &Value)> {
    list.and_then(Value::as_array).into_iter().flatten().enumerate()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
