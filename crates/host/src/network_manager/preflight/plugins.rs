//! Does NetworkManager have the plugin that an interface needs, and is there what the plugin speaks to?

use knmstate_document::{Place, interface_name};
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::time::timeout;

use super::Facts;
use super::names::{Interface, text};
use crate::error::HostError;
use crate::host::Warning;
use knmstate_document::interfaces::interface_type;

/// Where nmstate asks it.
const SOCKET: &str = "/run/openvswitch/db.sock";
const LIMIT: Duration = Duration::from_secs(5);

pub(super) fn is_of_open_vswitch(interface: &Interface) -> bool {
    matches!(interface_type(interface), "ovs-bridge" | "ovs-interface")
}

/// Whether a server answers. A slow answer counts.
pub(super) async fn open_vswitch_runs() -> bool {
    timeout(LIMIT, UnixStream::connect(SOCKET)).await.map_or(true, |connected| connected.is_ok())
}

pub(super) fn check(interface: &Interface, facts: &Facts) -> Result<Option<Warning>, HostError> {
    if !is_of_open_vswitch(interface) {
        return Ok(None);
    }
    let kind = interface_type(interface);
    let place = Place::interface(interface_name(interface)).below("type");
    if facts.open_vswitch == Some(false) {
        return Err(HostError::Unsupported {
            place,
            what: format!("interfaces of type {kind}"),
            why: "its NetworkManager lacks the plugin for Open vSwitch; install NetworkManager-ovs (Fedora, RHEL) or network-manager-ovs (Debian, Ubuntu), restart NetworkManager, and let Open vSwitch run".to_owned(),
        });
    }
    if !facts.open_vswitch_runs {
        let what =
            format!("Open vSwitch does not run on this machine: nothing answers at {SOCKET}; start it");
        return Err(HostError::Missing { place, what });
    }
    // A bridge is noted down all the same, so this is not the end of it.
    let takes_the_kernel =
        kind == "ovs-bridge" && text(interface, &["bridge", "options", "datapath"]) != Some("netdev");
    Ok((facts.lacks_datapath && takes_the_kernel).then(|| Warning {
        place,
        what: "the kernel of this machine has no module for Open vSwitch, so nothing may pass; use datapath: netdev".to_owned(),
    }))
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
    #[test]
    fn a_kernel_without_a_datapath_is_only_warned_of() {
        let facts = Facts { open_vswitch: Some(true), open_vswitch_runs: true, ..Facts::default() };
        let bridge = |datapath: &str| json!({ "name": "x", "type": "ovs-bridge", "bridge": { "options": { "datapath": datapath } } });
        let plain = json!({ "name": "x", "type": "ovs-bridge" });
        let internal = json!({ "name": "x", "type": "ovs-interface" });
        for (interface, lacks_datapath, is_warned_of) in [
            (&plain, true, true),
            (&bridge(""), true, true),
            (&bridge("netdev"), true, false),
            (&internal, true, false),
            (&plain, false, false),
        ] {
            let facts = Facts { lacks_datapath, ..facts.clone() };
            let found =
                check(interface.as_object().expect("a map"), &facts).expect("it is no reason to refuse");
            assert_eq!(found.is_some(), is_warned_of, "{interface} {lacks_datapath}");
        }
    }
}
