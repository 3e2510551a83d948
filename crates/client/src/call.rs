//! One call of the API server: bounded in time, and its failure told so that a person can act on it.

use std::{collections::BTreeSet, error::Error, time::Duration};

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use thiserror::Error;

/// Longer than any healthy answer takes, and short enough to try again while it still matters.
const LIMIT: Duration = Duration::from_secs(10);

/// Why a call brought nothing.
#[derive(Debug, Error)]
pub enum CallError {
    #[error("no answer in time")]
    NoAnswer,
    #[error("{}", explain(.0))]
    Failed(#[from] kube::Error),
}

impl CallError {
    /// The HTTP status of the refusal; `None` when the server has not answered.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Failed(kube::Error::Api(status)) => Some(status.code),
            Self::NoAnswer | Self::Failed(_) => None,
        }
    }

    /// Whether the object is not there. A server that does not know its kind, as one does that has just started, says
    /// nothing about the object.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Failed(kube::Error::Api(status)) if status.code == 404 && status.reason == "NotFound")
    }

    /// Failures of one kind have one cure.
    fn kind(&self) -> Kind {
        match self {
            Self::NoAnswer => Kind::NoAnswer,
            Self::Failed(kube::Error::Api(status)) => Kind::Refused(status.code),
            Self::Failed(_) => Kind::NoWay,
        }
    }
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    NoAnswer,
    NoWay,
    Refused(u16),
}

/// Within the time that any healthy answer takes.
pub async fn within_limit<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, CallError> {
    within(LIMIT, call).await
}

/// Within a time of the caller's choice.
pub async fn within<T>(limit: Duration, call: impl Future<Output = kube::Result<T>>) -> Result<T, CallError> {
    match tokio::time::timeout(limit, call).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(CallError::NoAnswer),
    }
}

/// In words, and without what was sent: a refusal of its contents quotes them, and they may be secret.
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

/// The last cause is what helps ("connection refused"), the first ones only say which layer noticed.
fn chain(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

/// What is wrong at present, told once for each kind instead of on every attempt.
#[derive(Debug)]
pub struct Trouble {
    doing: &'static str,
    told: BTreeSet<Kind>,
}

impl Trouble {
    /// `doing` completes the sentence "cannot …".
    pub fn new(doing: &'static str) -> Self {
        Self { doing, told: BTreeSet::new() }
    }

    pub fn failed(&mut self, error: &CallError) {
        if self.told.insert(error.kind()) {
            tracing::warn!("cannot {}: {error}; it will be tried again", self.doing);
        }
    }

    pub fn over(&mut self) {
        if !self.told.is_empty() {
            tracing::info!("can {} again", self.doing);
            self.told.clear();
        }
    }
}

/// How long to wait between attempts: one second at first, half a minute at most, and never all nodes together.
#[derive(Debug)]
pub struct Pauses(ExponentialBackoff);

impl Pauses {
    /// From the shortest on.
    pub fn new() -> Self {
        Self::default()
    }

    /// How long to wait now; longer each time.
    pub fn longer(&mut self) -> Duration {
        self.0.next().unwrap_or(Duration::from_secs(30))
    }
}

impl Default for Pauses {
    fn default() -> Self {
        // Chance adds up to as much again.
        let pauses = ExponentialBuilder::new()
            .with_min_delay(Duration::from_secs(1))
            .with_max_delay(Duration::from_secs(15))
            .with_factor(2.0)
            .without_max_times()
            .with_jitter();
        Self(pauses.build())
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
            let said = error.to_string();
            assert!(!said.contains("hunter2"), "{said}");
            assert!(said.contains("status.desiredState"), "{said}");
        }
    }

    #[test]
    fn a_missing_right_is_named() {
        let error = refusal(403, "Forbidden", "nodes \"n\" is forbidden: cannot get", "");
        assert_eq!(error.to_string(), "refused as Forbidden (403): nodes \"n\" is forbidden: cannot get");
    }

    #[test]
    fn only_an_object_can_be_not_found() {
        assert!(refusal(404, "NotFound", "nnce \"n.p\" not found", "").is_not_found());
        let unknown_kind = refusal(404, "Failed to parse error data", "404 page not found", "");
        assert!(!unknown_kind.is_not_found());
        assert!(unknown_kind.to_string().contains("CustomResourceDefinitions"), "{unknown_kind}");
    }

    #[test]
    fn pauses_grow_from_one_second_and_stay_within_half_a_minute() {
        let mut pauses = Pauses::new();
        let first = pauses.longer();
        assert!((1..=2).contains(&first.as_secs()), "{first:?}");
        for pause in std::iter::repeat_with(|| pauses.longer()).take(100) {
            assert!(pause >= Duration::from_secs(1) && pause <= Duration::from_secs(30), "{pause:?}");
        }
    }
}
