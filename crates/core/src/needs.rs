//! The order in which several documents are applied one after another: what others refer to comes first.

use std::collections::{BTreeMap, BTreeSet};

use knmstate_document::{
    Document, config_routes, config_rules, interfaces,
    interfaces::names,
    is_absent,
    references::{self, Reference, ReferenceKind},
};

/// The names of the documents, in the order in which they can be applied one by one: a document that refers to an
/// interface of another comes after it. Documents that do not depend on each other, or on each other mutually, are
/// ordered by name.
pub fn in_order<'a>(documents: &BTreeMap<&'a str, &Document>) -> Vec<&'a str> {
    let made: BTreeMap<&str, BTreeSet<&str>> =
        documents.iter().map(|(name, document)| (*name, made_by(document))).collect();
    let needed: BTreeMap<&str, BTreeSet<&str>> =
        documents.iter().map(|(name, document)| (*name, used_by(document))).collect();
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

/// The names of the interfaces that a document configures or creates.
fn made_by(document: &Document) -> BTreeSet<&str> {
    let wanted = interfaces(document).filter(|interface| !is_absent(interface));
    wanted
        .flat_map(|interface| {
            let peers = references::of_interface(interface).into_iter().filter(is_peer).map(|peer| peer.name);
            names(interface).chain(peers)
        })
        .collect()
}

/// The names of the interfaces that have to exist before a document can be applied, its own included.
fn used_by(document: &Document) -> BTreeSet<&str> {
    let by_interfaces = interfaces(document)
        .filter(|interface| !is_absent(interface))
        .flat_map(references::of_interface)
        .filter(|reference| !is_peer(reference))
        .map(|reference| reference.name);
    let by_routes = config_routes(document).filter(|route| !is_absent(route)).flat_map(references::of_route);
    let by_rules = config_rules(document).filter(|rule| !is_absent(rule)).flat_map(references::of_rule);
    by_interfaces.chain(by_routes).chain(by_rules).collect()
}

/// Both ends of a pair are created by naming one of them.
fn is_peer(reference: &Reference<'_>) -> bool {
    reference.kind == ReferenceKind::Peer
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn sorted(documents: &[(&str, Value)]) -> Vec<String> {
        let documents =
            documents.iter().map(|(name, document)| (*name, document.as_object().unwrap())).collect();
        in_order(&documents).into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn what_others_refer_to_comes_first() {
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
    fn every_spelling_of_a_reference_counts() {
        let bond = json!({ "interfaces": [{ "name": "bond0", "type": "bond", "alt-names": [{ "name": "lan" }],
            "profile-name": "uplink" }] });
        let hsr = |key: &str, name: &str| json!({ "interfaces": [{ "name": "hsr0", "type": "hsr", "hsr": { key: name } }] });
        let mut missed = Vec::new();
        for above in [
            hsr("port1", "bond0"),
            hsr("port2", "bond0"),
            hsr("interlink", "bond0"),
            json!({ "interfaces": [{ "name": "b1", "type": "bond", "bond": { "port": ["bond0"] } }] }),
            json!({ "interfaces": [{ "name": "b1", "type": "bond", "bond": { "ports": ["bond0"] } }] }),
            json!({ "interfaces": [{ "name": "b1", "link-aggregation": { "ports-config": [{ "name": "bond0" }] } }] }),
            json!({ "interfaces": [{ "name": "br0", "bridge": { "ports": [{ "name": "bond0" }] } }] }),
            json!({ "interfaces": [{ "name": "ovs0", "bridge": { "port": [
                { "name": "b", "bond": { "ports": [{ "name": "bond0" }] } }] } }] }),
            json!({ "interfaces": [{ "name": "vrf0", "vrf": { "ports": ["bond0"] } }] }),
            json!({ "interfaces": [{ "name": "t0", "ip-tunnel": { "base-iface": "bond0" } }] }),
            json!({ "interfaces": [{ "name": "d0", "type": "dummy", "copy-mac-from": "bond0" }] }),
            json!({ "interfaces": [{ "name": "v7", "vlan": { "base-iface": "lan", "id": 7 } }] }),
            json!({ "interfaces": [{ "name": "v7", "vlan": { "base-iface": "uplink", "id": 7 } }] }),
            json!({ "routes": { "config": [{ "destination": "10.0.0.0/8", "vrf-name": "bond0" }] } }),
            json!({ "route-rules": { "config": [{ "family": "ipv4", "iif": "bond0" }] } }),
        ] {
            if sorted(&[("a", above.clone()), ("z", bond.clone())]) != ["z", "a"] {
                missed.push(above.to_string());
            }
        }
        assert!(missed.is_empty(), "not seen:\n{}", missed.join("\n"));
    }

    #[test]
    fn the_peer_of_a_veth_is_made_with_it() {
        let pair = json!({ "interfaces": [{ "name": "v1", "type": "veth", "veth": { "peer": "v2" } }] });
        let bridge = json!({ "interfaces": [{ "name": "br0", "bridge": { "port": [{ "name": "v2" }] } }] });
        assert_eq!(sorted(&[("a", bridge), ("z", pair.clone())]), ["z", "a"]);
        // Either end makes both.
        let other_end = json!({ "interfaces": [{ "name": "v2", "type": "veth", "veth": { "peer": "v1" } }] });
        assert_eq!(sorted(&[("a", other_end.clone()), ("z", pair.clone())]), ["a", "z"]);
        assert_eq!(sorted(&[("a", pair), ("z", other_end)]), ["a", "z"]);
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
        /// No document is lost or doubled, and a chain of references without a circle is respected.
        #[test]
        fn every_document_is_there_once_and_after_what_it_refers_to(
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
