//! Write-behind: updates wait in an outbox until they can be written to the API server.
//!
//! [`Outbox`] decides which update is next: it keeps at most one update per key, of which a newer one replaces the one
//! before; at most one write per key is under way; each has an urgency, may have a time before which it is not written,
//! and after a failure waits longer each time. It reads no clock and does no I/O.
//!
//! [`SharedOutbox`] is for senders that write one update at a time: it holds the state that the updates are derived
//! from, and its [`run`](SharedOutbox::run) hands each update to a [`Writer`].

mod shared;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

pub use self::shared::{Pending, SharedOutbox, Writer};
use crate::call::Backoff;

/// How soon an update matters. More urgent ones are written first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// A node waits for it, or has to stop.
    Now,
    #[default]
    Soon,
    /// Only readers wait for it.
    Later,
}

const URGENCIES: [Urgency; 3] = [Urgency::Now, Urgency::Soon, Urgency::Later];

/// When an update is to be written.
#[derive(Clone, Copy, Debug, Default)]
pub struct Schedule {
    pub urgency: Urgency,
    /// Not before this time; at once if `None`.
    pub not_before: Option<Instant>,
    /// How long after this write the next one with the same key may begin.
    pub min_interval: Duration,
}

#[derive(Debug)]
struct Entry<U> {
    update: U,
    schedule: Schedule,
    /// After a failure: when the next attempt may begin.
    retry_at: Option<Instant>,
    backoff: Backoff,
}

#[derive(Debug)]
struct UnderWay {
    schedule: Schedule,
    backoff: Backoff,
}

/// Updates that are still to be written, at most one for each key.
#[derive(Debug)]
pub struct Outbox<K, U> {
    pending: BTreeMap<(Urgency, K), Entry<U>>,
    under_way: BTreeMap<K, UnderWay>,
    /// When the next write of a key may begin that has a minimum interval.
    next_write: BTreeMap<K, Instant>,
}

impl<K, U> Default for Outbox<K, U> {
    fn default() -> Self {
        Self { pending: BTreeMap::new(), under_way: BTreeMap::new(), next_write: BTreeMap::new() }
    }
}

impl<K: Ord + Clone, U> Outbox<K, U> {
    /// Adds an update, or replaces the pending one with this key. It does not wait for the back-off of the one before.
    pub fn put(&mut self, key: K, update: U, schedule: Schedule) {
        self.cancel(&key);
        let entry = Entry { update, schedule, retry_at: None, backoff: Backoff::new() };
        self.pending.insert((schedule.urgency, key), entry);
    }

    /// Removes the pending update with this key. One that is under way goes on.
    pub fn cancel(&mut self, key: &K) {
        for urgency in URGENCIES {
            self.pending.remove(&(urgency, key.clone()));
        }
    }

    /// Removes the pending updates for which `keep` is false.
    pub fn retain(&mut self, mut keep: impl FnMut(&K, &U) -> bool) {
        self.pending.retain(|(_, key), entry| keep(key, &entry.update));
    }

    /// The pending update with this key.
    pub fn get(&self, key: &K) -> Option<&U> {
        let entry = URGENCIES.iter().find_map(|urgency| self.pending.get(&(*urgency, key.clone())))?;
        Some(&entry.update)
    }

    /// The keys of all pending updates, the most urgent first.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &K> {
        self.pending.keys().map(|(_, key)| key)
    }

    /// How many updates are pending. Those under way do not count.
    pub fn len(&self) -> usize {
        self.pending.len()
    }

    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// The most urgent update that may be written now. Its key is under way until [`done`](Self::done) or
    /// [`failed`](Self::failed).
    pub fn take(&mut self, now: Instant) -> Option<(K, U)> {
        let is_due = |(_, key): &(Urgency, K), entry: &Entry<U>| {
            !self.under_way.contains_key(key) && self.due_at(key, entry).is_none_or(|due| due <= now)
        };
        let id = self.pending.iter().find(|(id, entry)| is_due(id, entry)).map(|(id, _)| id.clone())?;
        let Entry { update, schedule, backoff, .. } = self.pending.remove(&id)?;
        let (_, key) = id;
        self.under_way.insert(key.clone(), UnderWay { schedule, backoff });
        self.next_write.retain(|_, time| *time > now);
        if !schedule.min_interval.is_zero() {
            self.next_write.insert(key.clone(), now + schedule.min_interval);
        }
        Some((key, update))
    }

    /// When [`take`](Self::take) may next return an update; `None` if only [`put`](Self::put), [`done`](Self::done) or
    /// [`failed`](Self::failed) can change that. A time that is not after now means at once.
    pub fn next_at(&self) -> Option<Instant> {
        let waiting = self.pending.iter().filter(|((_, key), _)| !self.under_way.contains_key(key));
        waiting.filter_map(|((_, key), entry)| self.due_at(key, entry)).min()
    }

    /// The update with this key was written.
    pub fn done(&mut self, key: &K) {
        self.under_way.remove(key);
    }

    /// The update with this key could not be written. It waits for its next attempt, longer each time, unless a newer
    /// one is pending, which then takes its place.
    pub fn failed(&mut self, key: K, update: U, now: Instant) {
        let Some(UnderWay { schedule, mut backoff }) = self.under_way.remove(&key) else { return };
        if self.get(&key).is_none() {
            let retry_at = Some(now + backoff.next_delay());
            let entry = Entry { update, schedule, retry_at, backoff };
            self.pending.insert((schedule.urgency, key), entry);
        }
    }

    /// Ends the back-off of all updates, as when the API server is back. Other waiting times stay.
    pub fn retry_now(&mut self) {
        for entry in self.pending.values_mut() {
            entry.retry_at = None;
        }
    }

    fn due_at(&self, key: &K, entry: &Entry<U>) -> Option<Instant> {
        let times = [entry.schedule.not_before, entry.retry_at, self.next_write.get(key).copied()];
        times.into_iter().flatten().max()
    }
}
