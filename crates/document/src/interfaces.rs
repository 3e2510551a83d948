//! Which interface an entry is about: its names and its type.

use std::iter::once;

use serde_json::Value;

use crate::{Document, objects, text};

/// The section of a bond. nmstate writes the first name and reads both.
pub const BOND_SECTION: [&str; 2] = ["link-aggregation", "bond"];
/// The list of ports in a bond, bridge or VRF. nmstate writes the first name and reads both.
pub const PORT_LIST: [&str; 2] = ["port", "ports"];

/// nmstate's own name of a key that it also reads by another one.
pub fn main_key(key: &str) -> &str {
    [BOND_SECTION, PORT_LIST].iter().find(|names| names.contains(&key)).map_or(key, |names| names[0])
}

/// The types of interfaces that nmstate knows.
pub const TYPES: [&str; 21] = [
    "ethernet",
    "bond",
    "linux-bridge",
    "vlan",
    "ovs-bridge",
    "ovs-interface",
    "vxlan",
    "vrf",
    "dummy",
    "veth",
    "mac-vlan",
    "mac-vtap",
    "hsr",
    "ip-tunnel",
    "loopback",
    "infiniband",
    "tun",
    "macsec",
    "ipsec",
    "xfrm",
    "ipvlan",
];

/// Types that are removed with their configuration. A NIC stays, whatever a document asks for.
const REMOVED_WITH_CONFIGURATION: [&str; 12] = [
    "bond",
    "dummy",
    "hsr",
    "ipvlan",
    "linux-bridge",
    "mac-vlan",
    "mac-vtap",
    "macsec",
    "vlan",
    "vrf",
    "vxlan",
    "ovs-interface",
];

/// The name of an interface out of a parsed document; empty when it has none.
pub fn interface_name(interface: &Document) -> &str {
    text(interface, "name")
}

/// The type of an interface; empty when the document leaves it to the machine.
pub fn interface_type(interface: &Document) -> &str {
    text(interface, "type")
}

/// The desired state of an interface; `up` when the document does not mention it.
pub fn interface_state(interface: &Document) -> &str {
    match text(interface, "state") {
        "" => "up",
        state => state,
    }
}

/// The names that an interface can be called by: its own, that of its profile, and the alternative ones.
pub fn names(interface: &Document) -> impl Iterator<Item = &str> {
    let profile = interface.get("profile-name").and_then(Value::as_str);
    once(interface_name(interface)).chain(profile).chain(alternative_names(interface))
}

/// The alternative names of an interface.
pub fn alternative_names(interface: &Document) -> impl Iterator<Item = &str> {
    objects(interface.get("alt-names")).filter_map(|entry| entry.get("name")?.as_str())
}

/// Whether an interface can be called by this name.
pub fn is_called(interface: &Document, name: &str) -> bool {
    names(interface).any(|known| known == name)
}

/// Whether two entries of one document, or of two, are about the same interface.
///
/// An interface of the kernel is identified by its name alone, so two types contradict each other. A bridge of Open
/// vSwitch or a tunnel of IPsec is no interface of the kernel, and may have the name of one. Names that are not filled
/// in yet are not compared.
pub fn is_same_interface(one: &Document, other: &Document) -> bool {
    let name = interface_name(one);
    if name.is_empty() || name.contains("{{") || name != interface_name(other) {
        return false;
    }
    let types = [interface_type(one), interface_type(other)];
    types[0] == types[1] || types.contains(&"") || !types.iter().any(|kind| is_outside_kernel(kind))
}

/// Whether the kernel has no interface for an entry of this type.
fn is_outside_kernel(kind: &str) -> bool {
    matches!(kind, "ovs-bridge" | "ipsec")
}

/// Whether two types are one for a configuration, in which a veth is an ethernet interface.
pub fn is_same_type(one: &str, other: &str) -> bool {
    let plain = |kind: &str| if kind == "veth" { "ethernet".to_owned() } else { kind.to_owned() };
    plain(one) == plain(other)
}

/// Whether an interface of this type disappears when its configuration is removed.
pub fn is_removed_with_configuration(kind: &str) -> bool {
    REMOVED_WITH_CONFIGURATION.contains(&kind)
}

/// Whether an interface of this type stays when a document wants it absent or down.
pub fn stays_when_absent(kind: &str) -> bool {
    matches!(kind, "ethernet" | "infiniband" | "loopback" | "unknown")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_interface_of_the_kernel_is_identified_by_its_name() {
        let of = |name: &str, kind: &str| json!({ "name": name, "type": kind });
        let untyped = json!({ "name": "br0" });
        for (one, other, same) in [
            (of("br0", "bond"), of("br0", "bond"), true),
            (of("br0", "bond"), of("br0", "linux-bridge"), true),
            (of("br0", "ovs-bridge"), of("br0", "ovs-bridge"), true),
            (of("br0", "ovs-bridge"), of("br0", "ovs-interface"), false),
            (of("br0", "ovs-bridge"), untyped.clone(), true),
            (untyped, of("br0", "veth"), true),
            (of("br0", "bond"), of("br1", "bond"), false),
            (of("{{ capture.a.b }}", ""), of("{{ capture.a.b }}", ""), false),
            (json!({}), json!({}), false),
        ] {
            let (one, other) = (one.as_object().unwrap(), other.as_object().unwrap());
            assert_eq!(is_same_interface(one, other), same, "{one:?} {other:?}");
            assert_eq!(is_same_interface(other, one), same, "{other:?} {one:?}");
        }
    }

    #[test]
    fn an_interface_has_several_names() {
        let interface =
            json!({ "name": "eth1", "profile-name": "uplink", "alt-names": [{ "name": "lan" }, {}, "x"] });
        let interface = interface.as_object().unwrap();
        assert_eq!(names(interface).collect::<Vec<_>>(), ["eth1", "uplink", "lan"]);
        assert!(is_called(interface, "lan") && !is_called(interface, "x"));
    }

    #[test]
    fn types_have_families() {
        assert!(
            is_same_type("veth", "ethernet") && is_same_type("bond", "bond") && !is_same_type("bond", "veth")
        );
        for kind in TYPES {
            assert!(!(is_removed_with_configuration(kind) && stays_when_absent(kind)), "{kind}");
        }
    }
}
