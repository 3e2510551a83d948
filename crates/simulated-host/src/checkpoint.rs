//! One change: begun, guarded by a timer, settled.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

use super::machine::{Inner, Shared};
use super::network::Network;
use knmstate_document::interface_name;
use knmstate_host::HostError;
use knmstate_host::{Checkpoint, Guard, OpenCheckpoint, SetAside, set_aside::is_given_up};

/// A change that the service guards. It lives and dies with the service.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) checkpoint: Checkpoint,
    pub(super) ours: bool,
    pub(super) before: Arc<Network>,
    pub(super) deadline: Instant,
    /// Left to another program until the deadline.
    pub(super) for_others: bool,
    timer: Option<Timer>,
}

/// A year is for ever here, and does not overflow any clock.
fn in_future(lasting: Duration) -> Instant {
    Instant::now() + lasting.min(Duration::from_hours(365 * 24))
}

/// What the agent has noted on the machine's disk before its change. It outlives the agent and the service.
#[derive(Debug)]
pub(super) struct Journal {
    pub(super) checkpoint: Checkpoint,
    pub(super) before: Arc<Network>,
    /// Of each failed attempt to roll it back, whether its error was final.
    failed: Vec<bool>,
}

impl Journal {
    pub(super) fn new(checkpoint: Checkpoint, before: Arc<Network>) -> Self {
        Self { checkpoint, before, failed: Vec::new() }
    }
}

/// A task that sleeps until the deadline; dropping it ends the task.
#[derive(Debug)]
struct Timer(AbortHandle);

impl Drop for Timer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Open {
    pub(super) fn new(
        shared: &Arc<Shared>,
        checkpoint: Checkpoint,
        ours: bool,
        before: Arc<Network>,
        lasting: Duration,
    ) -> Self {
        let deadline = in_future(lasting);
        Self { checkpoint, ours, before, deadline, for_others: false, timer: Timer::start(shared, deadline) }
    }

    /// Restarts the timer.
    pub(super) fn extend(&mut self, shared: &Arc<Shared>, lasting: Duration) {
        self.deadline = in_future(lasting);
        self.timer = Timer::start(shared, self.deadline);
    }

    pub(super) fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }
}

impl Timer {
    /// Only brings the machine to look at its clock in time. That is why it does no harm that there is none outside
    /// of a runtime: the next read of the machine finds the change rolled back all the same.
    fn start(shared: &Arc<Shared>, deadline: Instant) -> Option<Self> {
        let machine: Weak<Shared> = Arc::downgrade(shared);
        let task = Handle::try_current().ok()?.spawn(async move {
            sleep_until(deadline).await;
            if let Some(machine) = machine.upgrade() {
                drop(machine.lock());
            }
        });
        Some(Self(task.abort_handle()))
    }
}

impl Inner {
    /// Rolls back a change whose time has passed. Returns the network to go back to.
    pub(super) fn take_expired(&mut self) -> Option<Arc<Network>> {
        let expired = self.open.take_if(|open| open.deadline <= Instant::now())?;
        Some(expired.before)
    }

    /// Forgets the note about a change of which nothing is left.
    pub(super) fn tidy_journal(&mut self) {
        let guarded = |journal: &Journal, open: &Option<Open>| {
            open.as_ref().is_some_and(|open| open.checkpoint == journal.checkpoint)
        };
        let network = &self.network;
        let open = &self.open;
        self.journal.take_if(|journal| !guarded(journal, open) && journal.before == *network);
    }

    /// Everything that is neither committed nor rolled back.
    pub(super) fn unsettled(&mut self) -> Vec<OpenCheckpoint> {
        self.tidy_journal();
        let open = self.open.as_ref().map(|open| OpenCheckpoint {
            checkpoint: open.checkpoint.clone(),
            ours: open.ours,
            guard: Guard::RollsBackIn(open.remaining()),
            left_open: open.for_others.then(|| open.remaining()),
        });
        let left_behind = self.journal.as_ref().map(|journal| OpenCheckpoint {
            checkpoint: journal.checkpoint.clone(),
            ours: true,
            guard: Guard::Lost,
            left_open: None,
        });
        let left_behind =
            left_behind.filter(|left| open.as_ref().is_none_or(|open| open.checkpoint != left.checkpoint));
        open.into_iter().chain(left_behind).collect()
    }

    /// There is never more than one change at a time.
    pub(super) fn refuse_if_busy(&mut self) -> Result<(), HostError> {
        match self.unsettled().into_iter().next() {
            None => Ok(()),
            Some(other) => Err(HostError::Busy {
                checkpoint: other.checkpoint,
                rolls_back_in: match other.guard {
                    Guard::RollsBackIn(left) => Some(left),
                    Guard::Lost => None,
                },
            }),
        }
    }

    /// Ends the change and keeps what it did.
    pub(super) fn settle_by_keeping(&mut self, checkpoint: &Checkpoint) -> Result<(), HostError> {
        self.refuse_foreign(checkpoint)?;
        match self.open.take_if(|open| open.checkpoint == *checkpoint) {
            Some(_) => {
                self.journal = None;
                Ok(())
            }
            None => Err(HostError::CheckpointGone { checkpoint: checkpoint.clone() }),
        }
    }

    /// Ends the change and says what to go back to.
    pub(super) fn settle_by_going_back(
        &mut self,
        checkpoint: &Checkpoint,
    ) -> Result<Arc<Network>, HostError> {
        self.refuse_foreign(checkpoint)?;
        self.tidy_journal();
        let guarded = self.open.take_if(|open| open.checkpoint == *checkpoint).map(|open| open.before);
        let noted =
            self.journal.take_if(|journal| journal.checkpoint == *checkpoint).map(|journal| journal.before);
        guarded.or(noted).ok_or_else(|| HostError::CheckpointGone { checkpoint: checkpoint.clone() })
    }

    /// Counts a failed attempt to roll a change back. Returns its error, or that the change was given up.
    pub(super) fn roll_back_failed(&mut self, checkpoint: &Checkpoint, error: HostError) -> HostError {
        if matches!(error, HostError::Unavailable { .. } | HostError::Busy { .. }) {
            return error;
        }
        let Some(journal) = self.journal.as_mut().filter(|journal| journal.checkpoint == *checkpoint) else {
            return error;
        };
        journal.failed.push(!error.is_retryable());
        if !is_given_up(&journal.failed) {
            return error;
        }
        let (before, now) = (journal.before.document(), self.network.document());
        let touched =
            now.interfaces().map(interface_name).filter(|name| before.interface(name) != now.interface(name));
        let aside = SetAside {
            interfaces: touched.map(str::to_owned).collect(),
            why: error.to_string(),
            file: "/set-aside.json".to_owned(),
            ..SetAside::default()
        };
        self.set_aside.push(aside.clone());
        self.journal = None;
        // Until its time has passed, the service has a checkpoint that is not known to be ours.
        if let Some(open) = self.open.as_mut().filter(|open| open.checkpoint == *checkpoint) {
            open.ours = false;
        }
        HostError::SetAside(aside)
    }

    /// Leaves the change to another program from now on.
    pub(super) fn leave_open(
        &mut self,
        shared: &Arc<Shared>,
        checkpoint: &Checkpoint,
        lasting: Duration,
    ) -> Result<(), HostError> {
        self.refuse_foreign(checkpoint)?;
        match &mut self.open {
            Some(open) if open.checkpoint == *checkpoint => {
                open.for_others = true;
                open.extend(shared, lasting);
                Ok(())
            }
            _ => Err(HostError::CheckpointGone { checkpoint: checkpoint.clone() }),
        }
    }

    fn refuse_foreign(&self, checkpoint: &Checkpoint) -> Result<(), HostError> {
        match &self.open {
            Some(open) if open.checkpoint == *checkpoint && !open.ours => {
                Err(HostError::NotOurs { checkpoint: checkpoint.clone() })
            }
            _ => Ok(()),
        }
    }
}
