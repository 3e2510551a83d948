//! One change of the network under a checkpoint and probes, for an order or for a command.
//!
//! ```text
//!   baseline of the probes
//!     │
//!   begin ── refused, failed, or out of time ──► failed, rolled back
//!     │
//!   probes ── one that must pass fails, or the process is stopped ──► roll back ──► failed, rolled back
//!     │
//!   commit, or leave open ── the checkpoint no longer exists ──► roll back ──► failed, rolled back
//!     ▼
//!   changed
//! ```
//!
//! If the process is killed in between, NetworkManager rolls the change back at its deadline, or the next start does.

use std::time::Duration;

use knmstate_api::enactment::{ProbeResult, Timings};
use knmstate_core::{FailureKind, enactment::ROLLED_BACK, probes::Probe};
use knmstate_host::{Checkpoint, Host, HostError, NetworkState, OpenCheckpoint};
use tokio::{sync::watch, time::Instant};

use super::milliseconds;
use crate::probes::{Prober, ProbesFailed};

/// Why an attempt failed, and whether it can be retried.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Failure {
    pub why: String,
    pub kind: FailureKind,
    /// The change could not be rolled back yet. No other change may begin before it is.
    pub is_open: bool,
    pub probes: Vec<ProbeResult>,
}

/// What to do with a change that has passed its probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conclusion {
    /// Make it permanent.
    Commit,
    /// Leave it open for this time: another program commits it or rolls it back.
    LeaveOpen(Duration),
}

/// A change that has passed its probes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PassedChange {
    pub checkpoint: Checkpoint,
    pub probes: Vec<ProbeResult>,
}

/// A desired state, and the probes that it has to pass.
pub(crate) struct GuardedChange<'a, H> {
    pub host: &'a H,
    pub prober: &'a Prober<H>,
    pub desired: &'a NetworkState,
    /// The network that the change was planned for.
    pub before: &'a NetworkState,
    pub probes: Vec<Probe>,
    /// How long the change may stay uncommitted before NetworkManager rolls it back.
    pub deadline: Duration,
    /// How long all probes together may take after the change.
    pub probe_deadline: Duration,
    pub conclusion: Conclusion,
    pub stop: watch::Receiver<bool>,
}

impl<H: Host> GuardedChange<'_, H> {
    pub(crate) async fn run(
        mut self,
        timings: &mut Timings,
        clock: &mut Stopwatch,
    ) -> Result<PassedChange, Failure> {
        let baseline = self.prober.baseline(&self.probes, self.before).await;
        timings.baseline_milliseconds = Some(clock.lap());

        let begun = self.host.begin(self.desired, self.deadline).await;
        timings.apply_milliseconds = Some(clock.lap());
        let checkpoint = match begun {
            Ok(checkpoint) => checkpoint,
            Err(error) => return Err(self.after_failed_begin(&error).await),
        };

        let verdict = tokio::select! {
            verdict = self.prober.after(&self.probes, &baseline, self.probe_deadline) => Some(verdict),
            () = stopped(&mut self.stop) => None,
        };
        timings.probe_milliseconds = Some(clock.lap());
        let result = match verdict {
            Some(Ok(results)) => self.conclude(checkpoint, results).await,
            Some(Err(failed)) => Err(self.roll_back(&checkpoint, Failure::of_probes(failed)).await),
            None => Err(self.roll_back(&checkpoint, Failure::stopped()).await),
        };
        timings.conclude_milliseconds = Some(clock.lap());
        result
    }

    /// The failure of a change that the host could not apply. The host has rolled it back, unless NetworkManager died
    /// meanwhile.
    async fn after_failed_begin(&self, error: &HostError) -> Failure {
        let mut failure = Failure::of_host(error);
        failure.is_open = match self.host.open_checkpoints().await {
            Ok(open) => open.iter().any(OpenCheckpoint::is_ours_to_undo),
            Err(_) => true,
        };
        failure
    }

    async fn conclude(
        &self,
        checkpoint: Checkpoint,
        probes: Vec<ProbeResult>,
    ) -> Result<PassedChange, Failure> {
        let (concluded, what) = match self.conclusion {
            Conclusion::Commit => (self.host.commit(&checkpoint).await, "made permanent"),
            Conclusion::LeaveOpen(time) => (self.host.leave_open(&checkpoint, time).await, "left open"),
        };
        match concluded {
            Ok(()) => Ok(PassedChange { checkpoint, probes }),
            Err(error) => {
                let why = format!("the probes passed, but the change could not be {what}: {error}");
                let failure = Failure { why, kind: FailureKind::Retryable, is_open: false, probes };
                Err(self.roll_back(&checkpoint, failure).await)
            }
        }
    }

    /// Rolls the change back, and adds the result of that to the failure.
    async fn roll_back(&self, checkpoint: &Checkpoint, mut failure: Failure) -> Failure {
        match self.host.roll_back(checkpoint).await {
            // The checkpoint no longer exists: NetworkManager has rolled back itself.
            Ok(()) | Err(HostError::CheckpointGone { .. }) => {
                failure.why.push_str(ROLLED_BACK);
            }
            Err(error) => {
                failure.is_open = true;
                failure.why.push_str("; rolling back was not possible yet and is tried again: ");
                failure.why.push_str(&error.to_string());
            }
        }
        failure
    }
}

impl Failure {
    fn of_probes(failed: ProbesFailed) -> Self {
        // The change itself has removed what the probe needs: another attempt would remove it again.
        let kind = if failed.cannot_pass { FailureKind::Final } else { FailureKind::Retryable };
        Self { why: failed.message, kind, is_open: false, probes: failed.results }
    }

    /// An earlier process has begun an attempt, or the change itself, and not finished it.
    pub(crate) fn interrupted(was_changing: bool) -> Self {
        let why = if was_changing {
            "the agent ended in the middle of the change, which was rolled back".to_owned()
        } else {
            "the agent ended while it prepared the change; nothing was touched".to_owned()
        };
        Self { why, kind: FailureKind::Retryable, is_open: false, probes: Vec::new() }
    }

    fn stopped() -> Self {
        let why = "the agent was stopped".to_owned();
        Self { why, kind: FailureKind::Retryable, is_open: false, probes: Vec::new() }
    }
}

/// Measures the steps of a change, one after another.
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// The milliseconds since the start or the last lap.
    pub(crate) fn lap(&mut self) -> i64 {
        let now = Instant::now();
        let lap = now - std::mem::replace(&mut self.0, now);
        milliseconds(lap)
    }
}

/// Waits for the request to stop.
pub(crate) async fn stopped(stop: &mut watch::Receiver<bool>) {
    if stop.wait_for(|stop| *stop).await.is_err() {
        // The sender is gone, so the request cannot come any more.
        std::future::pending::<()>().await;
    }
}
