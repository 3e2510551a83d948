//! Does NetworkManager have the plugin that an interface needs, and is there what the plugin speaks to?

use std::time::Duration;

use tokio::net::UnixStream;
use tokio::time::timeout;

use super::Facts;
use super::names::{Interface, kind};
use crate::error::{HostError, Place};
use crate::state::interface_name;

/// Where nmstate asks it.
const SOCKET: &str = "/run/openvswitch/db.sock";
const LIMIT: Duration = Duration::from_secs(5);

pub(super) fn is_of_open_vswitch(interface: &Interface) -> bool {
    matches!(kind(interface), "ovs-bridge" | "ovs-interface")
}

/// Whether somebody answers. One who is slow to answer does.
pub(super) async fn open_vswitch_runs() -> bool {
    timeout(LIMIT, UnixStream::connect(SOCKET)).await.map_or(true, |connected| connected.is_ok())
}

pub(super) fn check(interface: &Interface, facts: &Facts) -> Result<(), HostError> {
    let kind = kind(interface);
    if !is_of_open_vswitch(interface) {
        return Ok(());
    }
    let place = Place::interface(interface_name(interface)).below("type");
    if facts.open_vswitch != Some(false) {
        let what = format!("Open vSwitch does not run on this machine: nobody answers at {SOCKET}; start it");
        return if facts.open_vswitch_runs { Ok(()) } else { Err(HostError::Missing { place, what }) };
    }
    Err(HostError::Unsupported {
        place,
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
        let lacks_plugin = "this machine cannot do interfaces of type";
        let does_not_run = "Open vSwitch does not run on this machine";
        for (kind, plugin, runs, expected) in [
            ("ovs-bridge", Some(false), true, Some(lacks_plugin)),
            ("ovs-interface", Some(false), false, Some(lacks_plugin)),
            ("ovs-bridge", Some(true), false, Some(does_not_run)),
            ("ovs-bridge", None, false, Some(does_not_run)),
            ("ovs-bridge", Some(true), true, None),
            ("ovs-interface", None, true, None),
            ("linux-bridge", Some(false), false, None),
            ("ethernet", Some(false), false, None),
        ] {
            let interface = json!({ "name": "x", "type": kind });
            let facts = Facts { open_vswitch: plugin, open_vswitch_runs: runs, ..Facts::default() };
            let found = check(interface.as_object().expect("a map"), &facts);
            assert_eq!(found.is_err(), expected.is_some(), "{kind} {plugin:?} {runs}");
            let (Err(error), Some(expected)) = (found, expected) else { continue };
            let text = error.to_string();
            assert!(text.starts_with(&format!("interfaces[x].type: {expected}")), "{text}");
            assert_eq!(error.is_retryable(), expected == does_not_run, "{text}");
            if expected == lacks_plugin {
                for word in ["NetworkManager-ovs", "network-manager-ovs", "restart NetworkManager"] {
                    assert!(text.contains(word), "{text}");
                }
            }
        }
    }
}
