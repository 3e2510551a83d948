//! Does NetworkManager have the plugin that an interface needs?

use super::Facts;
use super::names::{Interface, kind};
use crate::error::{HostError, Place};
use crate::state::interface_name;

pub(super) fn check(interface: &Interface, facts: &Facts) -> Result<(), HostError> {
    let kind = kind(interface);
    if !matches!(kind, "ovs-bridge" | "ovs-interface") || facts.open_vswitch != Some(false) {
        return Ok(());
    }
    Err(HostError::Unsupported {
        place: Place::interface(interface_name(interface)).below("type"),
        what: format!("interfaces of type {kind}"),
        why: "its NetworkManager lacks the plugin for Open vSwitch; install NetworkManager-ovs (Fedora, RHEL) or network-manager-ovs (Debian, Ubuntu), restart NetworkManager, and let Open vSwitch run".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn open_vswitch_needs_its_plugin() {
        for (kind, plugin, refused) in [
            ("ovs-bridge", Some(false), true),
            ("ovs-interface", Some(false), true),
            ("ovs-bridge", Some(true), false),
            ("ovs-bridge", None, false),
            ("linux-bridge", Some(false), false),
            ("ethernet", Some(false), false),
        ] {
            let interface = json!({ "name": "x", "type": kind });
            let facts = Facts { open_vswitch: plugin, ..Facts::default() };
            let found = check(interface.as_object().expect("a map"), &facts);
            assert_eq!(found.is_err(), refused, "{kind} {plugin:?}");
            if let Err(error) = found {
                let text = error.to_string();
                assert!(
                    text.starts_with(&format!(
                        "interfaces[x].type: this machine cannot do interfaces of type {kind}"
                    )),
                    "{text}"
                );
                for word in ["NetworkManager-ovs", "network-manager-ovs", "restart NetworkManager"] {
                    assert!(text.contains(word), "{text}");
                }
            }
        }
    }
}
