//! Whether this process leads, and until when it may write.
//!
//! The clock of timers stands still while a machine is suspended, and leases expire meanwhile. So each deadline is kept on
//! two clocks, and the one that passes first counts.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use tokio::{
    sync::watch as channel,
    time::{Instant, sleep_until},
};

/// Until when a holder of the lease may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WriteDeadline {
    /// On the clock of timers.
    pub instant: Instant,
    /// On the clock that counts suspension.
    pub since_boot: Duration,
}

/// Whether this process leads, and until when it may write.
#[derive(Clone, Debug)]
pub struct Leadership {
    deadline: channel::Receiver<Option<WriteDeadline>>,
    since_boot: fn() -> Duration,
}

impl Leadership {
    /// `since_boot` is the clock that counts suspension.
    pub(crate) fn new(
        deadline: channel::Receiver<Option<WriteDeadline>>,
        since_boot: fn() -> Duration,
    ) -> Self {
        Self { deadline, since_boot }
    }

    /// Until when this process may write; `None` when it must not.
    pub fn may_write_until(&self) -> Option<Instant> {
        let deadline = (*self.deadline.borrow())?;
        let left = deadline.since_boot.checked_sub((self.since_boot)())?;
        let now = Instant::now();
        Some(deadline.instant.min(now + left)).filter(|until| *until > now)
    }

    /// Waits until this process leads.
    pub async fn gained(&mut self) {
        while self.may_write_until().is_none() {
            if self.deadline.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    /// Waits until it no longer does.
    pub async fn lost(&mut self) {
        while let Some(until) = self.may_write_until() {
            tokio::select! {
                changed = self.deadline.changed() => if changed.is_err() { return },
                () = sleep_until(until) => {}
            }
        }
    }
}

/// The time since the machine was started, including the time that it was suspended.
pub(crate) fn time_since_boot() -> Duration {
    // The clock exists on every kernel that this program runs on. Without it, no deadline would pass on it.
    clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RENEWED: Duration = Duration::from_secs(1000);
    const WITHIN: Duration = Duration::from_secs(10);

    /// A holder that has just renewed its lease, by this clock.
    fn renewed(since_boot: fn() -> Duration) -> (channel::Sender<Option<WriteDeadline>>, Leadership) {
        let deadline = WriteDeadline { instant: Instant::now() + WITHIN, since_boot: RENEWED + WITHIN };
        let (sender, receiver) = channel::channel(Some(deadline));
        (sender, Leadership::new(receiver, since_boot))
    }

    #[tokio::test(start_paused = true)]
    async fn a_holder_writes_until_its_deadline() {
        let (sender, mut leadership) = renewed(|| RENEWED);
        assert_eq!(leadership.may_write_until(), Some(Instant::now() + WITHIN));
        tokio::time::advance(WITHIN).await;
        assert_eq!(leadership.may_write_until(), None);
        leadership.lost().await;
        sender.send_replace(None);
        assert_eq!(leadership.may_write_until(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_machine_that_was_suspended_does_not_write_after_its_deadline() {
        let (_sender, mut leadership) = renewed(|| RENEWED + Duration::from_secs(11));
        assert_eq!(leadership.may_write_until(), None);
        leadership.lost().await;

        let (_sender, leadership) = renewed(|| RENEWED + Duration::from_secs(7));
        assert_eq!(leadership.may_write_until(), Some(Instant::now() + Duration::from_secs(3)));
    }
}
