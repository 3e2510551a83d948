//! The steps that roll a change back: by its checkpoint, or from the journal. What cannot be rolled back is given up.

use jiff::Timestamp;
use tokio::time::{Instant, sleep};

use super::as_before::{is_at_rest, looks_as_before};
use super::change::{GuardedChanges, POLL_INTERVAL, service_ended};
use super::journal::{Attempt, Entry, Found};
use super::ownership::{self, Moment, is_ours, ours};
use super::service::{Held, Service};
use super::{nmstate_calls, restore, scripts};
use crate::error::HostError;
use crate::host::Checkpoint;
use crate::set_aside::is_given_up;

/// More attempts are not kept in the journal, even if it can never be set aside.
const KEPT_ATTEMPTS: usize = 10;

impl GuardedChanges {
    pub(super) async fn roll_back(&mut self, checkpoint: &Checkpoint) -> Result<(), HostError> {
        if self.unchanged.settle(checkpoint) {
            return Ok(());
        }
        let Some(entry) = self.journal_entry()?.filter(|entry| entry.name() == *checkpoint) else {
            return Err(self.refusal(checkpoint).await);
        };
        if entry.changes_nothing() {
            return self.journal.remove();
        }
        let service = Service::find(self.limits.answer).await?;
        self.attempt_roll_back(&service, entry).await
    }

    /// One attempt. It is counted before it begins, so that one which kills the process counts, too.
    async fn attempt_roll_back(&self, service: &Service, mut entry: Entry) -> Result<(), HostError> {
        let tried = entry.attempts.clone();
        begin_attempt(&mut entry.attempts, &now().to_string());
        // Rolling back matters more than counting.
        let _ = self.journal.write(&entry);
        let Err(error) = self.try_roll_back(service, &entry).await else { return Ok(()) };
        match error {
            // Nothing is left of it, in the journal either.
            HostError::CheckpointGone { .. } => return Err(error),
            // Neither another program's change nor a NetworkManager that is down makes the next attempt fail.
            HostError::Busy { .. } => entry.attempts = tried,
            _ if !self.still_answers(service).await => entry.attempts = tried,
            _ => end_attempt(&mut entry.attempts, &error),
        }
        let _ = self.journal.write(&entry);
        let finals: Vec<bool> = entry.attempts.iter().map(|attempt| attempt.is_final).collect();
        if is_given_up(&finals) {
            return Err(HostError::SetAside(self.journal.set_aside(now())?));
        }
        Err(error)
    }

    /// Whether this start of NetworkManager runs and answers. An error alone does not show it.
    async fn still_answers(&self, service: &Service) -> bool {
        match Service::find(self.limits.answer).await {
            Ok(now) => now.identity() == service.identity() && now.checkpoints().await.is_ok(),
            Err(_) => false,
        }
    }

    async fn try_roll_back(&self, service: &Service, entry: &Entry) -> Result<(), HostError> {
        if service.identity() != entry.service {
            return self.restore_from_journal(service, entry).await;
        }
        let there = match ours(entry, &service.checkpoints().await?) {
            Some(held) => self.roll_back_by_checkpoint(service, held, entry).await?,
            None => false,
        };
        if !there {
            self.forget_undone(entry)?;
            return Err(HostError::CheckpointGone { checkpoint: entry.name() });
        }
        self.finish_roll_back(service, entry).await
    }

    async fn roll_back_by_checkpoint(
        &self,
        service: &Service,
        held: &Held,
        entry: &Entry,
    ) -> Result<bool, HostError> {
        // Before, so that NetworkManager does not run the new ones meanwhile. Without them it rolls back all the same;
        // they are restored again afterwards.
        let _ = scripts::restore(entry);
        service.roll_back(&held.path).await
    }

    /// Makes sure that a change which failed leaves nothing behind, and says why it failed.
    pub(super) async fn undo_failed(&mut self, entry: &Entry, failure: HostError) -> HostError {
        let same_service = match Service::find(self.limits.answer).await {
            Ok(service) if service.identity() == entry.service => service,
            // What NetworkManager would have rolled back is kept by the next one. It stays in the journal, and so in
            // the list of open changes, for the caller to roll back when NetworkManager is there.
            _ => return service_ended(),
        };
        let undone = match same_service.checkpoints().await {
            Ok(held) => match (&failure, ours(entry, &held)) {
                (HostError::Busy { .. }, None) => return self.nothing_was_touched(&held, failure),
                (_, Some(ours)) => self.roll_back_by_checkpoint(&same_service, ours, entry).await.map(drop),
                (_, None) => Ok(()),
            },
            Err(error) => Err(error),
        };
        match undone {
            // Without an answer the timer decides; the note stays until it has.
            Err(_) => failure,
            Ok(()) => match self.finish_roll_back(&same_service, entry).await {
                Ok(()) => failure,
                Err(error) => error,
            },
        }
    }

    fn nothing_was_touched(&self, held: &[Held], failure: HostError) -> HostError {
        if let Err(error) = self.journal.remove() {
            return error;
        }
        held.first().map_or(failure, |held| HostError::Busy {
            checkpoint: Checkpoint::new(&held.path),
            rolls_back_in: held.rolls_back_in,
        })
    }

    /// NetworkManager says that it has rolled back. It says so before the kernel is there again, so we wait; and what
    /// it has left undone we do.
    async fn finish_roll_back(&self, service: &Service, entry: &Entry) -> Result<(), HostError> {
        scripts::restore(entry)?;
        let end = Instant::now() + self.limits.settle;
        loop {
            let at_rest = is_at_rest(entry, service).await?;
            let now = nmstate_calls::read(self.limits.observe).await?;
            if at_rest && looks_as_before(entry, &nmstate_calls::shown(now.clone())?) {
                break;
            }
            if Instant::now() >= end {
                if restore::what_is_left(entry, &now).is_ok() {
                    break;
                }
                return self.restore_from_journal(service, entry).await;
            }
            sleep(POLL_INTERVAL).await;
        }
        self.journal.remove()
    }

    /// Puts the machine back by what was noted, without a checkpoint of NetworkManager.
    async fn restore_from_journal(&self, service: &Service, entry: &Entry) -> Result<(), HostError> {
        let held = service.checkpoints().await?;
        if let Some(held) = held.into_iter().find(|held| !is_ours(entry, held, Some(service.identity()))) {
            let checkpoint = Checkpoint::new(held.path);
            return Err(HostError::Busy { checkpoint, rolls_back_in: held.rolls_back_in });
        }
        let _ = scripts::restore(entry);
        restore::from_journal(service, entry, &self.limits).await?;
        self.forget_undone(entry)
    }

    /// The change is rolled back, or nothing is left of it: restores what NetworkManager does not, and forgets it.
    pub(super) fn forget_undone(&self, entry: &Entry) -> Result<(), HostError> {
        scripts::restore(entry)?;
        self.journal.remove()
    }

    /// The note of a change that is not settled, as far as the note alone shows. A journal that cannot be understood is
    /// set aside, which is reported once.
    pub(super) fn journal_entry(&self) -> Result<Option<Entry>, HostError> {
        let entry = match self.journal.read()? {
            Found::Nothing => return Ok(None),
            Found::Entry(entry) => *entry,
            Found::Unreadable => return Err(HostError::SetAside(self.journal.set_aside(now())?)),
        };
        // It counts as open until everything is as before.
        let is_over = ownership::is_over(&entry, &Moment::now()) && self.forget_undone(&entry).is_ok();
        Ok(if is_over { None } else { Some(entry) })
    }
}

#[expect(clippy::disallowed_methods, reason = "a host reads the clock; this one dates files for people")]
fn now() -> Timestamp {
    Timestamp::from_second(Timestamp::now().as_second()).unwrap_or_default()
}

/// Counts an attempt that begins now. What is written stays if the process does not survive it.
fn begin_attempt(attempts: &mut Vec<Attempt>, at: &str) {
    if attempts.len() >= KEPT_ATTEMPTS {
        attempts.remove(0);
    }
    let why = "the agent ended during the attempt".to_owned();
    attempts.push(Attempt { at: at.to_owned(), why, is_final: false });
}

fn end_attempt(attempts: &mut [Attempt], error: &HostError) {
    if let Some(attempt) = attempts.last_mut() {
        attempt.why = error.to_string();
        attempt.is_final = !error.is_retryable();
    }
}

#[cfg(test)]
mod tests {
    use knmstate_document::Place;

    use super::*;

    #[test]
    fn an_attempt_counts_from_its_beginning_and_says_in_the_end_why_it_failed() {
        let mut attempts = Vec::new();
        begin_attempt(&mut attempts, "2026-01-01T00:00:00Z");
        assert_eq!((attempts.len(), attempts[0].is_final), (1, false));
        assert!(attempts[0].why.contains("ended"), "{attempts:?}");
        end_attempt(&mut attempts, &HostError::invalid(Place::interface("eth1"), "no such interface"));
        assert_eq!((&*attempts[0].why, attempts[0].is_final), ("interfaces[eth1]: no such interface", true));
        for _ in 0..100 {
            begin_attempt(&mut attempts, "2026-01-01T00:00:00Z");
        }
        assert_eq!(attempts.len(), KEPT_ATTEMPTS);
    }
}
