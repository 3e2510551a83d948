//! Why a policy cannot stand. Asked when it is admitted, and again by the leader for policies that came in while nobody
//! could be asked; so both say it in the same words.

use std::collections::HashSet;

use knmstate_api::NodeNetworkConfigurationPolicySpec;
use knmstate_core::{
    objections::{Candidate, NodeFacts, objection},
    selection, templates,
};

/// Why a policy is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is wrong by itself.
    Invalid(String),
    /// It cannot stand here: beside the other policies, or on these nodes.
    Forbidden(String),
}

impl Refusal {
    pub fn into_message(self) -> String {
        match self {
            Self::Invalid(message) | Self::Forbidden(message) => message,
        }
    }
}

/// What is wrong with a policy wherever it is.
pub fn refusal_by_itself(spec: &NodeNetworkConfigurationPolicySpec) -> Option<Refusal> {
    templates::dangling(spec).or_else(|| misunderstood(spec)).map(Refusal::Invalid)
}

/// The same, and what is wrong with it beside the `others` and on these nodes.
pub fn refusal_here(
    candidate: &Candidate<'_>,
    others: &[Candidate<'_>],
    nodes: &[NodeFacts<'_>],
) -> Option<Refusal> {
    refusal_by_itself(candidate.spec)
        .or_else(|| objection(candidate, others, nodes).map(Refusal::Forbidden))
        .or_else(|| misunderstood_on_a_node(candidate.spec, nodes).map(Refusal::Invalid))
}

/// What nmstate says of the policy as it is written.
fn misunderstood(spec: &NodeNetworkConfigurationPolicySpec) -> Option<String> {
    let nothing = knmstate_api::State::default();
    let desired = spec.desired_state.as_ref().unwrap_or(&nothing);
    knmstate_host::check(&desired.0, &spec.capture).err().map(|error| in_policy(&error))
}

/// What nmstate says of the policy with the values of its nodes filled in.
fn misunderstood_on_a_node(
    spec: &NodeNetworkConfigurationPolicySpec,
    nodes: &[NodeFacts<'_>],
) -> Option<String> {
    if templates::is_same_everywhere(spec) {
        return None;
    }
    let mut seen = HashSet::new();
    nodes.iter().filter(|node| selection::selects(spec, node.labels)).find_map(|node| {
        let state = templates::render(spec, node.name, node.labels).ok()??;
        if !seen.insert(serde_json::to_string(&state).unwrap_or_default()) {
            return None;
        }
        let error = knmstate_host::check(&state.0, &spec.capture).err()?;
        Some(format!("node {:?}: {}", node.name, in_policy(&error)))
    })
}

fn in_policy(error: &knmstate_host::HostError) -> String {
    let said = error.to_string();
    if said.starts_with("capture") { said } else { format!("desiredState: {said}") }
}
