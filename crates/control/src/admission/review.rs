//! A question of the API server, and the answer to it.

use jiff::Timestamp;
use kube::core::{
    DynamicObject, Status,
    admission::{AdmissionRequest, AdmissionResponse, AdmissionReview},
};
use serde_json::Value;

use super::{mutation, validation};
use crate::catalogue::Catalogue;

/// A request as it comes in, about an object whose kind is known by the path.
pub type Request = AdmissionRequest<DynamicObject>;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    MutatePolicy,
    MutateStatus,
    MutateTimestamp,
    ValidatePolicy,
}

impl Question {
    pub const ALL: [Self; 4] =
        [Self::MutatePolicy, Self::MutateStatus, Self::MutateTimestamp, Self::ValidatePolicy];

    /// Where it is asked.
    pub fn path(self) -> &'static str {
        match self {
            Self::MutatePolicy => "/nodenetworkconfigurationpolicies-mutate",
            Self::MutateStatus => "/nodenetworkconfigurationpolicies-status-mutate",
            Self::MutateTimestamp => "/nodenetworkconfigurationpolicies-timestamp-mutate",
            Self::ValidatePolicy => "/nodenetworkconfigurationpolicies-validate",
        }
    }
}

/// Why a body gets no answer.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    #[error("this is no AdmissionReview: {0}")]
    NoReview(#[from] serde_json::Error),
    #[error("{0} is not understood; admission.k8s.io/v1 and v1beta1 are")]
    Version(String),
    #[error("the AdmissionReview has no request")]
    NoRequest,
}

/// The answer to a body, in the version of the question.
pub fn answer(
    question: Question,
    body: &[u8],
    catalogue: Option<&Catalogue>,
    now: Timestamp,
) -> Result<AdmissionReview<DynamicObject>, Unreadable> {
    let review: AdmissionReview<DynamicObject> = serde_json::from_slice(body)?;
    if !matches!(review.types.api_version.as_str(), "admission.k8s.io/v1" | "admission.k8s.io/v1beta1") {
        return Err(Unreadable::Version(review.types.api_version));
    }
    let request: Request = review.try_into().map_err(|_| Unreadable::NoRequest)?;
    let response = match question {
        Question::MutatePolicy => mutation::without_conditions(&request),
        Question::MutateStatus => mutation::with_conditions(&request, now),
        Question::MutateTimestamp => mutation::with_timestamp(&request, now),
        Question::ValidatePolicy => validation::validated(&request, catalogue),
    };
    Ok(response.into_review())
}

/// The object that is asked about, as JSON; `Null` when there is none.
pub(super) fn object(request: &Request) -> Value {
    request.object.as_ref().and_then(|object| serde_json::to_value(object).ok()).unwrap_or_default()
}

/// A refusal that the API server passes on to whoever asked it.
pub(super) fn refused(
    response: AdmissionResponse,
    code: u16,
    reason: &str,
    message: &str,
) -> AdmissionResponse {
    let mut response = response.deny(message);
    response.result = Status { code, reason: reason.to_owned(), ..response.result };
    response
}

/// Our own failure to answer.
pub(super) fn failed(response: AdmissionResponse, message: &str) -> AdmissionResponse {
    refused(response, 500, "InternalError", message)
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    pub(crate) fn review_of(version: &str, operation: &str, object: &Value, old: &Value) -> Vec<u8> {
        let kind =
            json!({ "group": "nmstate.io", "version": "v1", "kind": "NodeNetworkConfigurationPolicy" });
        let resource =
            json!({ "group": "nmstate.io", "version": "v1", "resource": "nodenetworkconfigurationpolicies" });
        let review = json!({
            "kind": "AdmissionReview", "apiVersion": version,
            "request": {
                "uid": "u1", "kind": kind, "resource": resource, "name": "p", "operation": operation,
                "userInfo": { "username": "admin" }, "object": object, "oldObject": old, "dryRun": false,
            },
        });
        review.to_string().into_bytes()
    }

    pub(crate) fn policy(spec: &Value) -> Value {
        json!({
            "apiVersion": "nmstate.io/v1", "kind": "NodeNetworkConfigurationPolicy",
            "metadata": { "name": "p" }, "spec": spec,
        })
    }

    pub(crate) fn now() -> Timestamp {
        Timestamp::new(1_700_000_000, 123_456_789).expect("a time")
    }

    #[test]
    fn an_answer_has_the_version_and_the_id_of_its_question() {
        for version in ["admission.k8s.io/v1", "admission.k8s.io/v1beta1"] {
            for question in Question::ALL {
                let body = review_of(version, "CREATE", &policy(&json!({})), &Value::Null);
                let answer = answer(question, &body, None, now()).expect("an answer");
                let answer = serde_json::to_value(answer).expect("JSON");
                assert_eq!(answer["apiVersion"], version);
                assert_eq!(answer["kind"], "AdmissionReview");
                assert_eq!(answer["response"]["uid"], "u1");
                assert_eq!(answer["response"]["allowed"], true, "{answer}");
            }
        }
    }

    #[test]
    fn what_is_no_question_gets_no_answer() {
        for (body, expected) in [
            (b"{}".to_vec(), "this is no AdmissionReview"),
            (b"hello".to_vec(), "this is no AdmissionReview"),
            (
                review_of("admission.k8s.io/v9", "CREATE", &policy(&json!({})), &Value::Null),
                "v9 is not understood",
            ),
            (
                json!({ "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1" })
                    .to_string()
                    .into_bytes(),
                "no request",
            ),
        ] {
            let refusal = answer(Question::ValidatePolicy, &body, None, now()).expect_err("no question");
            assert!(refusal.to_string().contains(expected), "{refusal}");
        }
    }
}
