//! Values that no state, status, log or error may show.

use std::fmt;

use serde_json::Value;

/// What replaces a secret. It is nmstate's own text, so that every host shows the same.
pub const HIDDEN: &str = "<_password_hid_by_nmstate>";

/// Whether the value of a key is secret. The name of the key decides, and in doubt it is: to hide a harmless value
/// costs less than to show a password.
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

/// Hides every secret below `value`.
pub fn hide(value: &mut Value) {
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

/// Removes the secrets of some documents from texts of other programs, such as errors of nmstate.
#[derive(Default, Clone)]
pub struct Scrubber(Vec<String>);

impl fmt::Debug for Scrubber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scrubber").field("secrets", &self.0.len()).finish()
    }
}

impl Scrubber {
    /// Adds the secrets of a document.
    pub fn learn(&mut self, document: &Value) {
        match document {
            Value::Object(map) => {
                for (key, below) in map {
                    match below {
                        Value::String(text)
                            if is_secret(key, below) && text != HIDDEN && !text.is_empty() =>
                        {
                            self.0.push(text.clone());
                        }
                        below => self.learn(below),
                    }
                }
            }
            Value::Array(entries) => entries.iter().for_each(|entry| self.learn(entry)),
            _ => {}
        }
    }

    /// The text without the secrets that were learnt.
    pub fn clean(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, secret| text.replace(secret, "(a secret)"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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

    #[test]
    fn what_a_document_keeps_secret_is_taken_out_of_texts() {
        let mut scrubber = Scrubber::default();
        scrubber.learn(&json!({ "interfaces": [{ "802.1x": { "password": "hush", "identity": "me" } }] }));
        scrubber.learn(&json!({ "interfaces": [{ "psk": "" }, { "psk": HIDDEN }, { "psk": 7 }] }));
        assert_eq!(
            scrubber.clean("desire 'hush' of me, current 'hush'"),
            "desire '(a secret)' of me, current '(a secret)'"
        );
    }
}
