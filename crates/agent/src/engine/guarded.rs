//! One guarded change of the network: whoever makes it, by an order or by a command.
//!
//! ```text
//!   baseline: what works now?
//!     │
//!   begin ── refused, failed, or out of time ──► failed, as before
//!     │
//!   probes ── one that must pass fails, or we are told to stop ──► roll back ──► failed, as before
//!     │
//!   commit, or leave open ── the machine has forgotten the change ──► roll back ──► failed, as before
//!     ▼
//!   changed
//! ```
//!
//! Whatever kills us in between leaves a change that the machine takes back by itself, or that the next start rolls
//! back.

use std::time::Duration;

use knmstate_api::enactment::{ProbeResult, Timings};
use knmstate_core::{enactment::BACK_AS_BEFORE, probes::Probe, progress::Setback};
use knmstate_host::{Checkpoint, Host, HostError, NetworkState, OpenCheckpoint};
use tokio::{sync::watch, time::Instant};

use super::milliseconds;
use crate::probes::{Failed, Prober};

/// Why an attempt failed, and what follows from it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Failure {
    pub why: String,
    pub setback: Setback,
    /// The change could not be rolled back yet. Nothing else may be begun before it is.
    pub is_open: bool,
    pub probes: Vec<ProbeResult>,
}

/// What becomes of a change that has passed its probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conclusion {
    Commit,
    /// It is left to another program, for this time.
    LeaveOpen(Duration),
}

/// A change that has passed its probes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Kept {
    pub checkpoint: Checkpoint,
    pub probes: Vec<ProbeResult>,
}

/// What is to be changed, and what it has to stand.
pub(crate) struct Guarded<'a, H> {
    pub host: &'a H,
    pub prober: &'a Prober<H>,
    pub desired: &'a NetworkState,
    /// The network that it was worked out for.
    pub before: &'a NetworkState,
    pub probes: Vec<Probe>,
    /// How long the change may stay uncommitted before the machine takes it back.
    pub deadline: Duration,
    /// How long all probes together may take after it.
    pub probe_deadline: Duration,
    pub conclusion: Conclusion,
    pub stop: watch::Receiver<bool>,
}

impl<H: Host> Guarded<'_, H> {
    pub(crate) async fn carry_out(
        mut self,
        timings: &mut Timings,
        clock: &mut Laps,
    ) -> Result<Kept, Failure> {
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
            Some(Err(failed)) => Err(self.roll_back(&checkpoint, Failure::of_probe(failed)).await),
            None => Err(self.roll_back(&checkpoint, Failure::stopped()).await),
        };
        timings.conclude_milliseconds = Some(clock.lap());
        result
    }

    /// A change that failed has been undone by the host, unless its service died half-way.
    async fn after_failed_begin(&self, error: &HostError) -> Failure {
        let mut failure = Failure::of_host(error);
        failure.is_open = match self.host.open_checkpoints().await {
            Ok(open) => open.iter().any(OpenCheckpoint::is_ours_to_undo),
            Err(_) => true,
        };
        failure
    }

    async fn conclude(&self, checkpoint: Checkpoint, probes: Vec<ProbeResult>) -> Result<Kept, Failure> {
        let (concluded, what) = match self.conclusion {
            Conclusion::Commit => (self.host.commit(&checkpoint).await, "made permanent"),
            Conclusion::LeaveOpen(time) => (self.host.leave_open(&checkpoint, time).await, "left open"),
        };
        match concluded {
            Ok(()) => Ok(Kept { checkpoint, probes }),
            Err(error) => {
                let why = format!("the probes passed, but the change could not be {what}: {error}");
                let failure = Failure { why, setback: Setback::Again, is_open: false, probes };
                Err(self.roll_back(&checkpoint, failure).await)
            }
        }
    }

    /// Puts the network back, and says so in the failure.
    async fn roll_back(&self, checkpoint: &Checkpoint, mut failure: Failure) -> Failure {
        match self.host.roll_back(checkpoint).await {
            // Gone means that the machine was faster.
            Ok(()) | Err(HostError::CheckpointGone { .. }) => {
                failure.why.push_str(BACK_AS_BEFORE);
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
    fn of_probe(failed: Failed) -> Self {
        // What can never pass is cut off by the change itself: another attempt would only cut it off once more.
        let setback = if failed.hopeless { Setback::Final } else { Setback::Again };
        Self { why: failed.message, setback, is_open: false, probes: failed.results }
    }

    /// An earlier life has begun and not finished it.
    pub(crate) fn interrupted() -> Self {
        let why = "the agent ended in the middle of the change, which was rolled back".to_owned();
        Self { why, setback: Setback::Again, is_open: false, probes: Vec::new() }
    }

    fn stopped() -> Self {
        let why = "the agent was told to stop".to_owned();
        Self { why, setback: Setback::Again, is_open: false, probes: Vec::new() }
    }
}

/// Measures one step after another.
pub(crate) struct Laps(Instant);

impl Laps {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn lap(&mut self) -> i64 {
        let now = Instant::now();
        let lap = now - std::mem::replace(&mut self.0, now);
        milliseconds(lap)
    }
}

/// Waits until we are told to stop.
pub(crate) async fn stopped(stop: &mut watch::Receiver<bool>) {
    if stop.wait_for(|stop| *stop).await.is_err() {
        // Nobody is left who could tell.
        std::future::pending::<()>().await;
    }
}
