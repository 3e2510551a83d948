//! All that a desired state asks for and a real one does not have, as a document.

use serde_json::{Map, Value};

use crate::interfaces::{interface_name, interface_type};
use crate::place::Place;
use crate::state::{NetworkState, RouteList};
use crate::unmet;

/// What says which interface is meant, and is kept whether or not it is met.
const WHICH: [&str; 3] = ["name", "type", "state"];

impl NetworkState {
    /// The parts of this desired state that `current` does not have, secrets hidden. Empty exactly when
    /// [`first_unmet_in`](Self::first_unmet_in) finds nothing.
    #[must_use]
    pub fn unmet_in(&self, current: &Self) -> Self {
        let mut sections = Map::new();
        let mut put = |section: &str, entries: Vec<Value>, below: Option<&str>| {
            if !entries.is_empty() {
                let list = Value::Array(entries);
                let value = match below {
                    Some(key) => Value::Object(Map::from_iter([(key.to_owned(), list)])),
                    None => list,
                };
                sections.insert(section.to_owned(), value);
            }
        };
        let interfaces = self.interfaces().filter_map(|desired| interface(desired, current));
        put("interfaces", interfaces.map(Value::Object).collect(), None);
        let routes = unmet::routes(self, current);
        put("routes", picked(self.routes(RouteList::Config), &routes), Some("config"));
        let rules = unmet::rules(self, current);
        put("route-rules", picked(self.route_rules(), &rules), Some("config"));

        let mut whole = |section: &str, is_unmet: bool| {
            if let Some(value) = self.sections().get(section).filter(|_| is_unmet) {
                sections.insert(section.to_owned(), value.clone());
            }
        };
        whole("dns-resolver", unmet::resolver(self, current).is_some());
        whole("hostname", unmet::hostname(self, current).is_some());
        whole("ovs-db", unmet::open_vswitch(self, current).is_some());
        whole("ovn", unmet::ovn(self, current).is_some());
        Self::from_sections(sections).without_secrets()
    }
}

impl NetworkState {
    /// A difference as nmstate sees it, without what is none. It compares lists as a whole: ports of a bridge and
    /// virtual functions are different to it as soon as the machine has more to say about them than was asked for. And
    /// it looks for a permission among what is there.
    #[must_use]
    pub fn without_what_is_met(self, current: &Self) -> Self {
        let mut sections = self.sections().clone();
        if let Some(Value::Array(interfaces)) = sections.get_mut("interfaces") {
            interfaces.retain_mut(|interface| {
                interface.as_object_mut().is_none_or(|one| still_differs(one, current))
            });
            if interfaces.is_empty() {
                sections.remove("interfaces");
            }
        }
        Self::from_sections(sections)
    }
}

/// Takes out what is as wanted; false when nothing is left then.
fn still_differs(interface: &mut Map<String, Value>, current: &NetworkState) -> bool {
    let Some(found) = current.interface_meant_by(interface) else { return true };
    if interface.get("state").is_some_and(|state| Some(state) != found.get("state")) {
        return true;
    }
    let is_bridge = matches!(interface_type(found), "linux-bridge" | "ovs-bridge");
    let found = Value::Object(found.clone());
    take_out(interface, &["bridge", unmet::PERMISSION], &|_| true);
    if is_bridge {
        let ports = found.pointer("/bridge/port");
        take_out(interface, &["bridge", "port"], &|wanted| unmet::has_ports(wanted, ports));
    }
    let functions = found.pointer("/ethernet/sr-iov/vfs");
    take_out(interface, &["ethernet", "sr-iov", "vfs"], &|wanted| unmet::has_functions(wanted, functions));
    !interface.keys().all(|key| WHICH.contains(&key.as_str()))
}

/// Takes out what lies at the end of a path if it is met, and what is empty then.
fn take_out(object: &mut Map<String, Value>, path: &[&str], is_met: &dyn Fn(&Value) -> bool) {
    let Some((key, rest)) = path.split_first() else { return };
    let Some(below) = object.get_mut(*key) else { return };
    let is_done = match below {
        Value::Object(map) if !rest.is_empty() => {
            take_out(map, rest, is_met);
            map.is_empty()
        }
        value => rest.is_empty() && is_met(value),
    };
    if is_done {
        object.remove(*key);
    }
}

fn interface(desired: &Map<String, Value>, current: &NetworkState) -> Option<Map<String, Value>> {
    unmet::interface(desired, current)?;
    let name = interface_name(desired);
    let Some(found) = current.interface_meant_by(desired) else { return Some(desired.clone()) };
    let place = Place::interface(name);
    let is_kept = |key: &str, wanted: &Value| {
        WHICH.contains(&key) || unmet::key_of_interface(key, wanted, found, &place).is_some()
    };
    let kept = desired.iter().filter(|(key, wanted)| is_kept(key, wanted));
    Some(kept.map(|(key, wanted)| (key.clone(), wanted.clone())).collect())
}

fn picked<'a>(
    entries: impl Iterator<Item = &'a Map<String, Value>>,
    unmet: &[(usize, unmet::Unmet)],
) -> Vec<Value> {
    let is_unmet = |index: usize| unmet.iter().any(|(unmet, _)| *unmet == index);
    let entries = entries.enumerate().filter(|(index, _)| is_unmet(*index));
    entries.map(|(_, entry)| Value::Object(entry.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ports_that_say_more_than_was_asked_for_are_no_difference() {
        let bridge = |ports: Value| json!({ "interfaces": [{ "name": "br1", "type": "linux-bridge", "state": "up", "bridge": { "port": ports } }] });
        let trunk = json!({ "mode": "trunk", "trunk-tags": [{ "id-range": { "min": 2, "max": 4094 } }] });
        let mut shown_trunk = trunk.clone();
        shown_trunk["enable-native"] = json!(false);
        let one_by_one: Vec<Value> = (2..=4094).map(|id| json!({ "id": id })).collect();
        let flat = json!({ "mode": "trunk", "trunk-tags": one_by_one });
        let fewer = json!({ "mode": "trunk", "trunk-tags": [{ "id": 2 }, { "id-range": { "min": 4, "max": 4094 } }] });
        let mut native = trunk.clone();
        native["enable-native"] = json!(true);
        native["tag"] = json!(7);
        for (wanted, found, differs) in [
            (json!([{ "name": "eth1" }]), json!([{ "name": "eth1", "stp-priority": 32 }]), false),
            (
                json!([{ "name": "eth1", "stp-priority": 7 }]),
                json!([{ "name": "eth1", "stp-priority": 32 }]),
                true,
            ),
            (
                json!([{ "name": "eth2" }, { "name": "eth1" }]),
                json!([{ "name": "eth1" }, { "name": "eth2" }]),
                false,
            ),
            (json!([{ "name": "eth1" }]), json!([{ "name": "eth1" }, { "name": "eth2" }]), true),
            (json!([]), json!([{ "name": "eth1" }]), true),
            (
                json!([{ "name": "eth1", "vlan": trunk }]),
                json!([{ "name": "eth1", "vlan": shown_trunk }]),
                false,
            ),
            (
                json!([{ "name": "eth1", "vlan": flat }]),
                json!([{ "name": "eth1", "vlan": shown_trunk }]),
                false,
            ),
            (json!([{ "name": "eth1", "vlan": flat }]), json!([{ "name": "eth1", "vlan": fewer }]), true),
            (json!([{ "name": "eth1", "vlan": trunk }]), json!([{ "name": "eth1", "vlan": native }]), true),
            (json!([{ "name": "eth1", "vlan": {} }]), json!([{ "name": "eth1", "vlan": shown_trunk }]), true),
            (json!([{ "name": "eth1", "vlan": {} }]), json!([{ "name": "eth1" }]), false),
        ] {
            let state = |ports: &Value| NetworkState::parse(bridge(ports.clone())).expect("a state");
            let left = state(&wanted).without_what_is_met(&state(&found));
            assert_eq!(!left.sections().is_empty(), differs, "{wanted} where there is {found}");
            assert_eq!(state(&wanted).first_unmet_in(&state(&found)).is_some(), differs, "{wanted}, {found}");
        }
        // Whatever else differs stays, and so does a bridge that is not there.
        let more = json!({ "interfaces": [{ "name": "br1", "type": "linux-bridge", "state": "up", "mtu": 1400,
            "bridge": { "port": [{ "name": "eth1" }] } }] });
        let difference = |found: Value| {
            let found = NetworkState::parse(found).expect("a state");
            NetworkState::parse(more.clone()).expect("a state").without_what_is_met(&found).into_value()
        };
        let left = difference(bridge(json!([{ "name": "eth1" }])));
        assert_eq!(
            left["interfaces"][0],
            json!({ "name": "br1", "type": "linux-bridge", "state": "up", "mtu": 1400 })
        );
        assert_eq!(difference(json!({})), more);
    }

    #[test]
    fn virtual_functions_that_say_more_than_was_asked_for_are_no_difference() {
        let nic = |functions: Value| {
            let document = json!({ "interfaces": [{ "name": "eth1", "type": "ethernet", "state": "up",
                "ethernet": { "sr-iov": { "vfs": functions } } }] });
            NetworkState::parse(document).expect("a state")
        };
        let current = nic(json!([
            { "id": 0, "mac-address": "02:00:00:00:00:AA", "vlan-id": 7, "trust": false },
            { "id": 1, "mac-address": "02:00:00:00:00:BB", "vlan-id": 0, "trust": true }
        ]));
        for (wanted, differs) in [
            (json!([{ "id": 1, "trust": true }]), false),
            (json!([{ "id": 1, "mac-address": "02:00:00:00:00:bb" }, { "id": 0, "vlan-id": "7" }]), false),
            (json!([{ "id": 0, "trust": true }]), true),
            (json!([{ "id": 2 }]), true),
        ] {
            let left = nic(wanted.clone()).without_what_is_met(&current);
            assert_eq!(!left.sections().is_empty(), differs, "{wanted}");
            assert_eq!(nic(wanted.clone()).first_unmet_in(&current).is_some(), differs, "{wanted}");
        }
    }

    #[test]
    fn a_permission_is_no_difference() {
        let bridge = |bridge: Value| {
            let document = json!({ "interfaces": [{ "name": "br1", "type": "ovs-bridge", "state": "up", "bridge": bridge }] });
            NetworkState::parse(document).expect("a state")
        };
        let current = bridge(json!({ "port": [{ "name": "eth1" }] }));
        let wanted = bridge(json!({ "allow-extra-patch-ports": true }));
        assert_eq!(wanted.clone().without_what_is_met(&current).into_value(), json!({}));
        assert_eq!(wanted.first_unmet_in(&current), None);
        // Open vSwitch reports a tag of zero where there is none.
        let trunk = |tags: Value| bridge(json!({ "port": [{ "name": "eth1", "vlan": tags }] }));
        let range =
            trunk(json!({ "mode": "trunk", "trunk-tags": [{ "id-range": { "min": 200, "max": 201 } }] }));
        let found = trunk(json!({ "mode": "trunk", "tag": 0, "trunk-tags": [{ "id": 200 }, { "id": 201 }] }));
        assert_eq!(range.clone().without_what_is_met(&found).into_value(), json!({}));
        assert_eq!(range.first_unmet_in(&found), None);
    }

    #[test]
    fn a_nic_may_be_meant_by_its_address() {
        let state = |document: Value| NetworkState::parse(document).expect("a state");
        let nic = |name: &str, kind: &str, mac: &str, made_with: &str| {
            json!({ "name": name, "type": kind, "state": "up", "mtu": 1500, "mac-address": mac,
                "permanent-mac-address": made_with, "pci-address": "0000:3b:00.0" })
        };
        let current = state(json!({ "interfaces": [
            nic("bond0", "bond", "02:00:00:00:00:AA", ""),
            nic("eth1", "ethernet", "02:00:00:00:00:AA", "02:00:00:00:00:BB"),
            { "name": "eth2", "type": "ethernet", "state": "up", "mtu": 1500 },
        ] }));
        for (desired, differs) in [
            (json!({ "identifier": "mac-address", "mac-address": "02:00:00:00:00:aa", "mtu": 1500 }), false),
            (json!({ "identifier": "mac-address", "mac-address": "02:00:00:00:00:aa", "mtu": 1400 }), true),
            (json!({ "identifier": "mac-address", "mac-address": "02:00:00:00:00:cc", "mtu": 1500 }), true),
            (json!({ "identifier": "pci-address", "pci-address": "0000:3b:00.0", "mtu": 1500 }), false),
            (json!({ "identifier": "mac-address", "mtu": 1500 }), true),
            (json!({ "identifier": "pci-address", "mtu": 1500 }), true),
            (json!({ "mac-address": "02:00:00:00:00:aa", "mtu": 1500 }), true),
        ] {
            let mut desired = desired;
            desired["name"] = json!("storage");
            let wanted = state(json!({ "interfaces": [desired] }));
            assert_eq!(!wanted.unmet_in(&current).sections().is_empty(), differs, "{desired}");
        }
    }

    #[test]
    fn what_open_vswitch_and_ovn_have_already_is_no_difference() {
        let state = |document: Value| NetworkState::parse(document).expect("a state");
        let current = state(json!({
            "ovs-db": { "external_ids": { "a": "1", "hostname": "n" }, "other_config": {} },
            "ovn": { "bridge-mappings": [{ "localnet": "blue", "bridge": "br1" }] }
        }));
        let mapping = |localnet: &str, bridge: &str, state: &str| json!({ "ovn": { "bridge-mappings": [{ "localnet": localnet, "bridge": bridge, "state": state }] } });
        for (desired, differs) in [
            (json!({ "ovs-db": { "external_ids": { "a": 1 } } }), false),
            (json!({ "ovs-db": { "external_ids": { "b": null }, "other_config": {} } }), false),
            (json!({ "ovs-db": { "external_ids": { "a": "2" } } }), true),
            (json!({ "ovs-db": { "external_ids": { "a": null } } }), true),
            (json!({ "ovs-db": { "external_ids": {} } }), true),
            (json!({ "ovs-db": { "other_config": { "max-idle": "1" } } }), true),
            (mapping("blue", "br1", "present"), false),
            (mapping("blue", "br2", "present"), true),
            (mapping("red", "br1", "present"), true),
            (mapping("red", "br1", "absent"), false),
            (mapping("blue", "br1", "absent"), true),
        ] {
            let left = state(desired.clone()).unmet_in(&current);
            let expected = if differs { desired.clone() } else { json!({}) };
            assert_eq!(left.into_value(), expected, "{desired}");
            assert_eq!(state(desired.clone()).first_unmet_in(&current).is_some(), differs, "{desired}");
        }
    }

    #[test]
    fn only_what_is_unmet_is_left() {
        let state = |document: Value| NetworkState::parse(document).expect("a state");
        let current = state(json!({
            "interfaces": [
                { "name": "eth1", "type": "ethernet", "state": "up", "mtu": 1500,
                  "ipv4": { "enabled": true, "address": [{ "ip": "192.0.2.1", "prefix-length": 24 }] } },
                { "name": "br1", "type": "linux-bridge", "state": "up" }
            ],
            "routes": { "config": [{ "destination": "198.51.100.0/24", "next-hop-interface": "eth1" }] },
            "dns-resolver": { "config": { "server": ["192.0.2.53"] } },
            "hostname": { "config": "node-1" }
        }));
        for (desired, difference) in [
            (current.clone().into_value(), json!({})),
            (
                json!({ "interfaces": [
                    { "name": "eth1", "type": "ethernet", "mtu": 1400, "ipv4": { "enabled": true },
                      "802.1x": { "password": "hush" } },
                    { "name": "br1", "type": "linux-bridge", "state": "absent", "mtu": 1400 },
                    { "name": "br2", "type": "linux-bridge", "mtu": 1400 },
                    { "name": "eth1", "mtu": 1500 }
                ] }),
                json!({ "interfaces": [
                    { "name": "eth1", "type": "ethernet", "mtu": 1400,
                      "802.1x": { "password": crate::secrets::HIDDEN } },
                    { "name": "br1", "type": "linux-bridge", "state": "absent", "mtu": 1400 },
                    { "name": "br2", "type": "linux-bridge", "mtu": 1400 }
                ] }),
            ),
            (
                json!({
                    "routes": { "config": [
                        { "destination": "198.51.100.0/24", "next-hop-interface": "eth1", "table-id": 0 },
                        { "destination": "203.0.113.0/24", "next-hop-interface": "eth1" },
                        { "state": "absent", "next-hop-interface": "eth7" }
                    ] },
                    "route-rules": { "config": [{ "ip-from": "192.0.2.0/24", "route-table": 7 }] },
                    "hostname": { "config": "node-2" },
                    "dns-resolver": { "config": { "server": ["192.0.2.53"] } }
                }),
                json!({
                    "routes": { "config": [{ "destination": "203.0.113.0/24", "next-hop-interface": "eth1" }] },
                    "route-rules": { "config": [{ "ip-from": "192.0.2.0/24", "route-table": 7 }] },
                    "hostname": { "config": "node-2" }
                }),
            ),
        ] {
            let desired = state(desired);
            let found = desired.unmet_in(&current);
            assert_eq!(found.clone().into_value(), difference);
            assert_eq!(found.sections().is_empty(), desired.first_unmet_in(&current).is_none());
        }
    }
}
