//! The three mutations of kubernetes-nmstate's webhooks.

use jiff::Timestamp;
use json_patch::{AddOperation, Patch, PatchOperation, ReplaceOperation, jsonptr::PointerBuf};
use knmstate_api::{ConditionList, ConditionStatus, names};
use kube::core::admission::AdmissionResponse;
use serde_json::{Value, json};

use super::review::{Request, failed, object};

/// The conditions of a policy, in the order that users' tools rely on.
const CONDITIONS: [&str; 4] = ["Available", "Degraded", "Progressing", "Ignored"];

/// Empties the conditions in a written policy: users do not set them.
pub(super) fn without_conditions(request: &Request) -> AdmissionResponse {
    let object = object(request);
    let empty = has_no_conditions(&object);
    let emptied = ReplaceOperation { path: path(["status", "conditions"]), value: json!([]) };
    patched(request, if empty { Vec::new() } else { vec![PatchOperation::Replace(emptied)] })
}

/// Fills the conditions of a status that has none.
pub(super) fn with_conditions(request: &Request, now: Timestamp) -> AdmissionResponse {
    let object = object(request);
    if !has_no_conditions(&object) {
        let mut response = AdmissionResponse::from(request);
        "mutation not needed".clone_into(&mut response.result.message);
        return response;
    }
    let mut conditions = ConditionList::default();
    for condition in CONDITIONS {
        conditions.set(condition, ConditionStatus::Unknown, "", "", now);
    }
    let mut operations = Vec::new();
    if !object.get("status").is_some_and(Value::is_object) {
        operations.push(add(["status"], json!({})));
    }
    operations.push(add(["status", "conditions"], json!(conditions)));
    patched(request, operations)
}

/// Sets the annotation with the time of the write, in nanoseconds since 1970.
pub(super) fn with_timestamp(request: &Request, now: Timestamp) -> AdmissionResponse {
    let object = object(request);
    let mut operations = Vec::new();
    if !object.pointer("/metadata/annotations").is_some_and(Value::is_object) {
        operations.push(add(["metadata", "annotations"], json!({})));
    }
    let time = json!(now.as_nanosecond().to_string());
    operations.push(add(["metadata", "annotations", names::MUTATION_TIMESTAMP_ANNOTATION], time));
    patched(request, operations)
}

fn has_no_conditions(object: &Value) -> bool {
    object.pointer("/status/conditions").and_then(Value::as_array).is_none_or(Vec::is_empty)
}

fn add<const N: usize>(tokens: [&str; N], value: Value) -> PatchOperation {
    PatchOperation::Add(AddOperation { path: path(tokens), value })
}

fn path<const N: usize>(tokens: [&str; N]) -> PointerBuf {
    PointerBuf::from_tokens(tokens)
}

fn patched(request: &Request, operations: Vec<PatchOperation>) -> AdmissionResponse {
    let response = AdmissionResponse::from(request);
    if operations.is_empty() {
        return response;
    }
    match response.with_patch(Patch(operations)) {
        Ok(response) => response,
        Err(error) => failed(AdmissionResponse::from(request), &error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        admission::review::{
            Endpoint, respond,
            tests::{now, policy, review_of},
        },
        known_checks::KnownChecks,
    };

    /// The object with the patch of the response applied, and the message of the response.
    fn mutated(endpoint: Endpoint, object: &Value) -> (Value, String) {
        let body = review_of("admission.k8s.io/v1", "UPDATE", object, object);
        let response = respond(endpoint, &body, None, &KnownChecks::default(), now())
            .expect("a review")
            .response
            .expect("a response");
        assert!(response.allowed);
        let mut object = object.clone();
        if let Some(patch) = response.patch {
            let patch: Patch = serde_json::from_slice(&patch).expect("a patch");
            json_patch::patch(&mut object, &patch).expect("a patch that fits");
        }
        (object, response.result.message)
    }

    fn with(key: &str, value: Value) -> Value {
        let mut policy = policy(&json!({}));
        policy[key] = value;
        policy
    }

    #[test]
    fn conditions_that_a_user_writes_are_emptied() {
        for (status, expected) in [
            (
                json!({ "conditions": [{ "type": "Available", "status": "True" }], "x": 1 }),
                json!({ "conditions": [], "x": 1 }),
            ),
            (json!({ "conditions": [] }), json!({ "conditions": [] })),
            (json!({}), json!({})),
        ] {
            assert_eq!(mutated(Endpoint::MutatePolicy, &with("status", status)).0["status"], expected);
        }
        let bare = policy(&json!({}));
        assert_eq!(mutated(Endpoint::MutatePolicy, &bare).0, bare);
    }

    #[test]
    fn an_empty_status_gets_its_four_conditions() {
        for object in
            [policy(&json!({})), with("status", json!(null)), with("status", json!({ "conditions": [] }))]
        {
            let (object, message) = mutated(Endpoint::MutateStatus, &object);
            let conditions = object["status"]["conditions"].as_array().expect("conditions");
            let types: Vec<_> = conditions.iter().map(|condition| condition["type"].as_str()).collect();
            assert_eq!(types, ["Available", "Degraded", "Progressing", "Ignored"].map(Some));
            assert!(conditions.iter().all(|condition| condition["status"] == "Unknown"), "{conditions:?}");
            assert_eq!(message, "");
        }
        let known = with("status", json!({ "conditions": [{ "type": "Available", "status": "True" }] }));
        assert_eq!(mutated(Endpoint::MutateStatus, &known), (known, "mutation not needed".to_owned()));
    }

    #[test]
    fn the_time_of_writing_is_annotated() {
        let known =
            json!({ "name": "p", "annotations": { "a": "b", names::MUTATION_TIMESTAMP_ANNOTATION: "1" } });
        for object in [policy(&json!({})), with("metadata", known.clone())] {
            let (object, _) = mutated(Endpoint::MutateTimestamp, &object);
            assert_eq!(
                object["metadata"]["annotations"][names::MUTATION_TIMESTAMP_ANNOTATION],
                "1700000000123456789"
            );
        }
        let (kept, _) = mutated(Endpoint::MutateTimestamp, &with("metadata", known));
        assert_eq!(kept["metadata"]["annotations"]["a"], "b");
    }
}
