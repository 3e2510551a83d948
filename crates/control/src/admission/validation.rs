//! Refuses a policy that can never work: one that nmstate cannot parse, that refers to a missing capture or value, or
//! that conflicts with another policy.
//!
//! A stored policy is validated again only when its spec changes. Otherwise a client that labels it, or that finishes its
//! deletion, would get errors about a spec that it did not write.

use knmstate_api::{NodeNetworkConfigurationPolicy, NodeNetworkConfigurationPolicySpec};
use knmstate_core::{Candidate, NodeFacts};
use kube::core::admission::{AdmissionResponse, Operation};
use serde_json::Value;

use super::review::{Request, failed, object, refused};
use crate::{
    admission::policy_index::PolicyIndex,
    known_checks::KnownChecks,
    refusal::{Refusal, refusal_in_cluster},
};

pub(super) const NOT_COMPARED: &str = "this policy was not compared with the others, because the webhook has just started; the controller compares them later";

pub(super) fn validated(
    request: &Request,
    index: Option<&PolicyIndex>,
    known: &KnownChecks,
) -> AdmissionResponse {
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
    match refusal(name, &policy.spec, index, known) {
        Some(Refusal::Invalid(message)) => refused(response, 422, "Invalid", &message),
        Some(Refusal::Forbidden(message)) => refused(response, 403, "Forbidden", &message),
        None => {
            let mut response = response;
            response.warnings = index.is_none().then(|| vec![NOT_COMPARED.to_owned()]);
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
    index: Option<&PolicyIndex>,
    known: &KnownChecks,
) -> Option<Refusal> {
    let candidate = Candidate { name, spec };
    let Some(index) = index else { return known.refusal_of_spec(spec) };
    let nodes: Vec<NodeFacts<'_>> =
        index.nodes.iter().map(|(name, labels)| NodeFacts { name, labels }).collect();
    let others: Vec<Candidate<'_>> = index
        .policies
        .iter()
        .filter(|(other, policy)| *other != name && policy.metadata.deletion_timestamp.is_none())
        .map(|(name, policy)| Candidate { name, spec: &policy.spec })
        .collect();
    refusal_in_cluster(&candidate, &others, &nodes, known)
}

#[cfg(test)]
mod tests;
