//! Parses an AdmissionReview and dispatches it to the webhook of its path.

use jiff::Timestamp;
use kube::core::{
    DynamicObject, Status,
    admission::{AdmissionRequest, AdmissionResponse, AdmissionReview},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{mutation, validation};
use crate::{admission::policy_index::PolicyIndex, known_checks::KnownChecks};

/// An admission request. The path says which kind its object has.
pub(super) type Request = AdmissionRequest<DynamicObject>;

/// The webhooks, one per path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    MutatePolicy,
    MutateStatus,
    MutateTimestamp,
    ValidatePolicy,
}

impl Endpoint {
    pub(super) const ALL: [Self; 4] =
        [Self::MutatePolicy, Self::MutateStatus, Self::MutateTimestamp, Self::ValidatePolicy];

    /// The HTTP path of the webhook.
    pub(super) fn path(self) -> &'static str {
        match self {
            Self::MutatePolicy => "/nodenetworkconfigurationpolicies-mutate",
            Self::MutateStatus => "/nodenetworkconfigurationpolicies-status-mutate",
            Self::MutateTimestamp => "/nodenetworkconfigurationpolicies-timestamp-mutate",
            Self::ValidatePolicy => "/nodenetworkconfigurationpolicies-validate",
        }
    }
}

/// Why the body of a request cannot be reviewed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReviewError {
    #[error("the body is not an AdmissionReview: {0}")]
    Malformed(#[from] serde_json::Error),
    #[error("unsupported version {0}; supported are admission.k8s.io/v1 and admission.k8s.io/v1beta1")]
    Version(String),
    #[error("the AdmissionReview has no request")]
    NoRequest,
}

/// The response to a review, in the version of the request.
pub(super) fn respond(
    endpoint: Endpoint,
    body: &[u8],
    index: Option<&PolicyIndex>,
    known: &KnownChecks,
    now: Timestamp,
) -> Result<AdmissionReview<DynamicObject>, ReviewError> {
    let review: AdmissionReview<DynamicObject> = serde_json::from_slice(body)?;
    if !matches!(review.types.api_version.as_str(), "admission.k8s.io/v1" | "admission.k8s.io/v1beta1") {
        return Err(ReviewError::Version(review.types.api_version));
    }
    let request: Request = review.try_into().map_err(|_| ReviewError::NoRequest)?;
    let response = match endpoint {
        Endpoint::MutatePolicy => mutation::without_conditions(&request),
        Endpoint::MutateStatus => mutation::with_conditions(&request, now),
        Endpoint::MutateTimestamp => mutation::with_timestamp(&request, now),
        Endpoint::ValidatePolicy => validation::validated(&request, index, known),
    };
    Ok(response.into_review())
}

/// What the response to a policy that could not be reviewed says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NotReviewed {
    /// It is refused for this reason.
    Refused(String),
    /// It is allowed with this warning.
    Allowed(String),
}

/// The response to a review that was not carried out; `None` if it is none. Of the body, only the identity is parsed.
pub(super) fn respond_without_review(body: &[u8], outcome: NotReviewed) -> Option<Value> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Identity {
        api_version: String,
        request: RequestIdentity,
    }
    #[derive(Deserialize)]
    struct RequestIdentity {
        uid: String,
    }
    let identity: Identity = serde_json::from_slice(body).ok()?;
    let uid = identity.request.uid;
    let response = match outcome {
        NotReviewed::Refused(message) => {
            let status = json!({ "code": 422, "reason": "Invalid", "message": message });
            json!({ "uid": uid, "allowed": false, "status": status })
        }
        NotReviewed::Allowed(warning) => {
            json!({ "uid": uid, "allowed": true, "status": {}, "warnings": [warning] })
        }
    };
    Some(json!({ "apiVersion": identity.api_version, "kind": "AdmissionReview", "response": response }))
}

/// The object of the request as JSON; `Null` if it has none.
pub(super) fn object(request: &Request) -> Value {
    request.object.as_ref().and_then(|object| serde_json::to_value(object).ok()).unwrap_or_default()
}

/// A refusal, which the API server returns to its client.
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

/// An internal error of the webhook.
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
    fn a_response_has_the_version_and_the_id_of_its_request() {
        for version in ["admission.k8s.io/v1", "admission.k8s.io/v1beta1"] {
            for endpoint in Endpoint::ALL {
                let body = review_of(version, "CREATE", &policy(&json!({})), &Value::Null);
                let response =
                    respond(endpoint, &body, None, &KnownChecks::default(), now()).expect("an answer");
                let response = serde_json::to_value(response).expect("JSON");
                assert_eq!(response["apiVersion"], version);
                assert_eq!(response["kind"], "AdmissionReview");
                assert_eq!(response["response"]["uid"], "u1");
                assert_eq!(response["response"]["allowed"], true, "{response}");
            }
        }
    }

    #[test]
    fn malformed_reviews_are_refused() {
        for (body, expected) in [
            (b"{}".to_vec(), "the body is not an AdmissionReview"),
            (b"hello".to_vec(), "the body is not an AdmissionReview"),
            (
                review_of("admission.k8s.io/v9", "CREATE", &policy(&json!({})), &Value::Null),
                "unsupported version admission.k8s.io/v9",
            ),
            (
                json!({ "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1" })
                    .to_string()
                    .into_bytes(),
                "no request",
            ),
        ] {
            let error = respond(Endpoint::ValidatePolicy, &body, None, &KnownChecks::default(), now())
                .expect_err("an error");
            assert!(error.to_string().contains(expected), "{error}");
        }
    }

    #[test]
    fn a_review_that_was_not_carried_out_has_a_response() {
        for version in ["admission.k8s.io/v1", "admission.k8s.io/v1beta1"] {
            let body = review_of(version, "CREATE", &policy(&json!({})), &Value::Null);
            for (outcome, allowed) in [
                (NotReviewed::Refused("too long".to_owned()), false),
                (NotReviewed::Allowed("busy".to_owned()), true),
            ] {
                let response = respond_without_review(&body, outcome).expect("a response");
                let review: AdmissionReview<DynamicObject> =
                    serde_json::from_value(response.clone()).expect("a review");
                let response = review.response.expect("a response");
                assert_eq!((&*response.uid, response.allowed), ("u1", allowed), "{response:?}");
                assert_eq!(response.result.message, if allowed { "" } else { "too long" });
                assert_eq!(response.warnings, allowed.then(|| vec!["busy".to_owned()]));
                assert_eq!(review.types.api_version, version);
            }
        }
        assert_eq!(respond_without_review(b"{}", NotReviewed::Allowed(String::new())), None);
    }
}
