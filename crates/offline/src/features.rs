//! Which of nmstate's features a document uses, for the metrics that count them over a fleet.

use knmstate_document::NetworkState;
use nmstate::NetworkState as Document;
use serde_json::Value;

/// The features that `desired` makes use of on a machine that is like `current`, in nmstate's words, sorted. Empty
/// when that is not known.
pub fn features(desired: &NetworkState, current: &NetworkState) -> Vec<String> {
    let document = |state: &NetworkState| serde_json::from_value::<Document>(state.clone().into_value()).ok();
    // nmstate looks at the machine as well: it wants to know the interfaces that are only named.
    let statistic = document(desired)
        .zip(document(current))
        .and_then(|(desired, current)| desired.statistic(&current).ok());
    let mut names: Vec<_> = statistic
        .into_iter()
        .flat_map(|statistic| statistic.features)
        .filter_map(|feature| match serde_json::to_value(feature) {
            Ok(Value::String(name)) => Some(name),
            _ => None,
        })
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn features_are_named_once_and_sorted() {
        let state = |document: &Value| NetworkState::parse(document.clone()).expect("the right shape");
        let current = state(&json!({ "interfaces": [
            { "name": "eth1", "type": "ethernet", "state": "up" },
            { "name": "eth2", "type": "ethernet", "state": "up" }
        ] }));
        for (document, expected) in [
            (json!({}), &[][..]),
            (
                json!({
                    "interfaces": [
                        { "name": "eth1", "type": "ethernet", "state": "up", "lldp": { "enabled": true },
                          "ipv4": { "enabled": true, "dhcp": false, "address": [{ "ip": "192.0.2.7", "prefix-length": 24 }] } },
                        { "name": "eth2", "state": "up", "lldp": { "enabled": true } }
                    ],
                    "routes": { "config": [
                        { "destination": "198.51.100.0/24", "next-hop-interface": "eth1", "next-hop-address": "192.0.2.1" }
                    ] },
                    "dns-resolver": { "config": { "server": ["192.0.2.53"] } },
                    "hostname": { "config": "node-1" }
                }),
                &["lldp", "static-dns-name-server", "static-hostname", "static-route"],
            ),
            // Not a document that nmstate understands, and one that it refuses on this machine.
            (json!({ "interfaces": [{ "name": "eth1", "type": "ethernet", "mtu": "many" }] }), &[]),
            (
                json!({ "interfaces": [{ "name": "eth7", "type": "ethernet", "lldp": { "enabled": true } }] }),
                &[],
            ),
        ] {
            assert_eq!(features(&state(&document), &current), expected, "{document}");
        }
    }
}
