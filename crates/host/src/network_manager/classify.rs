//! Translates the errors of nmstate and D-Bus to ours; nothing else does.
//!
//! nmstate's kinds are no guide (`Bug` covers a NetworkManager that is down as well as a conflict of checkpoints), so
//! the texts decide first. Every text that is looked for is in the table of the tests.

use knmstate_document::{Place, secrets::Scrubber};
use nmstate::{ErrorKind, NmstateError};

use crate::error::HostError;
use crate::host::Checkpoint;

/// What was being done when it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallPhase {
    Reading,
    /// Nothing was touched yet.
    Checking,
    Applying,
}

/// `interfaces` are the names in the document; a text that mentions one is about it.
pub(super) fn nmstate(
    error: &NmstateError,
    stage: CallPhase,
    interfaces: &[String],
    scrubber: &Scrubber,
) -> HostError {
    let text = scrubber.clean(error.msg());
    if is_service_down(&text) {
        return HostError::Unavailable { why: without_kind(&text).to_owned() };
    }
    if text.starts_with("CheckpointConflict") {
        // The caller can find out whose it is; this text does not say.
        return HostError::Busy { checkpoint: Checkpoint::new("of another program"), rolls_back_in: None };
    }
    let place = place_in(&text, interfaces);
    match error.kind() {
        ErrorKind::VerificationError | ErrorKind::KernelIntegerRoundedError => {
            verification(&text, interfaces)
        }
        ErrorKind::InvalidArgument | ErrorKind::PolicyError => HostError::invalid(place, text),
        ErrorKind::NotImplementedError | ErrorKind::NotSupportedError | ErrorKind::DependencyError => {
            HostError::Unsupported { place, what: "what is asked for".to_owned(), why: text }
        }
        ErrorKind::PermissionError => HostError::PermissionDenied { why: text },
        _ if stage == CallPhase::Reading => HostError::Unavailable { why: text },
        _ => HostError::Failed { place, why: text },
    }
}

/// An error of our own conversation with NetworkManager.
pub(super) fn bus(error: &zbus::Error) -> HostError {
    let why = error.to_string();
    match error {
        zbus::Error::MethodError(name, ..) if name.ends_with(".PermissionDenied") => {
            HostError::PermissionDenied { why }
        }
        zbus::Error::FDO(error) if matches!(**error, zbus::fdo::Error::AccessDenied(_)) => {
            HostError::PermissionDenied { why }
        }
        _ => HostError::Unavailable { why },
    }
}

/// Whether the object of a call does not exist, or the NetworkManager that had it.
pub(super) fn is_settled_or_forgotten(error: &zbus::Error) -> bool {
    // NetworkManager's word for a checkpoint that it does not have.
    const UNKNOWN_CHECKPOINT: &str = "org.freedesktop.NetworkManager.InvalidArguments";
    matches!(error, zbus::Error::MethodError(name, ..) if name.as_str() == UNKNOWN_CHECKPOINT)
        || is_no_such_object(error)
        || is_owner_gone(error)
}

/// Whether the object that was spoken to does not exist, or not any more.
pub(super) fn is_no_such_object(error: &zbus::Error) -> bool {
    match error {
        zbus::Error::MethodError(name, ..) => matches!(
            name.as_str(),
            "org.freedesktop.NetworkManager.UnknownDevice"
                | "org.freedesktop.DBus.Error.UnknownObject"
                | "org.freedesktop.DBus.Error.UnknownMethod"
        ),
        // NetworkManager has no object of which it would know the method.
        zbus::Error::FDO(error) => {
            matches!(**error, zbus::fdo::Error::UnknownObject(_) | zbus::fdo::Error::UnknownMethod(_))
        }
        _ => false,
    }
}

/// Whether the NetworkManager that is spoken to, by the name that is never given again, does not run any more.
fn is_owner_gone(error: &zbus::Error) -> bool {
    match error {
        zbus::Error::MethodError(name, ..) => matches!(
            name.as_str(),
            "org.freedesktop.DBus.Error.ServiceUnknown" | "org.freedesktop.DBus.Error.NameHasNoOwner"
        ),
        zbus::Error::FDO(error) => {
            matches!(**error, zbus::fdo::Error::ServiceUnknown(_) | zbus::fdo::Error::NameHasNoOwner(_))
        }
        _ => false,
    }
}

fn is_service_down(text: &str) -> bool {
    text.starts_with("DbusConnectionError")
        || text.contains("org.freedesktop.DBus.Error.ServiceUnknown")
        || text.contains("org.freedesktop.DBus.Error.NameHasNoOwner")
        || text.contains("org.freedesktop.DBus.Error.NoReply")
}

/// The text without the name of nmstate's own kind in front of it.
fn without_kind(text: &str) -> &str {
    text.strip_prefix("DbusConnectionError").map_or(text, |rest| rest.trim_start_matches(':').trim_start())
}

fn verification(text: &str, interfaces: &[String]) -> HostError {
    let quoted = |after: &str| -> Option<&str> {
        let (_, rest) = text.split_once(after)?;
        Some(rest.split_once("', ").map_or(rest, |(value, _)| value).trim_end_matches('\''))
    };
    let parts = text
        .strip_prefix("Verification failure: ")
        .and_then(|rest| rest.split_once(" desire '"))
        .map(|(place, _)| place);
    let (wanted, found) = match (quoted("desire '"), quoted("current '")) {
        (Some(wanted), Some(found)) => (wanted.to_owned(), found.to_owned()),
        _ => ("what the document says".to_owned(), format!("something else ({text})")),
    };
    let place = match parts.and_then(|place| interface_and_key(place, interfaces)) {
        Some(place) => place,
        None => place_in(text, interfaces),
    };
    HostError::VerificationFailed { place, wanted, found }
}

/// nmstate writes `eth1.interface.ipv4.address[0].ip`.
fn interface_and_key(place: &str, interfaces: &[String]) -> Option<Place> {
    let (name, key) = place.split_once(".interface")?;
    interfaces.iter().any(|known| known == name).then(|| {
        let key = key.trim_start_matches('.');
        if key.is_empty() { Place::interface(name) } else { Place::interface(name).below(key) }
    })
}

/// The interface that a text mentions; the longest name wins, so that `eth1.100` is not taken for `eth1`.
fn place_in(text: &str, interfaces: &[String]) -> Place {
    let is_part_of_a_name = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_mentioned = |name: &str| {
        text.match_indices(name).any(|(start, _)| {
            let before = text[..start].chars().next_back();
            let mut after = text[start + name.len()..].chars();
            let (next, second) = (after.next(), after.next());
            let ends = match next {
                // The end of a sentence is not the beginning of a VLAN.
                Some('.') => second.is_none_or(|c| !is_part_of_a_name(c)),
                next => next.is_none_or(|c| !is_part_of_a_name(c)),
            };
            ends && before.is_none_or(|c| !is_part_of_a_name(c))
        })
    };
    let longest = interfaces.iter().filter(|name| is_mentioned(name)).max_by_key(|name| name.len());
    match longest {
        Some(name) => Place::interface(name),
        None if text.to_ascii_lowercase().contains("route rule") => Place::key("route-rules.config"),
        None if text.to_ascii_lowercase().contains("route") => Place::key("routes.config"),
        None if text.contains("DNS") => Place::key("dns-resolver.config"),
        None => Place::document(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_object_that_is_gone_is_distinguished_from_a_service_that_is_gone() {
        use zbus::fdo::Error;
        // The first is NetworkManager's error for a device that has just been removed.
        for (error, object, service) in [
            (Error::UnknownMethod("Object does not exist at path /6".to_owned()), true, false),
            (Error::UnknownObject(String::new()), true, false),
            (Error::ServiceUnknown(String::new()), false, true),
            (Error::NameHasNoOwner(String::new()), false, true),
            (Error::NoReply(String::new()), false, false),
        ] {
            let error = zbus::Error::FDO(Box::new(error));
            assert_eq!(is_no_such_object(&error), object, "{error}");
            assert_eq!(is_owner_gone(&error), service, "{error}");
            assert_eq!(is_settled_or_forgotten(&error), object || service, "{error}");
        }
    }

    /// Errors of nmstate 2.2.62, and what they mean to us. Seen on a node with NetworkManager 1.42: the service that
    /// is down, the missing interface, the unknown port, the route without IPv4, Open vSwitch. The others are written
    /// after nmstate's source, and the last one is made up, for its secret.
    #[test]
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn errors_of_nmstate_become_ours() {
        use ErrorKind::{
            Bug, DependencyError, InvalidArgument, NotImplementedError, PermissionError, PluginFailure,
            VerificationError,
        };
        let table = [
            (
                (
                    Bug,
                    CallPhase::Reading,
                    "DbusConnectionError: org.freedesktop.DBus.Error.ServiceUnknown: The name org.freedesktop.NetworkManager was not provided by any .service files",
                ),
                "NetworkManager is not available: org.freedesktop.DBus.Error.ServiceUnknown: The name org.freedesktop.NetworkManager was not provided by any .service files",
                true,
            ),
            (
                (
                    Bug,
                    CallPhase::Applying,
                    "CheckpointConflict: Another checkpoint exists, please wait its timeout or destroy it",
                ),
                "another change of the network is still open on this machine (checkpoint of another program, left behind; it has to be rolled back first)",
                true,
            ),
            (
                (InvalidArgument, CallPhase::Checking, "Ethernet interface eth9 does not exists"),
                "interfaces[eth9]: Ethernet interface eth9 does not exists",
                false,
            ),
            (
                (
                    InvalidArgument,
                    CallPhase::Checking,
                    "Controller interface br1 is holding unknown port eth9",
                ),
                "interfaces[eth9]: Controller interface br1 is holding unknown port eth9",
                false,
            ),
            (
                (
                    InvalidArgument,
                    CallPhase::Checking,
                    "The next hop interface of desired Route 'destination: 10.5.0.0/16' has been marked as IPv4 disabled",
                ),
                "routes.config: The next hop interface of desired Route 'destination: 10.5.0.0/16' has been marked as IPv4 disabled",
                false,
            ),
            (
                (
                    NotImplementedError,
                    CallPhase::Checking,
                    "Route with empty next hop interface is not supported: x",
                ),
                "routes.config: this machine cannot do what is asked for: Route with empty next hop interface is not supported: x",
                false,
            ),
            (
                (
                    DependencyError,
                    CallPhase::Applying,
                    "Please upgrade NetworkManager for specified interface type: Connection(InvalidSetting):eth1.100: x",
                ),
                "interfaces[eth1.100]: this machine cannot do what is asked for: Please upgrade NetworkManager for specified interface type: Connection(InvalidSetting):eth1.100: x",
                false,
            ),
            (
                (PermissionError, CallPhase::Applying, "Manager(PermissionDenied):Not authorized"),
                "not permitted: Manager(PermissionDenied):Not authorized",
                false,
            ),
            (
                (
                    PluginFailure,
                    CallPhase::Applying,
                    "Desired state contains OVS interfaces, but not able to connect OVS daemon at socket /run/openvswitch/db.sock",
                ),
                "the document: the machine failed to apply it: Desired state contains OVS interfaces, but not able to connect OVS daemon at socket /run/openvswitch/db.sock",
                true,
            ),
            (
                (
                    VerificationError,
                    CallPhase::Applying,
                    "Verification failure: eth1.interface.ipv4.forwarding desire 'true', current 'false'",
                ),
                "interfaces[eth1].ipv4.forwarding: after applying, false was found where true was wanted; the change was rolled back",
                true,
            ),
            (
                (VerificationError, CallPhase::Applying, "Failed to find desired interface eth9 Ethernet"),
                "interfaces[eth9]: after applying, something else (Failed to find desired interface eth9 Ethernet) was found where what the document says was wanted; the change was rolled back",
                true,
            ),
            (
                (Bug, CallPhase::Applying, "Manager(Failed): eth1: password hush refused"),
                "interfaces[eth1]: the machine failed to apply it: Manager(Failed): eth1: password (a secret) refused",
                true,
            ),
        ];
        let interfaces = ["eth1", "eth1.100", "eth9"].map(str::to_owned);
        let mut scrubber = Scrubber::default();
        scrubber.learn(&json!({ "psk": "hush" }));
        for ((kind, stage, text), expected, retry) in table {
            let error = NmstateError::new(kind, text.to_owned());
            let ours = nmstate(&error, stage, &interfaces, &scrubber);
            assert_eq!(ours.to_string(), expected, "{text}");
            assert_eq!(ours.is_retryable(), retry, "{text}");
        }
    }

    #[test]
    fn a_vlan_is_not_taken_for_its_base_nor_a_sentence_for_a_vlan() {
        let interfaces = ["eth1", "eth1.100"].map(str::to_owned);
        for (text, place) in [
            ("eth1.100 failed", "interfaces[eth1.100]"),
            ("it was eth1.", "interfaces[eth1]"),
            ("eth1: failed", "interfaces[eth1]"),
            ("veth1 and eth10 failed", "the document"),
            ("Failed to apply DNS config", "dns-resolver.config"),
            ("Desired route rule x not found after apply", "route-rules.config"),
        ] {
            assert_eq!(place_in(text, &interfaces).to_string(), place, "{text}");
        }
    }
}
