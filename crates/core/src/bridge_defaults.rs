//! The default VLAN settings for ports of a Linux bridge: a trunk of all VLANs.

use serde_json::{Value, json};

use knmstate_document::{Document, text};

/// Makes every port without a `vlan` key a trunk of all VLANs. A port with the key is not changed; if the key is empty,
/// the port has no filtering. Returns the names of the changed bridges.
pub fn fill(document: &mut Document) -> Vec<String> {
    let mut filled = Vec::new();
    let interfaces = document.get_mut("interfaces").and_then(Value::as_array_mut).into_iter().flatten();
    for interface in interfaces.filter_map(Value::as_object_mut) {
        if text(interface, "type") != "linux-bridge" || text(interface, "state") != "up" {
            continue;
        }
        let name = text(interface, "name").to_owned();
        let ports = interface.get_mut("bridge").and_then(|bridge| bridge.get_mut("port"));
        let ports = ports.and_then(Value::as_array_mut).into_iter().flatten();
        let mut is_changed = false;
        for port in ports.filter_map(Value::as_object_mut).filter(|port| !port.contains_key("vlan")) {
            port.insert(
                "vlan".to_owned(),
                json!({ "mode": "trunk", "trunk-tags": [{ "id-range": { "min": 2, "max": 4094 } }] }),
            );
            is_changed = true;
        }
        if is_changed {
            filled.push(name);
        }
    }
    filled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_without_vlan_settings_of_bridges_that_are_up_become_trunks() {
        let trunk = json!({ "mode": "trunk", "trunk-tags": [{ "id-range": { "min": 2, "max": 4094 } }] });
        for (interface, expected) in [
            (
                json!({ "name": "br1", "type": "linux-bridge", "state": "up", "bridge": { "port": [{ "name": "eth1" }] } }),
                vec![Some(trunk.clone())],
            ),
            (
                json!({ "name": "br1", "type": "linux-bridge", "state": "up",
                    "bridge": { "port": [{ "name": "eth1", "vlan": {} }, { "name": "eth2" }] } }),
                vec![Some(json!({})), Some(trunk.clone())],
            ),
            (
                json!({ "name": "br1", "type": "linux-bridge", "state": "up",
                    "bridge": { "port": [{ "name": "eth1", "vlan": { "mode": "access", "tag": 5 } }] } }),
                vec![Some(json!({ "mode": "access", "tag": 5 }))],
            ),
            (
                json!({ "name": "br1", "type": "linux-bridge", "state": "absent", "bridge": { "port": [{ "name": "eth1" }] } }),
                vec![None],
            ),
            (
                json!({ "name": "br1", "type": "linux-bridge", "bridge": { "port": [{ "name": "eth1" }] } }),
                vec![None],
            ),
            (
                json!({ "name": "br1", "type": "ovs-bridge", "state": "up", "bridge": { "port": [{ "name": "eth1" }] } }),
                vec![None],
            ),
            (
                json!({ "name": "br1", "type": "linux-bridge", "state": "up", "bridge": { "port": [] } }),
                vec![],
            ),
            (json!({ "name": "br1", "type": "linux-bridge", "state": "up" }), vec![]),
        ] {
            let before = json!({ "interfaces": [{ "name": "eth1" }, interface] });
            let mut document = before.as_object().unwrap().clone();
            let filled = fill(&mut document);
            let ports = document["interfaces"][1]["bridge"]["port"].as_array().cloned().unwrap_or_default();
            let vlans: Vec<_> = ports.iter().map(|port| port.get("vlan").cloned()).collect();
            assert_eq!(vlans, expected, "{interface}");
            let changed = Value::Object(document) != before;
            assert_eq!(filled, if changed { vec!["br1"] } else { vec![] }, "{interface}");
        }
    }
}
