//! Dynamic addresses that a document turns into static ones.

use serde_json::{Map, Value};

const LIFETIMES: [&str; 2] = ["valid-life-time", "preferred-life-time"];

/// Removes the lifetimes of addresses that a document sets while DHCP and autoconf are off. A capture took them from
/// an interface with dynamic addresses. nmstate leaves out addresses with a lifetime as soon as those are off, so
/// applying the document a second time would remove them.
pub(super) fn take_off(document: &mut Map<String, Value>) {
    let interfaces = document.get_mut("interfaces").and_then(Value::as_array_mut);
    for interface in interfaces.into_iter().flatten() {
        for family in ["ipv4", "ipv6"] {
            let Some(section) = interface.get_mut(family).and_then(Value::as_object_mut) else { continue };
            let is_dynamic =
                ["dhcp", "autoconf"].iter().any(|key| section.get(*key) == Some(&Value::Bool(true)));
            let addresses = section.get_mut("address").and_then(Value::as_array_mut).filter(|_| !is_dynamic);
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
    fn addresses_without_dhcp_have_no_lifetime() {
        let dynamic = json!([{ "ip": "192.0.2.7", "prefix-length": 24, "valid-life-time": "60sec", "preferred-life-time": "60sec" }]);
        let fixed = json!([{ "ip": "192.0.2.7", "prefix-length": 24 }]);
        for (family, section, is_fixed) in [
            ("ipv4", json!({ "enabled": true, "dhcp": false }), true),
            ("ipv4", json!({ "enabled": true }), true),
            ("ipv4", json!({ "enabled": true, "dhcp": true }), false),
            ("ipv6", json!({ "enabled": true, "dhcp": false, "autoconf": false }), true),
            ("ipv6", json!({ "enabled": true, "dhcp": false, "autoconf": true }), false),
        ] {
            let mut section = section;
            section["address"] = dynamic.clone();
            let mut document = Map::new();
            document.insert("interfaces".to_owned(), json!([{ "name": "eth1", family: section }]));
            take_off(&mut document);
            let expected = if is_fixed { &fixed } else { &dynamic };
            assert_eq!(&document["interfaces"][0][family]["address"], expected, "{family} {section}");
        }
    }
}
