//! In which order several documents are applied one after another: what others stand on comes first.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::document::{Document, config_routes, interfaces, is_absent, objects, text};

/// The names in the order in which their documents can be applied one by one: a document that uses an interface of
/// another comes after it. Where nothing decides, by name; documents that need each other, by name as well.
pub fn in_order<'a>(documents: &BTreeMap<&'a str, &Document>) -> Vec<&'a str> {
    let made: BTreeMap<&str, BTreeSet<&str>> =
        documents.iter().map(|(name, document)| (*name, interfaces_of(document))).collect();
    let needed: BTreeMap<&str, BTreeSet<&str>> =
        documents.iter().map(|(name, document)| (*name, uses(document))).collect();
    let comes_after = |later: &str, earlier: &str| {
        later != earlier
            && needed[later]
                .iter()
                .any(|interface| made[earlier].contains(interface) && !made[later].contains(interface))
    };
    let mut left: Vec<&str> = documents.keys().copied().collect();
    let mut sorted = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let free = left.iter().position(|name| !left.iter().any(|other| comes_after(name, other)));
        sorted.push(left.remove(free.unwrap_or(0)));
    }
    sorted
}

/// The interfaces that a document configures.
fn interfaces_of(document: &Document) -> BTreeSet<&str> {
    interfaces(document)
        .filter(|interface| !is_absent(interface))
        .map(|interface| text(interface, "name"))
        .collect()
}

/// The interfaces that a document refers to, its own included.
fn uses(document: &Document) -> BTreeSet<&str> {
    let by_interfaces =
        interfaces(document).filter(|interface| !is_absent(interface)).flat_map(|interface| {
            let below = |section: &str| interface.get(section).and_then(Value::as_object);
            let bases = ["vlan", "vxlan", "mac-vlan", "mac-vtap", "macsec", "ipvlan", "infiniband"]
                .into_iter()
                .filter_map(move |section| Some(text(below(section)?, "base-iface")));
            let controller = std::iter::once(text(interface, "controller"));
            let port_names = ["link-aggregation", "vrf", "hsr"].into_iter().flat_map(move |section| {
                let ports =
                    below(section).and_then(|section| section.get("port").or_else(|| section.get("ports")));
                ports.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
            });
            let bridge_ports =
                objects(below("bridge").and_then(|bridge| bridge.get("port"))).flat_map(|port| {
                    let bonded = port.get("link-aggregation").and_then(|bond| bond.get("port"));
                    std::iter::once(text(port, "name")).chain(objects(bonded).map(|port| text(port, "name")))
                });
            bases.chain(controller).chain(port_names).chain(bridge_ports).collect::<Vec<_>>()
        });
    let by_routes = config_routes(document)
        .filter(|route| !is_absent(route))
        .map(|route| text(route, "next-hop-interface"));
    by_interfaces.chain(by_routes).filter(|name| !name.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn sorted(documents: &[(&str, Value)]) -> Vec<String> {
        let documents =
            documents.iter().map(|(name, document)| (*name, document.as_object().unwrap())).collect();
        in_order(&documents).into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn what_others_stand_on_comes_first() {
        let bond = json!({ "interfaces": [{ "name": "bond0", "link-aggregation": { "port": ["eth1"] } }] });
        for above in [
            json!({ "interfaces": [{ "name": "bond0.7", "vlan": { "base-iface": "bond0", "id": 7 } }] }),
            json!({ "interfaces": [{ "name": "br0", "bridge": { "port": [{ "name": "bond0" }] } }] }),
            json!({ "interfaces": [{ "name": "vrf0", "vrf": { "port": ["bond0"] } }] }),
            json!({ "interfaces": [{ "name": "x0", "vxlan": { "base-iface": "bond0", "id": 7 } }] }),
            json!({ "interfaces": [{ "name": "eth5", "controller": "bond0" }] }),
            json!({ "interfaces": [{ "name": "ovs0", "bridge": { "port": [
                { "name": "b", "link-aggregation": { "port": [{ "name": "bond0" }] } }] } }] }),
            json!({ "routes": { "config": [{ "destination": "10.0.0.0/8", "next-hop-interface": "bond0" }] } }),
        ] {
            assert_eq!(sorted(&[("a", above.clone()), ("z", bond.clone())]), ["z", "a"], "{above}");
        }
    }

    #[test]
    fn without_need_and_in_a_circle_names_decide() {
        let alone = |name: &str| json!({ "interfaces": [{ "name": name }] });
        assert_eq!(sorted(&[("b", alone("eth1")), ("a", alone("eth2"))]), ["a", "b"]);
        let needs = |own: &str, other: &str| json!({ "interfaces": [{ "name": own, "vlan": { "base-iface": other } }] });
        assert_eq!(sorted(&[("b", needs("x", "y")), ("a", needs("y", "x"))]), ["a", "b"]);
        // Removing something needs nothing.
        let removal =
            json!({ "interfaces": [{ "name": "v", "state": "absent", "vlan": { "base-iface": "eth1" } }] });
        assert_eq!(sorted(&[("b", alone("eth1")), ("a", removal)]), ["a", "b"]);
    }

    proptest! {
        /// Whatever needs whatever: nothing is lost, nothing doubled, and a chain without circles is respected.
        #[test]
        fn every_document_is_there_once_and_after_what_it_stands_on(
            bases in prop::collection::vec(prop::option::of(0_usize..8), 1..8),
        ) {
            // Document i makes interface i on top of an interface with a smaller number, or of nothing.
            let documents: Vec<(String, Value)> = bases
                .iter()
                .enumerate()
                .map(|(index, base)| {
                    let mut interface = json!({ "name": format!("if{index}") });
                    if let Some(base) = base.filter(|base| *base < index) {
                        interface["vlan"] = json!({ "base-iface": format!("if{base}") });
                    }
                    // Names run against the order of need.
                    (format!("p{}", 9 - index), json!({ "interfaces": [interface] }))
                })
                .collect();
            let by_name = documents.iter().map(|(name, document)| (&**name, document.as_object().unwrap())).collect();
            let order = in_order(&by_name);
            prop_assert_eq!(order.iter().collect::<BTreeSet<_>>().len(), documents.len());
            prop_assert_eq!(order.len(), documents.len());
            let place = |index: usize| order.iter().position(|name| *name == format!("p{}", 9 - index));
            for (index, base) in bases.iter().enumerate() {
                if let Some(base) = base.filter(|base| *base < index) {
                    prop_assert!(place(base) < place(index));
                }
            }
        }
    }
}
