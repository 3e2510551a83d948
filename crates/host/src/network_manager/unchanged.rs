//! A change that changes nothing, because the network is as desired already.
//!
//! NetworkManager makes no checkpoint for it. The caller gets one all the same and has to settle it like any other.

use std::time::Duration;

use tokio::time::Instant;

use super::service;
use crate::host::{Checkpoint, Guard, OpenCheckpoint};

/// What the names of such checkpoints begin with. NetworkManager's begin with a slash.
pub(super) const PREFIX: &str = "unchanged/";

#[derive(Debug, Default)]
pub(super) struct Unchanged {
    made: u64,
    open: Option<(Checkpoint, Instant)>,
}

impl Unchanged {
    pub(super) fn begin(&mut self, deadline: Duration) -> Checkpoint {
        self.made += 1;
        // The time keeps those of different processes apart.
        let checkpoint = Checkpoint::new(format!("{PREFIX}{}-{}", service::boot_time_ms(), self.made));
        self.open = Some((checkpoint.clone(), Instant::now() + deadline));
        checkpoint
    }

    /// Settles it, in either way; false when it is not open.
    pub(super) fn settle(&mut self, checkpoint: &Checkpoint) -> bool {
        self.forget_if_expired();
        self.open.take_if(|(open, _)| open == checkpoint).is_some()
    }

    pub(super) fn open(&mut self) -> Option<OpenCheckpoint> {
        self.forget_if_expired();
        self.open.as_ref().map(|(checkpoint, end)| OpenCheckpoint {
            checkpoint: checkpoint.clone(),
            ours: true,
            guard: Guard::RollsBackIn(end.saturating_duration_since(Instant::now())),
            left_open: None,
        })
    }

    fn forget_if_expired(&mut self) {
        self.open.take_if(|(_, end)| Instant::now() >= *end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_is_settled_once_and_forgotten_in_time() {
        let mut unchanged = Unchanged::default();
        let first = unchanged.begin(Duration::from_secs(5));
        assert_eq!(unchanged.open().map(|open| open.guard), Some(Guard::RollsBackIn(Duration::from_secs(5))));
        assert!(unchanged.settle(&first));
        assert!(!unchanged.settle(&first));

        let second = unchanged.begin(Duration::from_secs(5));
        assert_ne!(first, second);
        tokio::time::advance(Duration::from_secs(6)).await;
        assert_eq!(unchanged.open(), None);
        assert!(!unchanged.settle(&second));
    }
}
