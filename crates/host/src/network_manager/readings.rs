//! The latest reading of the network, for the next step of the same change.
//!
//! A change is planned, and planned again when it begins. If no event came in between, the network is still the same;
//! and reading hundreds of interfaces takes a second.

use std::time::Duration;

use futures::FutureExt as _;
use nmstate::NetworkState as Document;
use tokio::task::coop::unconstrained;
use tokio::time::Instant;

use super::nmstate_calls;
use crate::error::HostError;
use crate::events::Events;

/// How old a reading may be, also if no event came in: some settings, such as the rings of a NIC, change without an
/// event.
pub(super) const KEPT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Readings {
    limit: Duration,
    events: Events,
    kept: Option<Kept>,
}

#[derive(Debug)]
struct Kept {
    /// With its secrets.
    document: Document,
    begun: Instant,
}

impl Readings {
    pub(super) fn new(limit: Duration, events: Events) -> Self {
        Self { limit, events, kept: None }
    }

    /// Reads the machine, with its secrets.
    pub(super) async fn fresh(&mut self) -> Result<Document, HostError> {
        self.kept = None;
        let begun = Instant::now();
        self.heard_anything();
        let document = nmstate_calls::read(self.limit).await?;
        self.kept = Some(Kept { document: document.clone(), begun });
        Ok(document)
    }

    /// The latest reading, if it is recent and no event has come in since.
    pub(super) fn recent(&mut self) -> Option<Document> {
        if self.heard_anything() {
            self.forget();
        }
        let kept = self.kept.as_ref().filter(|kept| kept.begun.elapsed() <= KEPT)?;
        Some(kept.document.clone())
    }

    pub(super) fn forget(&mut self) {
        self.kept = None;
    }

    /// Whether something has changed since the last call. When the stream of events has ended, everything may have.
    fn heard_anything(&mut self) -> bool {
        // A task that has used up tokio's budget would get "nothing there".
        unconstrained(self.events.next()).now_or_never().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::{Announcer, Changes, Topic};

    #[tokio::test(start_paused = true)]
    async fn a_reading_is_good_for_a_moment_and_until_something_is_heard() {
        let announcer = Announcer::new();
        let mut readings = Readings::new(Duration::ZERO, announcer.subscribe());
        let keep = |readings: &mut Readings| {
            readings.kept = Some(Kept { document: Document::new(), begun: Instant::now() });
        };
        assert!(readings.recent().is_none());
        keep(&mut readings);
        assert!(readings.recent().is_some());
        tokio::time::advance(KEPT).await;
        assert!(readings.recent().is_some(), "as often as it is asked for");
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(readings.recent().is_none(), "too old");

        keep(&mut readings);
        announcer.announce(Changes::default().with(Topic::Route));
        assert!(readings.recent().is_none(), "something has happened");
        assert!(readings.recent().is_none(), "and that is not forgotten");
        keep(&mut readings);
        drop(announcer);
        assert!(readings.recent().is_none(), "the stream of events has ended");
    }
}
