//! One request to the API server: with a time limit, and with an error message that an admin can act on.

use std::{collections::BTreeSet, error::Error, time::Duration};

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use thiserror::Error;

/// Longer than a healthy API server needs for any response, and short enough to try again while it still matters.
const LIMIT: Duration = Duration::from_secs(10);

/// More is not read at once: several times what the API server accepts as one object. Less in tests, which are slow.
pub(crate) const LARGEST_ANSWER: usize = if cfg!(test) { 1 << 20 } else { 32 << 20 };

/// Why a request failed.
#[derive(Debug, Error)]
pub enum CallError {
    #[error("no answer in time")]
    NoAnswer,
    #[error("the answer is larger than {} MiB", LARGEST_ANSWER >> 20)]
    TooLarge,
    #[error("{}", explain(.0))]
    Failed(#[from] kube::Error),
}

impl CallError {
    /// The HTTP status of the response; `None` when the server has not responded.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Failed(kube::Error::Api(status)) => Some(status.code),
            Self::NoAnswer | Self::TooLarge | Self::Failed(_) => None,
        }
    }

    /// Whether the object does not exist. A server that does not serve its kind, as one that has just started, also
    /// responds with 404, and that says nothing about the object.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Failed(kube::Error::Api(status)) if status.code == 404 && status.reason == "NotFound")
    }

    /// Whether the server would refuse the same request again: what was sent is wrong or too large.
    pub fn is_refusal_of_content(&self) -> bool {
        let Self::Failed(kube::Error::Api(status)) = self else { return false };
        // What etcd, or the way to it, finds too large comes as an internal error.
        let is_too_large = ["request is too large", "message larger than max"];
        matches!(status.code, 400 | 413 | 422)
            || (status.code == 500 && is_too_large.iter().any(|text| status.message.contains(text)))
    }

    /// Whether the server has done what was asked for, but the object in its response cannot be read.
    pub fn is_unreadable(&self) -> bool {
        matches!(self, Self::Failed(kube::Error::SerdeError(_)))
    }

    /// Failures of one kind are logged once.
    fn kind(&self) -> CallErrorKind {
        match self {
            Self::NoAnswer => CallErrorKind::NoAnswer,
            Self::TooLarge => CallErrorKind::TooLarge,
            Self::Failed(kube::Error::Api(status)) => CallErrorKind::Refused(status.code),
            Self::Failed(_) => CallErrorKind::Transport,
        }
    }
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum CallErrorKind {
    NoAnswer,
    TooLarge,
    Transport,
    Refused(u16),
}

/// Waits for a response for ten seconds, which is longer than any healthy one takes.
pub async fn within_limit<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, CallError> {
    within(LIMIT, call).await
}

/// Waits for a response for as long as `limit`; after that the request is dropped and [`CallError::NoAnswer`].
pub async fn within<T>(limit: Duration, call: impl Future<Output = kube::Result<T>>) -> Result<T, CallError> {
    match tokio::time::timeout(limit, call).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(CallError::NoAnswer),
    }
}

/// The error message. It leaves out what was sent: a server that refuses an object quotes it, and it may hold secrets.
fn explain(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if matches!(status.code, 400 | 422) => {
            let causes = status.details.iter().flat_map(|details| &details.causes);
            let fields: Vec<&str> = causes.map(|cause| &*cause.field).collect();
            format!("refused as {} ({}): {}", status.reason, status.code, fields.join(", "))
        }
        kube::Error::Api(status) if status.code == 404 && status.reason != "NotFound" => {
            "the API server does not know the kind; are the CustomResourceDefinitions installed?".to_owned()
        }
        kube::Error::Api(status) => {
            format!("refused as {} ({}): {}", status.reason, status.code, status.message)
        }
        kube::Error::SerdeError(_) => "the answer could not be understood".to_owned(),
        other => chain(other),
    }
}

/// The last cause, such as "connection refused": the errors around it only name the layers that it passed through.
fn chain(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

/// Logs a failure once per kind instead of on every attempt, and when it is over.
#[derive(Debug)]
pub struct FailureLog {
    doing: &'static str,
    logged: BTreeSet<CallErrorKind>,
}

impl FailureLog {
    /// `doing` completes the sentence "cannot …".
    pub fn new(doing: &'static str) -> Self {
        Self { doing, logged: BTreeSet::new() }
    }

    /// Logs the error if none of its kind was logged since the last success.
    pub fn failed(&mut self, error: &CallError) {
        if self.logged.insert(error.kind()) {
            tracing::warn!("cannot {}: {error}; it will be tried again", self.doing);
        }
    }

    /// Logs that it works again, if a failure was logged.
    pub fn succeeded(&mut self) {
        if !self.logged.is_empty() {
            tracing::info!("can {} again", self.doing);
            self.logged.clear();
        }
    }
}

/// How long to wait between attempts: one second at first, half a minute at most, with jitter so that not all nodes try
/// again at the same time.
#[derive(Debug)]
pub struct Backoff(ExponentialBackoff);

impl Backoff {
    /// Starts with the shortest delay.
    pub fn new() -> Self {
        Self::default()
    }

    /// How long to wait now; longer with each call.
    pub fn next_delay(&mut self) -> Duration {
        self.0.next().unwrap_or(Duration::from_secs(30))
    }
}

impl Default for Backoff {
    fn default() -> Self {
        // The jitter adds up to as much again.
        let backoff = ExponentialBuilder::new()
            .with_min_delay(Duration::from_secs(1))
            .with_max_delay(Duration::from_secs(15))
            .with_factor(2.0)
            .without_max_times()
            .with_jitter();
        Self(backoff.build())
    }
}

#[cfg(test)]
mod tests {
    use kube::core::{
        Status,
        response::{StatusCause, StatusDetails},
    };

    use super::*;

    fn refusal(code: u16, reason: &str, message: &str, field: &str) -> CallError {
        let cause =
            StatusCause { reason: String::new(), message: message.to_owned(), field: field.to_owned() };
        let details = StatusDetails {
            name: String::new(),
            group: String::new(),
            kind: String::new(),
            uid: String::new(),
            causes: vec![cause],
            retry_after_seconds: 0,
        };
        let status = Status {
            code,
            reason: reason.to_owned(),
            message: message.to_owned(),
            details: Some(details),
            ..Status::default()
        };
        CallError::Failed(kube::Error::Api(status.boxed()))
    }

    #[test]
    fn a_refusal_of_the_contents_does_not_quote_them() {
        for code in [400, 422] {
            let error = refusal(code, "Invalid", "Invalid value: \"hunter2\"", "status.desiredState");
            let message = error.to_string();
            assert!(!message.contains("hunter2"), "{message}");
            assert!(message.contains("status.desiredState"), "{message}");
        }
    }

    #[test]
    fn a_missing_right_is_named() {
        let error = refusal(403, "Forbidden", "nodes \"n\" is forbidden: cannot get", "");
        assert_eq!(error.to_string(), "refused as Forbidden (403): nodes \"n\" is forbidden: cannot get");
    }

    #[test]
    fn only_a_refusal_of_the_content_is_for_good() {
        for (code, message, expected) in [
            (400, "", true),
            (413, "", true),
            (422, "", true),
            (500, "etcdserver: request is too large", true),
            (500, "rpc error: code = ResourceExhausted desc = trying to send message larger than max", true),
            (500, "etcdserver: leader changed", false),
            (401, "", false),
            (403, "", false),
            (404, "", false),
            (409, "", false),
            (429, "", false),
            (503, "", false),
        ] {
            assert_eq!(refusal(code, "", message, "").is_refusal_of_content(), expected, "{code} {message}");
        }
        assert!(!CallError::NoAnswer.is_refusal_of_content());
    }

    #[test]
    fn only_an_object_can_be_not_found() {
        assert!(refusal(404, "NotFound", "nnce \"n.p\" not found", "").is_not_found());
        let unknown_kind = refusal(404, "Failed to parse error data", "404 page not found", "");
        assert!(!unknown_kind.is_not_found());
        assert!(unknown_kind.to_string().contains("CustomResourceDefinitions"), "{unknown_kind}");
    }

    #[test]
    fn delays_grow_from_one_second_and_stay_within_half_a_minute() {
        let mut backoff = Backoff::new();
        let first = backoff.next_delay();
        assert!((1..=2).contains(&first.as_secs()), "{first:?}");
        for delay in std::iter::repeat_with(|| backoff.next_delay()).take(100) {
            assert!(delay >= Duration::from_secs(1) && delay <= Duration::from_secs(30), "{delay:?}");
        }
    }
}
