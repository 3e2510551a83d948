//! Addresses that were lent and are to be fixed ones.

use serde_json::{Map, Value};

const LIFETIMES: [&str; 2] = ["valid-life-time", "preferred-life-time"];

/// Takes the lifetimes off addresses that are asked for where nobody lends any. They come from a state in which somebody
/// did, and nmstate leaves such addresses out, as soon as nobody does: the next time that the document was applied, the
/// interface would lose its address.
pub(super) fn take_off(document: &mut Map<String, Value>) {
    let interfaces = document.get_mut("interfaces").and_then(Value::as_array_mut);
    for interface in interfaces.into_iter().flatten() {
        for family in ["ipv4", "ipv6"] {
            let Some(section) = interface.get_mut(family).and_then(Value::as_object_mut) else { continue };
            let is_lent =
                ["dhcp", "autoconf"].iter().any(|key| section.get(*key) == Some(&Value::Bool(true)));
            let addresses = section.get_mut("address").and_then(Value::as_array_mut).filter(|_| !is_lent);
            for address in addresses.into_iter().flatten().filter_map(Value::as_object_mut) {
                for lifetime in LIFETIMES {
                    address.remove(lifetime);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_asked_for_where_nobody_lends_has_no_end() {
        let lent = json!([{ "ip": "192.0.2.7", "prefix-length": 24, "valid-life-time": "60sec", "preferred-life-time": "60sec" }]);
        let fixed = json!([{ "ip": "192.0.2.7", "prefix-length": 24 }]);
        for (family, section, is_fixed) in [
            ("ipv4", json!({ "enabled": true, "dhcp": false }), true),
            ("ipv4", json!({ "enabled": true }), true),
            ("ipv4", json!({ "enabled": true, "dhcp": true }), false),
            ("ipv6", json!({ "enabled": true, "dhcp": false, "autoconf": false }), true),
            ("ipv6", json!({ "enabled": true, "dhcp": false, "autoconf": true }), false),
        ] {
            let mut section = section;
            section["address"] = lent.clone();
            let mut document = Map::new();
            document.insert("interfaces".to_owned(), json!([{ "name": "eth1", family: section }]));
            take_off(&mut document);
            let expected = if is_fixed { &fixed } else { &lent };
            assert_eq!(&document["interfaces"][0][family]["address"], expected, "{family} {section}");
        }
    }
}
