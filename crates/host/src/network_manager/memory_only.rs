//! Changes that are kept in NetworkManager's memory and not on disk.
//!
//! NetworkManager keeps such profiles in `/run`, where they survive its restart but not a reboot. A profile on disk
//! stays as it was, and is hidden by the one in `/run`. nmstate then treats an absent interface as one that is down: its
//! profile stays. So that the next start of NetworkManager does not activate it, its activation is prevented, also in
//! memory, and so is that of its ports.
//!
//! What nmstate writes to disk itself, outside NetworkManager's profiles, is refused. Two things are kept on disk all
//! the same: name servers for the whole machine (NetworkManager's own configuration), and Open vSwitch's database.

use knmstate_document::{NetworkState, Place, interface_name, is_absent};
use serde_json::{Value, json};

use super::profiles::that_bring_up;
use super::service::Service;
use crate::error::HostError;

/// Keys of an interface that nmstate writes to files itself, and the directory of these files.
const WRITTEN_TO_DISK: [(&str, &str); 2] =
    [("alt-names", "/etc/systemd/network"), ("dispatch", "/etc/NetworkManager/dispatcher.d")];

/// The document as it has to be applied in memory. Fails if it has a key that nmstate keeps on disk.
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
    Ok(NetworkState::parse(document)?)
}

fn is_nothing(value: &Value) -> bool {
    value.is_null() || *value == json!([]) || *value == json!({})
}

/// Prevents the activation of the profiles of absent interfaces.
pub(super) async fn keep_absent_profiles_inactive(
    service: &Service,
    desired: &NetworkState,
) -> Result<(), HostError> {
    let absent: Vec<&str> = desired.interfaces().filter(|one| is_absent(one)).map(interface_name).collect();
    if absent.is_empty() {
        return Ok(());
    }
    let profiles = service.profiles().await?;
    for profile in absent.iter().flat_map(|name| that_bring_up(&profiles, name)) {
        service.prevent_activation(profile).await?;
    }
    Ok(())
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
