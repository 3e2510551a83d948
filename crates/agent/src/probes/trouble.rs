//! Why a try did not pass, and whether another one could.

use std::{error::Error, future::Future, io, time::Duration};

use futures::{StreamExt, stream::FuturesUnordered};
use knmstate_core::probes::Loss;

/// Why somebody could not be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreached {
    pub why: String,
    /// The machine knew no way there, so that nothing was sent at all.
    pub no_route: bool,
}

impl Unreached {
    pub fn because(why: impl Into<String>) -> Self {
        Self { why: why.into(), no_route: false }
    }

    /// For an error that may have come by way of others: a client's own, say, around that of its socket.
    pub fn from_error(error: &(dyn Error + 'static)) -> Self {
        let mut why: Vec<String> = Vec::new();
        let mut no_route = false;
        let mut next = Some(error);
        while let Some(error) = next {
            let words = match error.downcast_ref::<io::Error>() {
                Some(error) => {
                    no_route |= error.kind() == io::ErrorKind::NetworkUnreachable;
                    words(error)
                }
                None => error.to_string(),
            };
            // Some errors repeat those that they come from.
            if !why.iter().any(|said| said.contains(&words)) {
                why.push(words);
            }
            next = error.source();
        }
        Self { why: why.join(": "), no_route }
    }
}

impl From<io::Error> for Unreached {
    fn from(error: io::Error) -> Self {
        Self::from_error(&error)
    }
}

/// What an error of the machine means, in plain words.
fn words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::ConnectionReset => "connection reset".to_owned(),
        io::ErrorKind::NetworkUnreachable => "no route leads there".to_owned(),
        io::ErrorKind::HostUnreachable => "nobody on the wire has this address".to_owned(),
        _ => error.to_string(),
    }
}

/// Why a try did not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    pub(super) why: String,
    /// Set if no other try can pass as things are: how long that must have been so before it is believed.
    pub(super) lost: Option<Duration>,
}

impl Trouble {
    /// One that may be over at the next try.
    pub(super) fn passing(why: impl Into<String>) -> Self {
        Self { why: why.into(), lost: None }
    }

    /// One that no try can change.
    pub(super) fn for_good(why: impl Into<String>) -> Self {
        Self { why: why.into(), lost: Some(Duration::ZERO) }
    }

    pub(super) fn of(mut self, whom: &dyn std::fmt::Display) -> Self {
        self.why = format!("{whom}: {}", self.why);
        self
    }

    /// The trouble of several of which one would have been enough.
    pub(super) fn all(troubles: Vec<Self>) -> Self {
        let lost = troubles.iter().map(|trouble| trouble.lost).collect::<Option<Vec<_>>>();
        let why = troubles.into_iter().map(|trouble| trouble.why).collect::<Vec<_>>().join("; ");
        Self { why, lost: lost.and_then(|patience| patience.into_iter().max()) }
    }

    /// The trouble of several that would all have been needed.
    pub(super) fn any(troubles: Vec<Self>) -> Self {
        let lost = troubles.iter().filter_map(|trouble| trouble.lost).min();
        let why = troubles.into_iter().map(|trouble| trouble.why).collect::<Vec<_>>().join("; ");
        Self { why, lost }
    }
}

impl From<Loss> for Trouble {
    fn from(loss: Loss) -> Self {
        Self { why: loss.why, lost: Some(loss.patience) }
    }
}

/// Tries all at once; the first that comes out well is enough. Fails with the troubles of all, in their order.
pub(super) async fn first<T, F>(tries: impl IntoIterator<Item = F>) -> Result<T, Trouble>
where
    F: Future<Output = Result<T, Trouble>>,
{
    let number = |(number, attempt): (usize, F)| async move { (number, attempt.await) };
    let mut running: FuturesUnordered<_> = tries.into_iter().enumerate().map(number).collect();
    let mut troubles = Vec::new();
    while let Some((number, result)) = running.next().await {
        match result {
            Ok(good) => return Ok(good),
            Err(trouble) => troubles.push((number, trouble)),
        }
    }
    troubles.sort_by_key(|(number, _)| *number);
    Err(Trouble::all(troubles.into_iter().map(|(_, trouble)| trouble).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(why: &str, seconds: u64) -> Trouble {
        Trouble { why: why.to_owned(), lost: Some(Duration::from_secs(seconds)) }
    }

    #[tokio::test]
    async fn one_that_comes_out_well_is_enough() {
        let tries = [Err(Trouble::passing("a")), Ok(7), Err(Trouble::passing("c"))];
        assert_eq!(first(tries.map(std::future::ready)).await, Ok(7));
        let tries: [Result<(), _>; 2] = [Err(lost("a", 1)), Err(Trouble::passing("b"))];
        assert_eq!(first(tries.map(std::future::ready)).await, Err(Trouble::passing("a; b")));
    }

    #[test]
    fn there_is_hope_while_one_of_those_that_would_do_has_any() {
        let (passing, soon, late) = (Trouble::passing("p"), lost("s", 1), lost("l", 5));
        assert_eq!(Trouble::all(vec![soon.clone(), late.clone()]), lost("s; l", 5));
        assert_eq!(Trouble::all(vec![soon.clone(), passing.clone()]).lost, None);
        assert_eq!(Trouble::any(vec![soon.clone(), late]), lost("s; l", 1));
        assert_eq!(Trouble::any(vec![soon, passing.clone()]).lost, Some(Duration::from_secs(1)));
        assert_eq!(Trouble::any(vec![passing]).lost, None);
    }

    #[test]
    fn an_error_is_told_once_and_down_to_its_root() {
        #[derive(Debug, thiserror::Error)]
        #[error("asking failed: {0}")]
        struct Asking(#[source] io::Error);

        let unreached = Unreached::from_error(&Asking(io::ErrorKind::NetworkUnreachable.into()));
        assert!(unreached.no_route);
        assert_eq!(unreached.why, "asking failed: network unreachable: no route leads there");
        let unreached = Unreached::from_error(&Asking(io::Error::other("a typewriter")));
        assert_eq!(unreached, Unreached::because("asking failed: a typewriter"));
        let refused = Unreached::from(io::Error::from(io::ErrorKind::ConnectionRefused));
        assert_eq!(refused, Unreached::because("connection refused"));
    }
}
