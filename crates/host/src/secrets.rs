//! Values that no log, error or report may show.

pub(crate) use knmstate_core::secrets::is_secret;
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

/// Takes the secrets of some documents out of texts that somebody else wrote.
#[derive(Debug, Default, Clone)]
pub(crate) struct Scrubber(Vec<String>);

impl Scrubber {
    pub(crate) fn learn(&mut self, document: &Value) {
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

    pub(crate) fn clean(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, secret| text.replace(secret, "(a secret)"))
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
