//! The node's disk, while it takes no writes: it is full, read-only, or broken.
//!
//! A restart would not mend it, so the engine goes on: it keeps in memory what it learns, begins nothing that is not in
//! the ledger, and tries again until the disk takes writes.

use std::io;

use knmstate_client::call::Backoff;
use tokio::time::Instant;

use crate::health::Health;

/// What is known about the disk.
#[derive(Debug)]
pub(super) struct Disk {
    health: Health,
    failure: Option<DiskFailure>,
}

#[derive(Debug)]
struct DiskFailure {
    why: String,
    backoff: Backoff,
}

impl Disk {
    pub(super) fn new(health: Health) -> Self {
        Self { health, failure: None }
    }

    /// The ledger could not be written. Returns when to try again.
    pub(super) fn failed(&mut self, error: &io::Error) -> Instant {
        let why = error.to_string();
        let failure =
            self.failure.get_or_insert_with(|| DiskFailure { why: String::new(), backoff: Backoff::new() });
        if failure.why != why {
            tracing::error!(
                "{why}: no order is applied until this works; free space, or make the file system writable. \
                 It is tried again"
            );
            self.health.set_problem(Some(format!("no order is applied: {why}")));
            failure.why = why;
        }
        Instant::now() + failure.backoff.next_delay()
    }

    /// Everything is on disk. True if it was not before.
    pub(super) fn works(&mut self) -> bool {
        let had_failed = self.failure.take().is_some();
        if had_failed {
            tracing::info!("the node's disk takes writes again; orders are applied");
            self.health.set_problem(None);
        }
        had_failed
    }
}
