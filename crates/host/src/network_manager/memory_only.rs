//! Changes that live in NetworkManager's memory and not on the machine's disk.
//!
//! NetworkManager keeps such profiles in `/run`, where they survive a restart of it and not one of the machine. A
//! profile that is on disk and is changed so stays on disk as it was, and is hidden by the one in `/run`. nmstate takes
//! an interface that is to be absent for one that is to be down then: its profile stays. So that it does not come back
//! with the next start of NetworkManager, it is held back, in memory again, and so are the profiles of its ports.
//!
//! What nmstate writes to disk by itself, past NetworkManager's profiles, is refused. Two things are kept on disk by
//! others and are let through: name servers that apply to the whole machine (NetworkManager's own configuration) and
//! what Open vSwitch has in its database.

use serde_json::{Map, Value, json};

use super::profiles::that_bring_up;
use super::service::Service;
use crate::error::{HostError, Place};
use crate::state::{NetworkState, interface_name};

/// Keys of an interface that nmstate writes to files of its own, and where.
const WRITTEN_TO_DISK: [(&str, &str); 2] =
    [("alt-names", "/etc/systemd/network"), ("dispatch", "/etc/NetworkManager/dispatcher.d")];

/// The document as it can be applied in memory, or why it cannot.
pub(super) fn document(desired: &NetworkState) -> Result<NetworkState, HostError> {
    for interface in desired.interfaces() {
        for (key, place) in WRITTEN_TO_DISK {
            if interface.get(key).is_some_and(|value| !is_nothing(value)) {
                return Err(HostError::Unsupported {
                    place: Place::interface(interface_name(interface)).below(key),
                    what: format!("{key} in memory only"),
                    why: format!("nmstate keeps them on disk, in {place}"),
                });
            }
        }
    }
    let mut document = desired.clone().into_value();
    // The name that is configured is on disk; the one in force is not.
    if let Some(hostname) = document.get_mut("hostname").and_then(Value::as_object_mut)
        && let Some(name) = hostname.remove("config")
    {
        hostname.entry("running").or_insert(name);
    }
    NetworkState::parse(document)
}

fn is_nothing(value: &Value) -> bool {
    value.is_null() || *value == json!([]) || *value == json!({})
}

/// Keeps the profiles of interfaces that are to be absent from coming up again by themselves.
pub(super) async fn hold_back_what_is_absent(
    service: &Service,
    desired: &NetworkState,
) -> Result<(), HostError> {
    let absent: Vec<&str> = desired.interfaces().filter(|one| is_absent(one)).map(interface_name).collect();
    if absent.is_empty() {
        return Ok(());
    }
    let profiles = service.profiles().await?;
    for profile in absent.iter().flat_map(|name| that_bring_up(&profiles, name)) {
        service.hold_back(profile).await?;
    }
    Ok(())
}

pub(super) fn is_absent(interface: &Map<String, Value>) -> bool {
    interface.get("state").and_then(Value::as_str) == Some("absent")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(document: Value) -> Result<Value, String> {
        let desired = NetworkState::parse(document).expect("a state");
        super::document(&desired).map(NetworkState::into_value).map_err(|error| error.to_string())
    }

    #[test]
    fn what_would_be_written_to_disk_is_refused_with_its_place() {
        for (key, value) in
            [("alt-names", json!([{ "name": "x" }])), ("dispatch", json!({ "post-activation": "x" }))]
        {
            let mut interface = json!({ "name": "eth1" });
            interface[key] = value;
            let why = kept(json!({ "interfaces": [interface] })).expect_err("it is refused");
            assert!(why.starts_with(&format!("interfaces[eth1].{key}: ")) && why.contains("/etc/"), "{why}");
        }
        let harmless = json!({ "interfaces": [{ "name": "eth1", "alt-names": [], "mtu": 1400 }] });
        assert_eq!(kept(harmless.clone()), Ok(harmless));
    }

    #[test]
    fn the_name_of_the_machine_is_the_one_in_force() {
        for (given, expected) in [
            (json!({ "config": "a" }), json!({ "running": "a" })),
            (json!({ "running": "b", "config": "a" }), json!({ "running": "b" })),
            (json!({ "running": "b" }), json!({ "running": "b" })),
        ] {
            assert_eq!(kept(json!({ "hostname": given })), Ok(json!({ "hostname": expected })));
        }
    }
}
