//! Why a host refused or failed, by what the caller and the user can do about it.

use std::time::Duration;

use knmstate_document::{InvalidDocument, Place};
use knmstate_offline::captures::CaptureError;

use crate::host::{Checkpoint, Operation};
use crate::set_aside::SetAside;

/// Why the machine did not do what was asked.
///
/// A variant is a remedy, not a source: two failures that call for the same action are the same variant. No variant
/// carries a secret: values that may be one are hidden before they get here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The document can never be applied as it is written. Nothing was touched.
    #[error("{place}: {why}")]
    Invalid { place: Place, why: String },

    /// The document is fine, but this machine (its kernel, its NetworkManager) lacks what it asks for. Nothing was
    /// touched.
    #[error("{place}: this machine cannot do {what}: {why}")]
    Unsupported { place: Place, what: String, why: String },

    /// The document asks for something that the admin of this machine has not allowed. Nothing was touched.
    #[error("{place}: {why}")]
    NotAllowed { place: Place, why: String },

    /// Something that the document depends on does not exist yet, or is not configured as required. Another change, or
    /// the admin with a cable, may provide it.
    /// Nothing was touched.
    #[error("{place}: {what}")]
    Missing { place: Place, what: String },

    /// Another change is open on this host, ours or another program's; there is never more than one.
    #[error("another change of the network is still open on this machine (checkpoint {checkpoint}, {})", guard_text(*.rolls_back_in))]
    Busy { checkpoint: Checkpoint, rolls_back_in: Option<Duration> },

    /// The service that configures the network does not answer.
    #[error("NetworkManager is not available: {why}")]
    Unavailable { why: String },

    /// The machine did not finish in time.
    #[error("{operation} was not finished after {after:?}")]
    Timeout { operation: Operation, after: Duration },

    /// The change was applied and what came out is not what was asked for. It was rolled back.
    #[error(
        "{place}: after applying, {found} was found where {wanted} was wanted; the change was rolled back"
    )]
    VerificationFailed { place: Place, wanted: String, found: String },

    /// The machine tried and failed, for a reason of its own. It was rolled back.
    #[error("{place}: the machine failed to apply it: {why}")]
    Failed { place: Place, why: String },

    /// A bug: the code that did this has panicked. The panic's own message is not part of this, because it may quote a
    /// secret. After [`begin`](crate::Host::begin), a change may be open.
    #[error("an internal error (a panic) has ended {during}")]
    Panicked { during: String },

    /// We are not allowed to do this on the machine.
    #[error("not permitted: {why}")]
    PermissionDenied { why: String },

    /// There is no unsettled change with this checkpoint: its time passed and the machine rolled back by itself, it
    /// was settled before, or the service that held it was restarted.
    #[error("checkpoint {checkpoint} does not exist any more")]
    CheckpointGone { checkpoint: Checkpoint },

    /// The checkpoint was made by another program; it is not ours to commit or to roll back.
    #[error("checkpoint {checkpoint} was made by another program")]
    NotOurs { checkpoint: Checkpoint },

    /// An earlier change cannot be rolled back. It was given up, so that it does not block others any more.
    #[error("{0}")]
    SetAside(SetAside),
}

impl HostError {
    /// Whether the same request may succeed later without a change to it.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Missing { .. }
            | Self::Busy { .. }
            | Self::Unavailable { .. }
            | Self::Timeout { .. }
            | Self::VerificationFailed { .. }
            | Self::Failed { .. }
            | Self::Panicked { .. }
            | Self::SetAside(_) => true,
            Self::Invalid { .. }
            | Self::Unsupported { .. }
            | Self::NotAllowed { .. }
            | Self::PermissionDenied { .. }
            | Self::CheckpointGone { .. }
            | Self::NotOurs { .. } => false,
        }
    }

    /// What a person can do about it, as one sentence.
    pub fn advice(&self) -> &'static str {
        match self {
            Self::Invalid { .. } => "Correct the named key and apply again.",
            Self::Unsupported { .. } => {
                "Leave it out on this node, or give the node a kernel and a NetworkManager that support it."
            }
            Self::NotAllowed { .. } => "Remove the named key, or allow it.",
            Self::Missing { .. } => {
                "Correct the named key, or change what it depends on, in this document or in another one; it is tried again."
            }
            Self::Busy { .. } => {
                "It is tried again once the other change is settled; if it never is, look for another program that configures the network of this node."
            }
            Self::Unavailable { .. } => "Check that NetworkManager runs on the node; it is tried again.",
            Self::Timeout { .. } => {
                "Check the node's load and the log of NetworkManager; allow more time if the change is a large one."
            }
            Self::VerificationFailed { .. } => {
                "Check whether the driver takes this value and whether another program changes it back."
            }
            Self::Failed { .. } => {
                "Look into the log of NetworkManager on the node at the time of the failure."
            }
            Self::Panicked { .. } => {
                "This is a bug: report it with the place that the log of the agent names at that time."
            }
            Self::PermissionDenied { .. } => {
                "Run the agent as root, with the capabilities and host paths that its manifest asks for."
            }
            Self::CheckpointGone { .. } => {
                "Read the state of the node: it is as before, unless NetworkManager was restarted meanwhile."
            }
            Self::NotOurs { .. } => "Wait until the other program has settled it.",
            Self::SetAside(_) => {
                "Compare the network of the node with the state before the change, which is in that file; correct what differs by a policy or by hand; then remove the file."
            }
        }
    }

    /// The part of the document that is meant, where one is.
    pub fn place(&self) -> Option<&Place> {
        match self {
            Self::Invalid { place, .. }
            | Self::Unsupported { place, .. }
            | Self::NotAllowed { place, .. }
            | Self::Missing { place, .. }
            | Self::VerificationFailed { place, .. }
            | Self::Failed { place, .. } => Some(place),
            Self::Busy { .. }
            | Self::Unavailable { .. }
            | Self::Timeout { .. }
            | Self::Panicked { .. }
            | Self::PermissionDenied { .. }
            | Self::CheckpointGone { .. }
            | Self::NotOurs { .. }
            | Self::SetAside(_) => None,
        }
    }

    pub fn invalid(place: Place, why: impl Into<String>) -> Self {
        Self::Invalid { place, why: why.into() }
    }
}

fn guard_text(rolls_back_in: Option<Duration>) -> String {
    match rolls_back_in {
        Some(left) => format!("rolled back in {left:?} unless it is settled before"),
        None => "left behind; it has to be rolled back first".to_owned(),
    }
}

impl From<InvalidDocument> for HostError {
    fn from(InvalidDocument { place, why }: InvalidDocument) -> Self {
        Self::Invalid { place, why }
    }
}

impl From<CaptureError> for HostError {
    fn from(error: CaptureError) -> Self {
        match error {
            CaptureError::Invalid(invalid) => invalid.into(),
            CaptureError::UnreadableState { why } => Self::Failed { place: Place::document(), why },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_says_what_is_wrong_whether_to_retry_and_where() {
        let checkpoint = Checkpoint::new("7");
        let place = Place::interface("eth1").below("mtu");
        let table = [
            (HostError::invalid(place.clone(), "too big"), false, "interfaces[eth1].mtu: too big"),
            (
                HostError::Unsupported { place: place.clone(), what: "VRF".into(), why: "no module".into() },
                false,
                "interfaces[eth1].mtu: this machine cannot do VRF: no module",
            ),
            (
                HostError::Missing { place: place.clone(), what: "there is no bond0".into() },
                true,
                "interfaces[eth1].mtu: there is no bond0",
            ),
            (
                HostError::Busy {
                    checkpoint: checkpoint.clone(),
                    rolls_back_in: Some(Duration::from_secs(3)),
                },
                true,
                "another change of the network is still open on this machine (checkpoint 7, rolled back in 3s unless it is settled before)",
            ),
            (
                HostError::Busy { checkpoint: checkpoint.clone(), rolls_back_in: None },
                true,
                "another change of the network is still open on this machine (checkpoint 7, left behind; it has to be rolled back first)",
            ),
            (
                HostError::Unavailable { why: "stopped".into() },
                true,
                "NetworkManager is not available: stopped",
            ),
            (
                HostError::Timeout { operation: Operation::Begin, after: Duration::from_secs(2) },
                true,
                "applying was not finished after 2s",
            ),
            (
                HostError::VerificationFailed {
                    place: place.clone(),
                    wanted: "9000".into(),
                    found: "1500".into(),
                },
                true,
                "interfaces[eth1].mtu: after applying, 1500 was found where 9000 was wanted; the change was rolled back",
            ),
            (
                HostError::Failed { place, why: "no carrier".into() },
                true,
                "interfaces[eth1].mtu: the machine failed to apply it: no carrier",
            ),
            (
                HostError::Panicked { during: Operation::Begin.to_string() },
                true,
                "an internal error (a panic) has ended applying",
            ),
            (HostError::PermissionDenied { why: "not root".into() }, false, "not permitted: not root"),
            (
                HostError::CheckpointGone { checkpoint: checkpoint.clone() },
                false,
                "checkpoint 7 does not exist any more",
            ),
            (HostError::NotOurs { checkpoint }, false, "checkpoint 7 was made by another program"),
            (
                HostError::NotAllowed {
                    place: Place::interface("eth1").below("dispatch"),
                    why: "scripts".into(),
                },
                false,
                "interfaces[eth1].dispatch: scripts",
            ),
            (
                HostError::SetAside(SetAside {
                    time: jiff::Timestamp::UNIX_EPOCH,
                    interfaces: vec!["eth1".into(), "br1".into()],
                    why: "no such bond".into(),
                    file: "/j/set-aside.json".into(),
                }),
                true,
                "a change of eth1, br1 cannot be rolled back and was given up: no such bond; what is known about it is in /j/set-aside.json",
            ),
        ];
        for (error, retryable, text) in table {
            assert_eq!(error.to_string(), text);
            assert_eq!(error.is_retryable(), retryable, "{text}");
            assert!(error.advice().ends_with('.'), "{text}");
        }
    }
}
