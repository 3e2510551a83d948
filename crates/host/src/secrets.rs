//! Values that no log, error or report may show.

use serde_json::Value;

/// What stands where a secret was; nmstate's own word for it, so that both kinds of host show the same.
pub(crate) const HIDDEN: &str = "<_password_hid_by_nmstate>";

/// Hides every secret below `value`.
pub(crate) fn hide(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (key, below) in map.iter_mut() {
                if is_secret(key, below) {
                    *below = Value::String(HIDDEN.to_owned());
                } else {
                    hide(below);
                }
            }
        }
        Value::Array(entries) => entries.iter_mut().for_each(hide),
        _ => {}
    }
}

/// Judged by the name of the key, generously: a harmless value hidden in a log costs less than a key shown there.
pub(crate) fn is_secret(key: &str, value: &Value) -> bool {
    let key = key.to_ascii_lowercase();
    match key.as_str() {
        "psk" | "mka-cak" | "preshared-key" | "secret" => true,
        // 802.1X names a file here, WireGuard the key itself.
        "private-key" => value.as_str().is_none_or(|text| !text.starts_with('/')),
        key => key.ends_with("password"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn secrets_are_hidden_at_any_depth_and_nothing_else() {
        let mut document = json!({
            "interfaces": [
                {
                    "name": "eth1",
                    "802.1x": {
                        "identity": "client",
                        "password": "p1",
                        "private-key": "/etc/pki/client.key",
                        "private-key-password": "p2"
                    }
                },
                { "name": "ipsec0", "libreswan": { "psk": "p3", "left": "192.0.2.1" } },
                { "name": "macsec0", "macsec": { "mka-cak": "p4", "mka-ckn": "name" } },
                { "name": "wg0", "wireguard": { "private-key": "p5", "peer": [{ "preshared-key": "p6" }] } }
            ]
        });
        hide(&mut document);
        let text = document.to_string();
        for secret in ["p1", "p2", "p3", "p4", "p5", "p6"] {
            assert!(!text.contains(&format!("\"{secret}\"")), "{secret} in {text}");
        }
        for kept in ["client", "/etc/pki/client.key", "192.0.2.1", "\"name\"", "wg0"] {
            assert!(text.contains(kept), "{kept} not in {text}");
        }
    }
}
