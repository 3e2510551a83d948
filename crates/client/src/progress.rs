//! Whether the loops of a process make progress, for kubelet.
//!
//! A loop declares each of its turns, and how long a turn may take. The limit is longer than the turn takes while the
//! API server does not respond: a restart does not help then.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// The turns under way. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<Mutex<BTreeMap<&'static str, Instant>>>);

/// A turn, which ends when this is dropped.
#[derive(Debug)]
pub struct Turn {
    progress: Progress,
    name: &'static str,
    end: Instant,
}

impl Progress {
    /// Begins a turn of this loop, which has to end within `limit`.
    pub fn begin(&self, name: &'static str, limit: Duration) -> Turn {
        let end = Instant::now() + limit;
        self.with_turns(|turns| turns.insert(name, end));
        Turn { progress: self.clone(), name, end }
    }

    /// The loops whose turn takes longer than it may.
    pub fn hung(&self) -> Vec<&'static str> {
        let now = Instant::now();
        self.with_turns(|turns| turns.iter().filter(|(_, end)| **end < now).map(|(name, _)| *name).collect())
    }

    fn with_turns<T>(&self, f: impl FnOnce(&mut BTreeMap<&'static str, Instant>) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.progress.with_turns(|turns| {
            // The next turn may have begun before this one is dropped.
            if turns.get(self.name) == Some(&self.end) {
                turns.remove(self.name);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_hangs_is_named() {
        let progress = Progress::default();
        let quick = progress.begin("quick", Duration::from_secs(10));
        let slow = progress.begin("slow", Duration::from_mins(1));
        assert!(progress.hung().is_empty());
        advance(Duration::from_secs(11)).await;
        assert_eq!(progress.hung(), ["quick"]);
        let next = progress.begin("quick", Duration::from_secs(10));
        drop(quick);
        assert!(progress.hung().is_empty(), "it goes on");
        advance(Duration::from_mins(1)).await;
        assert_eq!(progress.hung(), ["quick", "slow"]);
        drop((next, slow));
        assert!(progress.hung().is_empty(), "a turn that has ended does not count");
    }
}
