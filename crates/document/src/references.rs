//! Which keys of a document hold the name of an interface, and what for.
//!
//! `KEYS` is the only list of such keys. Ordering, conflicts, preflight checks, keyfiles and the simulated host
//! derive their answers from it, so that a key which nmstate gains has to be added in one place.

use std::borrow::Cow;

use serde_json::Value;

use crate::{
    Document, Place,
    interfaces::{BOND_SECTION, PORT_LIST},
    text,
};

/// Why one interface refers to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReferenceKind {
    /// It sends its packets through the other one, and cannot exist without it.
    Base,
    /// The other one is its port. An interface is a port of one controller at most.
    Port,
    /// A port that it cannot exist without.
    RequiredPort,
    /// The other one is its controller.
    Controller,
    /// The other one is the opposite end of a pair, and is created together with it.
    Peer,
    /// It takes the MAC address of the other one.
    MacSource,
}

impl ReferenceKind {
    /// Whether the interface that refers is the controller of the other one.
    pub fn is_port(self) -> bool {
        matches!(self, Self::Port | Self::RequiredPort)
    }

    /// Whether the interface that refers cannot exist without the other one.
    pub fn is_required(self) -> bool {
        matches!(self, Self::Base | Self::RequiredPort)
    }
}

/// One step from an interface to a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// A key by any of its names, nmstate's own first.
    Key(&'static [&'static str]),
    /// Every entry of a list.
    Each,
    /// Every entry of a list that has no bond inside. In Open vSwitch the name of a bond is no interface; its ports
    /// are.
    EachButBonds,
}

const BOND: Step = Step::Key(&BOND_SECTION);
const BRIDGE: Step = Step::Key(&["bridge"]);
const PORTS: Step = Step::Key(&PORT_LIST);
const NAME: Step = Step::Key(&["name"]);

/// Every key of an interface that holds the name of another interface.
const KEYS: [(&[Step], ReferenceKind); 19] = {
    use ReferenceKind::{Base, Controller, MacSource, Peer, Port, RequiredPort};
    use Step::{Each, EachButBonds, Key};
    const BASE: Step = Key(&["base-iface"]);
    [
        (&[BOND, PORTS, Each], Port),
        (&[BOND, Key(&["ports-config"]), Each, NAME], Port),
        (&[BRIDGE, PORTS, EachButBonds, NAME], Port),
        (&[BRIDGE, PORTS, Each, BOND, PORTS, Each, NAME], Port),
        (&[Key(&["vrf"]), PORTS, Each], Port),
        // `protocol: prp` makes it PRP, with the same keys.
        (&[Key(&["hsr"]), Key(&["port1"])], RequiredPort),
        (&[Key(&["hsr"]), Key(&["port2"])], RequiredPort),
        (&[Key(&["hsr"]), Key(&["interlink"])], Base),
        (&[Key(&["vlan"]), BASE], Base),
        (&[Key(&["vxlan"]), BASE], Base),
        (&[Key(&["mac-vlan"]), BASE], Base),
        (&[Key(&["mac-vtap"]), BASE], Base),
        (&[Key(&["macsec"]), BASE], Base),
        (&[Key(&["ipvlan"]), BASE], Base),
        (&[Key(&["infiniband"]), BASE], Base),
        (&[Key(&["ip-tunnel"]), BASE], Base),
        (&[Key(&["veth"]), Key(&["peer"])], Peer),
        (&[Key(&["controller"])], Controller),
        (&[Key(&["copy-mac-from"])], MacSource),
        // Not `patch.peer`: Open vSwitch takes a patch port whose peer is missing.
    ]
};

/// The keys of a route and of a rule that hold the name of an interface. nmstate refuses an entry whose interface does
/// not exist.
const ROUTE_KEYS: [&str; 2] = ["next-hop-interface", "vrf-name"];
const RULE_KEYS: [&str; 1] = ["iif"];

/// One mention of an interface by another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference<'a> {
    pub kind: ReferenceKind,
    /// The name as it is written, which may be an alternative name or that of a profile. Never empty.
    pub name: &'a str,
    path: Vec<PathStep<'a>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PathStep<'a> {
    Key(&'a str),
    Entry(usize),
}

impl Reference<'_> {
    /// Where it is written, in the interface at `interface`.
    pub fn place(&self, interface: &Place) -> Place {
        self.path.iter().fold(interface.clone(), |place, step| match step {
            PathStep::Key(key) => place.below(key),
            PathStep::Entry(index) => place.entry(*index),
        })
    }
}

/// Every mention of another interface in this one, in the order of the table. Its type does not matter: nmstate may
/// know it from the machine.
pub fn of_interface(interface: &Document) -> Vec<Reference<'_>> {
    let mut found = Vec::new();
    for (steps, kind) in &KEYS {
        let Some((Step::Key(names), rest)) = steps.split_first() else { continue };
        for (key, value) in names.iter().filter_map(|name| interface.get_key_value(*name)) {
            follow(value, rest, *kind, &mut vec![PathStep::Key(key)], &mut found);
        }
    }
    found
}

fn follow<'a>(
    value: &'a Value,
    steps: &[Step],
    kind: ReferenceKind,
    path: &mut Vec<PathStep<'a>>,
    found: &mut Vec<Reference<'a>>,
) {
    let Some((step, rest)) = steps.split_first() else {
        if let Some(name) = value.as_str().filter(|name| !name.is_empty()) {
            found.push(Reference { kind, name, path: path.clone() });
        }
        return;
    };
    match step {
        Step::Key(names) => {
            let Some(map) = value.as_object() else { return };
            for (key, below) in names.iter().filter_map(|name| map.get_key_value(*name)) {
                path.push(PathStep::Key(key));
                follow(below, rest, kind, path, found);
                path.pop();
            }
        }
        Step::Each | Step::EachButBonds => {
            for (index, entry) in value.as_array().into_iter().flatten().enumerate() {
                if *step == Step::EachButBonds && has_bond(entry) {
                    continue;
                }
                path.push(PathStep::Entry(index));
                follow(entry, rest, kind, path, found);
                path.pop();
            }
        }
    }
}

fn has_bond(port: &Value) -> bool {
    BOND_SECTION.iter().any(|key| port.get(key).is_some_and(|bond| !bond.is_null()))
}

/// The ports of an interface, by any key that nmstate accepts, each name once. An Open vSwitch bridge has a port of its
/// own name where the host itself takes part in it.
pub fn ports(interface: &Document) -> Vec<&str> {
    let mut ports = Vec::new();
    for reference in of_interface(interface) {
        if reference.kind.is_port() && !ports.contains(&reference.name) {
            ports.push(reference.name);
        }
    }
    ports
}

/// The names of the keys at the top of an interface below which ports or a controller are named.
pub fn keys_of_ports() -> impl Iterator<Item = &'static str> {
    let is_of_ports = |kind: &ReferenceKind| kind.is_port() || *kind == ReferenceKind::Controller;
    KEYS.iter()
        .filter(move |(_, kind)| is_of_ports(kind))
        .flat_map(|(steps, _)| match steps.first() {
            Some(Step::Key(names)) => *names,
            _ => &[],
        })
        .copied()
}

/// The interface with its ports and sections under nmstate's own keys, where it also accepts others: `bond` for
/// `link-aggregation`, `ports` for `port`. A key that is there under both names is left as it is, for nmstate to
/// refuse.
pub fn with_main_keys(interface: &Document) -> Cow<'_, Document> {
    if !KEYS.iter().any(|(steps, _)| map_has_other_names(interface, steps)) {
        return Cow::Borrowed(interface);
    }
    let mut renamed = interface.clone();
    for (steps, _) in &KEYS {
        rename_in_map(&mut renamed, steps);
    }
    Cow::Owned(renamed)
}

fn map_has_other_names(map: &Document, steps: &[Step]) -> bool {
    let Some((Step::Key(names), rest)) = steps.split_first() else { return false };
    names.iter().skip(1).any(|name| map.contains_key(*name))
        || names.iter().filter_map(|name| map.get(*name)).any(|below| has_other_names(below, rest))
}

fn has_other_names(value: &Value, steps: &[Step]) -> bool {
    match (steps, value) {
        ([Step::Key(_), ..], Value::Object(map)) => map_has_other_names(map, steps),
        ([Step::Each | Step::EachButBonds, rest @ ..], Value::Array(entries)) => {
            entries.iter().any(|entry| has_other_names(entry, rest))
        }
        _ => false,
    }
}

fn rename_in_map(map: &mut Document, steps: &[Step]) {
    let Some((Step::Key(names), rest)) = steps.split_first() else { return };
    let Some((main, others)) = names.split_first() else { return };
    if !map.contains_key(*main)
        && let Some(other) = others.iter().find(|other| map.contains_key(**other))
    {
        let entries = std::mem::take(map).into_iter();
        *map = entries
            .map(|(key, value)| (if key == *other { (*main).to_owned() } else { key }, value))
            .collect();
    }
    if let Some(below) = map.get_mut(*main) {
        rename(below, rest);
    }
}

fn rename(value: &mut Value, steps: &[Step]) {
    match (steps, value) {
        ([Step::Key(_), ..], Value::Object(map)) => rename_in_map(map, steps),
        ([Step::Each | Step::EachButBonds, rest @ ..], Value::Array(entries)) => {
            for entry in entries {
                rename(entry, rest);
            }
        }
        _ => {}
    }
}

/// The interfaces that a route refers to.
pub fn of_route(route: &Document) -> impl Iterator<Item = &str> {
    ROUTE_KEYS.into_iter().map(|key| text(route, key)).filter(|name| !name.is_empty())
}

/// The interfaces that a rule refers to.
pub fn of_rule(rule: &Document) -> impl Iterator<Item = &str> {
    RULE_KEYS.into_iter().map(|key| text(rule, key)).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// One row for every key and every name of it: the interface, and what it refers to.
    #[test]
    fn every_key_of_the_table_is_read() {
        use ReferenceKind::{Base, Controller, MacSource, Peer, Port, RequiredPort};
        let mut rows = vec![
            (json!({ "controller": "x" }), "controller", Controller),
            (json!({ "copy-mac-from": "x" }), "copy-mac-from", MacSource),
            (json!({ "veth": { "peer": "x" } }), "veth.peer", Peer),
            (json!({ "hsr": { "port1": "x", "protocol": "prp" } }), "hsr.port1", RequiredPort),
            (json!({ "hsr": { "port2": "x" } }), "hsr.port2", RequiredPort),
            (json!({ "hsr": { "interlink": "x" } }), "hsr.interlink", Base),
            (
                json!({ "link-aggregation": { "ports-config": [{ "name": "x" }] } }),
                "link-aggregation.ports-config[0].name",
                Port,
            ),
            (json!({ "bond": { "ports-config": [{ "name": "x" }] } }), "bond.ports-config[0].name", Port),
        ];
        let bases = ["vlan", "vxlan", "mac-vlan", "mac-vtap", "macsec", "ipvlan", "infiniband", "ip-tunnel"];
        let named: Vec<(Value, String)> = bases
            .iter()
            .map(|section| {
                (json!({ *section: { "base-iface": "x", "id": 7 } }), format!("{section}.base-iface"))
            })
            .collect();
        rows.extend(named.iter().map(|(interface, place)| (interface.clone(), place.as_str(), Base)));
        let mut ports = Vec::new();
        for list in PORT_LIST {
            ports.push((json!({ "vrf": { list: ["x"] } }), format!("vrf.{list}[0]")));
            ports.push((
                json!({ "bridge": { list: [{ "name": "x", "vlan": {} }] } }),
                format!("bridge.{list}[0].name"),
            ));
            for bond in BOND_SECTION {
                ports.push((json!({ bond: { list: ["x"] } }), format!("{bond}.{list}[0]")));
                for bonded in PORT_LIST {
                    ports.push((
                        json!({ "bridge": { list: [{ "name": "no-interface", bond: { bonded: [{ "name": "x" }] } }] } }),
                        format!("bridge.{list}[0].{bond}.{bonded}[0].name"),
                    ));
                }
            }
        }
        rows.extend(ports.iter().map(|(interface, place)| (interface.clone(), place.as_str(), Port)));
        let mut kinds = Vec::new();
        for (mut interface, place, kind) in rows {
            interface["name"] = json!("i");
            let found = of_interface(interface.as_object().unwrap());
            let found: Vec<_> = found
                .iter()
                .map(|one| (one.name, one.place(&Place::interface("i")).to_string(), one.kind))
                .collect();
            assert_eq!(found, [("x", format!("interfaces[i].{place}"), kind)], "{interface}");
            kinds.push(kind);
        }
        let of_kind = |kinds: &mut dyn Iterator<Item = ReferenceKind>, kind| {
            kinds.filter(|other| *other == kind).count()
        };
        for kind in [Base, Controller, MacSource, Peer, RequiredPort] {
            let (table, tested) = (KEYS.iter().map(|(_, kind)| *kind), kinds.iter().copied());
            assert_eq!(
                of_kind(&mut tested.into_iter(), kind),
                of_kind(&mut table.into_iter(), kind),
                "{kind:?}"
            );
        }
    }

    #[test]
    fn what_names_no_interface_is_no_reference() {
        for interface in [
            json!({ "controller": "", "copy-mac-from": null, "vxlan": { "base-iface": "" }, "vlan": "x" }),
            json!({ "bridge": { "port": [{ "name": "bond", "link-aggregation": { "mode": "balance-slb" } }] } }),
            json!({ "bridge": { "port": ["x", 7, { "name": 7 }] }, "vrf": { "port": { "name": "x" } } }),
            json!({ "link-aggregation": { "port": [{ "name": "x" }], "options": { "primary": "x" } } }),
            json!({ "patch": { "peer": "x" } }),
        ] {
            assert_eq!(of_interface(interface.as_object().unwrap()), [], "{interface}");
        }
        // A port without a bond may say so.
        let port = json!({ "bridge": { "port": [{ "name": "x", "link-aggregation": null }] } });
        assert_eq!(ports(port.as_object().unwrap()), ["x"]);
    }

    #[test]
    fn ports_are_listed_once() {
        let hsr =
            json!({ "hsr": { "port1": "eth1", "port2": "eth2", "interlink": "eth3" }, "controller": "br0" });
        assert_eq!(ports(hsr.as_object().unwrap()), ["eth1", "eth2"]);
        let bond =
            json!({ "link-aggregation": { "port": ["eth1", "eth2"], "ports-config": [{ "name": "eth2" }] } });
        assert_eq!(ports(bond.as_object().unwrap()), ["eth1", "eth2"]);
        assert_eq!(
            keys_of_ports().collect::<std::collections::BTreeSet<_>>().into_iter().collect::<Vec<_>>(),
            ["bond", "bridge", "controller", "hsr", "link-aggregation", "vrf"]
        );
    }

    #[test]
    fn routes_and_rules_refer_to_interfaces() {
        let route = json!({ "destination": "10.0.0.0/8", "next-hop-interface": "eth1", "vrf-name": "vrf0" });
        assert_eq!(of_route(route.as_object().unwrap()).collect::<Vec<_>>(), ["eth1", "vrf0"]);
        let rule = json!({ "family": "ipv4", "iif": "eth1" });
        assert_eq!(of_rule(rule.as_object().unwrap()).collect::<Vec<_>>(), ["eth1"]);
        assert_eq!(of_route(rule.as_object().unwrap()).count(), 0);
    }

    #[test]
    fn other_names_of_keys_are_replaced_in_their_place() {
        for (written, expected) in [
            (
                r#"{"name":"b","bond":{"mode":1,"ports":["x"]},"mtu":9000}"#,
                r#"{"name":"b","link-aggregation":{"mode":1,"port":["x"]},"mtu":9000}"#,
            ),
            (
                r#"{"bridge":{"ports":[{"name":"x","bond":{"ports":[{"name":"y"}]}}]}}"#,
                r#"{"bridge":{"port":[{"name":"x","link-aggregation":{"port":[{"name":"y"}]}}]}}"#,
            ),
            (r#"{"vrf":{"ports":["x"],"route-table-id":7}}"#, r#"{"vrf":{"port":["x"],"route-table-id":7}}"#),
            (r#"{"bond":{},"link-aggregation":{}}"#, r#"{"bond":{},"link-aggregation":{}}"#),
        ] {
            let interface: Document = serde_json::from_str(written).unwrap();
            assert_eq!(serde_json::to_string(&*with_main_keys(&interface)).unwrap(), expected);
        }
        let usual = json!({ "link-aggregation": { "port": ["x"] } });
        assert!(matches!(with_main_keys(usual.as_object().unwrap()), Cow::Borrowed(_)));
    }
}
