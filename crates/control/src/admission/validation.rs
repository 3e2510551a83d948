//! Refusing a policy that can never work: one that nmstate does not understand, that refers to nothing, or that
//! contradicts another one.
//!
//! A policy that is stored already is not judged again unless its spec changes, so that whoever labels it, or finishes
//! its deletion, is not held responsible for it.

use knmstate_api::{NodeNetworkConfigurationPolicy, NodeNetworkConfigurationPolicySpec};
use knmstate_core::objections::{Candidate, NodeFacts};
use kube::core::admission::{AdmissionResponse, Operation};
use serde_json::Value;

use super::review::{Request, failed, object, refused};
use crate::{
    catalogue::Catalogue,
    judgement::{Refusal, refusal_by_itself, refusal_here},
};

const NOT_COMPARED: &str = "this policy was not compared with the others, because they are not known yet; the controller does it later";

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
    let candidate = Candidate { name, spec };
    let Some(catalogue) = catalogue else { return refusal_by_itself(spec) };
    let nodes: Vec<NodeFacts<'_>> =
        catalogue.nodes.iter().map(|(name, labels)| NodeFacts { name, labels }).collect();
    let others: Vec<Candidate<'_>> = catalogue
        .policies
        .iter()
        .filter(|(other, policy)| *other != name && policy.metadata.deletion_timestamp.is_none())
        .map(|(name, policy)| Candidate { name, spec: &policy.spec })
        .collect();
    refusal_here(&candidate, &others, &nodes)
}

#[cfg(test)]
mod tests;
