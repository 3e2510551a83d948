//! Why an attempt did not pass, and whether a later one could.

use std::{error::Error, future::Future, io, time::Duration};

use futures::{StreamExt, stream::FuturesUnordered};
use knmstate_core::probes::Loss;

/// Why a host could not be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreachable {
    /// The reason, for messages.
    pub why: String,
    /// The node has no route to the host, so nothing was sent.
    pub no_route: bool,
}

impl Unreachable {
    /// For a reason that is not a missing route.
    pub fn because(why: impl Into<String>) -> Self {
        Self { why: why.into(), no_route: false }
    }

    /// For an error and its sources, such as the error of a client around that of its socket.
    pub fn from_error(error: &(dyn Error + 'static)) -> Self {
        let mut why: Vec<String> = Vec::new();
        let mut no_route = false;
        let mut next = Some(error);
        while let Some(error) = next {
            let text = match error.downcast_ref::<io::Error>() {
                Some(error) => {
                    no_route |= error.kind() == io::ErrorKind::NetworkUnreachable;
                    describe(error)
                }
                None => error.to_string(),
            };
            // Some errors contain the text of their source.
            if !why.iter().any(|earlier| earlier.contains(&text)) {
                why.push(text);
            }
            next = error.source();
        }
        Self { why: why.join(": "), no_route }
    }
}

impl From<io::Error> for Unreachable {
    fn from(error: io::Error) -> Self {
        Self::from_error(&error)
    }
}

/// The text of an I/O error in our messages.
fn describe(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::ConnectionReset => "connection reset".to_owned(),
        io::ErrorKind::NetworkUnreachable => "no route to the address".to_owned(),
        io::ErrorKind::HostUnreachable => "no host on the link has this address".to_owned(),
        _ => error.to_string(),
    }
}

/// Why an attempt did not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AttemptError {
    pub(super) why: String,
    /// Set if no later attempt can pass in the current state of the network: how long that state has to last before the
    /// probe fails.
    pub(super) lost: Option<Duration>,
}

impl AttemptError {
    /// An error that may be over at the next attempt.
    pub(super) fn temporary(why: impl Into<String>) -> Self {
        Self { why: why.into(), lost: None }
    }

    /// An error that no later attempt can change.
    pub(super) fn permanent(why: impl Into<String>) -> Self {
        Self { why: why.into(), lost: Some(Duration::ZERO) }
    }

    /// Puts the host that the error is about in front of the message.
    pub(super) fn of(mut self, host: &dyn std::fmt::Display) -> Self {
        self.why = format!("{host}: {}", self.why);
        self
    }

    /// The errors of several attempts of which one would have been enough.
    pub(super) fn all(errors: Vec<Self>) -> Self {
        let lost = errors.iter().map(|error| error.lost).collect::<Option<Vec<_>>>();
        let why = errors.into_iter().map(|error| error.why).collect::<Vec<_>>().join("; ");
        Self { why, lost: lost.and_then(|times| times.into_iter().max()) }
    }

    /// The errors of several attempts that were all needed.
    pub(super) fn any(errors: Vec<Self>) -> Self {
        let lost = errors.iter().filter_map(|error| error.lost).min();
        let why = errors.into_iter().map(|error| error.why).collect::<Vec<_>>().join("; ");
        Self { why, lost }
    }
}

impl From<Loss> for AttemptError {
    fn from(loss: Loss) -> Self {
        Self { why: loss.why, lost: Some(loss.grace) }
    }
}

/// Runs all attempts at the same time and returns the first success. Fails with the errors of all, in their order.
pub(super) async fn first<T, F>(attempts: impl IntoIterator<Item = F>) -> Result<T, AttemptError>
where
    F: Future<Output = Result<T, AttemptError>>,
{
    let number = |(number, attempt): (usize, F)| async move { (number, attempt.await) };
    let mut running: FuturesUnordered<_> = attempts.into_iter().enumerate().map(number).collect();
    let mut errors = Vec::new();
    while let Some((number, result)) = running.next().await {
        match result {
            Ok(good) => return Ok(good),
            Err(error) => errors.push((number, error)),
        }
    }
    errors.sort_by_key(|(number, _)| *number);
    Err(AttemptError::all(errors.into_iter().map(|(_, error)| error).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(why: &str, seconds: u64) -> AttemptError {
        AttemptError { why: why.to_owned(), lost: Some(Duration::from_secs(seconds)) }
    }

    #[tokio::test]
    async fn one_success_is_enough() {
        let attempts = [Err(AttemptError::temporary("a")), Ok(7), Err(AttemptError::temporary("c"))];
        assert_eq!(first(attempts.map(std::future::ready)).await, Ok(7));
        let attempts: [Result<(), _>; 2] = [Err(lost("a", 1)), Err(AttemptError::temporary("b"))];
        assert_eq!(first(attempts.map(std::future::ready)).await, Err(AttemptError::temporary("a; b")));
    }

    #[test]
    fn an_error_is_final_if_all_alternatives_are_and_if_one_requirement_is() {
        let (passing, soon, late) = (AttemptError::temporary("p"), lost("s", 1), lost("l", 5));
        assert_eq!(AttemptError::all(vec![soon.clone(), late.clone()]), lost("s; l", 5));
        assert_eq!(AttemptError::all(vec![soon.clone(), passing.clone()]).lost, None);
        assert_eq!(AttemptError::any(vec![soon.clone(), late]), lost("s; l", 1));
        assert_eq!(AttemptError::any(vec![soon, passing.clone()]).lost, Some(Duration::from_secs(1)));
        assert_eq!(AttemptError::any(vec![passing]).lost, None);
    }

    #[test]
    fn an_error_is_described_once_and_down_to_its_root() {
        #[derive(Debug, thiserror::Error)]
        #[error("asking failed: {0}")]
        struct Asking(#[source] io::Error);

        let unreached = Unreachable::from_error(&Asking(io::ErrorKind::NetworkUnreachable.into()));
        assert!(unreached.no_route);
        assert_eq!(unreached.why, "asking failed: network unreachable: no route to the address");
        let unreached = Unreachable::from_error(&Asking(io::Error::other("no paper")));
        assert_eq!(unreached, Unreachable::because("asking failed: no paper"));
        let refused = Unreachable::from(io::Error::from(io::ErrorKind::ConnectionRefused));
        assert_eq!(refused, Unreachable::because("connection refused"));
    }
}
