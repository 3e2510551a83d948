//! Which values of a network document nobody may be shown.

use serde_json::Value;

/// Judged by the name of the key, generously: a harmless value hidden costs less than a password shown.
pub fn is_secret(key: &str, value: &Value) -> bool {
    let key = key.to_ascii_lowercase();
    match key.as_str() {
        "psk" | "mka-cak" | "preshared-key" | "secret" => true,
        // 802.1X names a file here, WireGuard the key itself.
        "private-key" => value.as_str().is_none_or(|text| !text.starts_with('/')),
        key => key.ends_with("password"),
    }
}

/// Whether anything below a value is secret.
pub fn holds_secret(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.iter().any(|(key, below)| is_secret(key, below) || holds_secret(below)),
        Value::Array(entries) => entries.iter().any(holds_secret),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_are_known_by_their_keys() {
        for (document, expected) in [
            (json!({ "802.1x": { "password": "p" } }), true),
            (json!({ "802.1x": { "private-key-password": "p", "identity": "me" } }), true),
            (json!({ "802.1x": { "private-key": "/etc/pki/client.key" } }), false),
            (json!({ "wireguard": { "private-key": "p" } }), true),
            (json!([{ "peer": [{ "preshared-key": "p" }] }]), true),
            (json!({ "libreswan": { "psk": "p" } }), true),
            (json!({ "macsec": { "mka-cak": "p" } }), true),
            (json!({ "name": "eth1", "mtu": 1500 }), false),
        ] {
            assert_eq!(holds_secret(&document), expected, "{document}");
        }
    }
}
