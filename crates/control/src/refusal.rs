//! Why a policy is refused. The webhook checks it at admission. The leader checks it again, for policies that were stored
//! while no webhook was running, and reports the same messages.

use std::{collections::HashSet, time::Duration};

use knmstate_api::NodeNetworkConfigurationPolicySpec;
use knmstate_core::{Candidate, NodeFacts, objection, selects, templates};

use crate::known_checks::KnownChecks;

/// nmstate has panicked.
pub(crate) const CANNOT_BE_CHECKED: &str =
    "cannot be checked: nmstate has failed on it; see the controller's log";
/// The longest message, in characters. It quotes the policy, which may have words of any length.
const MAX_MESSAGE: usize = 4096;

pub(crate) fn takes_too_long(limit: Duration) -> String {
    format!("takes too long to check: more than {} s; split it into several policies", limit.as_secs())
}

/// Why a policy is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Its spec is invalid.
    Invalid(String),
    /// It conflicts with other policies, or does not fit the nodes.
    Forbidden(String),
}

impl Refusal {
    pub(crate) fn into_message(self) -> String {
        match self {
            Self::Invalid(message) | Self::Forbidden(message) => message,
        }
    }

    fn shortened(self) -> Self {
        let shorten = |mut message: String| {
            if let Some((end, _)) = message.char_indices().nth(MAX_MESSAGE) {
                message.truncate(end);
                message.push('…');
            }
            message
        };
        match self {
            Self::Invalid(message) => Self::Invalid(shorten(message)),
            Self::Forbidden(message) => Self::Forbidden(shorten(message)),
        }
    }
}

/// Checks that need only the spec.
pub(crate) fn refusal_of_spec(spec: &NodeNetworkConfigurationPolicySpec) -> Option<Refusal> {
    templates::dangling(spec).or_else(|| parse_error(spec)).map(Refusal::Invalid).map(Refusal::shortened)
}

/// All checks: the spec, conflicts with `others`, and the values of each node.
pub(crate) fn refusal_in_cluster(
    candidate: &Candidate<'_>,
    others: &[Candidate<'_>],
    nodes: &[NodeFacts<'_>],
    known: &KnownChecks,
) -> Option<Refusal> {
    known
        .refusal_of_spec(candidate.spec)
        .or_else(|| objection(candidate, others, nodes).map(Refusal::Forbidden))
        .or_else(|| parse_error_on_a_node(candidate.spec, nodes).map(Refusal::Invalid))
        .map(Refusal::shortened)
}

/// The error of nmstate for the policy before its templates are rendered.
fn parse_error(spec: &NodeNetworkConfigurationPolicySpec) -> Option<String> {
    let nothing = knmstate_api::State::default();
    let desired = spec.desired_state.as_ref().unwrap_or(&nothing);
    knmstate_offline::check(&desired.0, &spec.capture).err().map(|error| in_policy(&error))
}

/// The first error of nmstate for the policy as it is rendered for a node.
fn parse_error_on_a_node(
    spec: &NodeNetworkConfigurationPolicySpec,
    nodes: &[NodeFacts<'_>],
) -> Option<String> {
    if templates::is_same_everywhere(spec) {
        return None;
    }
    let mut seen = HashSet::new();
    nodes.iter().filter(|node| selects(spec, node.labels)).find_map(|node| {
        let state = templates::render(spec, node.name, node.labels).ok()??;
        if !seen.insert(serde_json::to_string(&state).unwrap_or_default()) {
            return None;
        }
        let error = knmstate_offline::check(&state.0, &spec.capture).err()?;
        Some(format!("node {:?}: {}", node.name, in_policy(&error)))
    })
}

fn in_policy(error: &knmstate_document::InvalidDocument) -> String {
    let message = error.to_string();
    if message.starts_with("capture") { message } else { format!("desiredState: {message}") }
}
