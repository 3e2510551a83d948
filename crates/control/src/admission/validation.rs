//! Refusing a policy that can never work: one that nmstate does not understand, that refers to nothing, or that
//! contradicts another one.
//!
//! A policy that is stored already is not judged again unless its spec changes, so that whoever labels it, or finishes
//! its deletion, is not held responsible for it.

use std::collections::HashSet;

use knmstate_api::{NodeNetworkConfigurationPolicy, NodeNetworkConfigurationPolicySpec};
use knmstate_core::{
    objections::{Candidate, NodeFacts, objection},
    selection, templates,
};
use kube::core::admission::{AdmissionResponse, Operation};
use serde_json::Value;

use super::review::{Request, failed, object, refused};
use crate::catalogue::Catalogue;

const NOT_COMPARED: &str = "this policy was not compared with the others, because they are not known yet; the controller does it later";

/// Why a policy is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Refusal {
    /// It is wrong by itself.
    Invalid(String),
    /// It cannot stand here: beside the other policies, or on these nodes.
    Forbidden(String),
}

pub fn validated(request: &Request, catalogue: Option<&Catalogue>) -> AdmissionResponse {
    let response = AdmissionResponse::from(request);
    let is_asked = matches!(request.operation, Operation::Create | Operation::Update);
    if !is_asked
        || request.sub_resource.as_ref().is_some_and(|part| !part.is_empty())
        || is_same_spec(request)
    {
        return response;
    }
    let policy: NodeNetworkConfigurationPolicy = match serde_json::from_value(object(request)) {
        Ok(policy) => policy,
        Err(error) => return failed(response, &format!("the policy cannot be read: {error}")),
    };
    let name = policy.metadata.name.as_deref().unwrap_or(&request.name);
    match refusal(name, &policy.spec, catalogue) {
        Some(Refusal::Invalid(message)) => refused(response, 422, "Invalid", &message),
        Some(Refusal::Forbidden(message)) => refused(response, 403, "Forbidden", &message),
        None => {
            let mut response = response;
            response.warnings = catalogue.is_none().then(|| vec![NOT_COMPARED.to_owned()]);
            response
        }
    }
}

fn is_same_spec(request: &Request) -> bool {
    let spec = |object: &Option<kube::core::DynamicObject>| {
        object.as_ref().and_then(|object| object.data.get("spec").cloned())
    };
    request.operation == Operation::Update
        && request.old_object.is_some()
        && spec(&request.object).unwrap_or(Value::Null) == spec(&request.old_object).unwrap_or(Value::Null)
}

fn refusal(
    name: &str,
    spec: &NodeNetworkConfigurationPolicySpec,
    catalogue: Option<&Catalogue>,
) -> Option<Refusal> {
    if let Some(dangling) = templates::dangling(spec) {
        return Some(Refusal::Invalid(dangling));
    }
    if let Some(misunderstood) = misunderstood(spec) {
        return Some(Refusal::Invalid(misunderstood));
    }
    let catalogue = catalogue?;
    let nodes: Vec<NodeFacts<'_>> =
        catalogue.nodes.iter().map(|(name, labels)| NodeFacts { name, labels }).collect();
    let others: Vec<Candidate<'_>> = catalogue
        .policies
        .iter()
        .filter(|(other, policy)| *other != name && policy.metadata.deletion_timestamp.is_none())
        .map(|(name, policy)| Candidate { name, spec: &policy.spec })
        .collect();
    objection(&Candidate { name, spec }, &others, &nodes)
        .map(Refusal::Forbidden)
        .or_else(|| misunderstood_on_a_node(spec, &nodes).map(Refusal::Invalid))
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

#[cfg(test)]
mod tests;
