//! One guarded change of the network, from the last look before it to its end.
//!
//! ```text
//!   plan ── nothing to do ──► unchanged
//!     │
//!   baseline: what works now?
//!     │
//!   begin ── refused, failed, or out of time ──► failed, as before
//!     │
//!   probes ── one that must pass fails, or we are told to stop ──► roll back ──► failed, as before
//!     │
//!   commit ── the machine has forgotten the change ──► roll back ──► failed, as before
//!     ▼
//!   changed
//! ```
//!
//! Whatever kills us in between leaves a change that the machine takes back by itself, or that the next start rolls
//! back.

use std::time::Duration;

use knmstate_api::enactment::{ProbeResult, Timings};
use knmstate_core::{
    probes::Probe,
    progress::{Progress, Setback},
};
use knmstate_host::{Checkpoint, Events, Host, HostError, NetworkState, OpenCheckpoint, Topic};
use tokio::{sync::watch, time::Instant};

use super::{enactments::Enactments, milliseconds, prepare::Prepared};
use crate::{
    probes::{Failed, Prober},
    store::Store,
};

/// Why an attempt failed, and what follows from it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Failure {
    pub why: String,
    pub setback: Setback,
    /// The change could not be rolled back yet. Nothing else may be begun before it is.
    pub is_open: bool,
    pub probes: Vec<ProbeResult>,
}

/// How a transaction ended.
#[derive(Debug)]
pub(super) enum End {
    Unchanged(Timings),
    Changed {
        took: Duration,
        timings: Timings,
        probes: Vec<ProbeResult>,
    },
    Failed {
        failure: Failure,
        timings: Timings,
    },
    /// We were told to stop. The network is as before, or will be: the next start sees to it.
    Stopped,
}

/// One or several orders, to be carried out as one change.
pub(super) struct Transaction<'a, H, S> {
    pub host: &'a H,
    pub prober: &'a Prober<H>,
    pub enactments: &'a mut Enactments<S>,
    pub progress: &'a Progress,
    pub orders: &'a [&'a Prepared],
    pub desired: NetworkState,
    pub stop: watch::Receiver<bool>,
}

impl<H: Host, S: Store> Transaction<'_, H, S> {
    pub(super) async fn carry_out(mut self) -> End {
        let mut timings = Timings::default();
        let begun = Instant::now();
        let result = self.steps(&mut timings).await;
        match result {
            Ok(Some(probes)) => End::Changed { took: begun.elapsed(), timings, probes },
            Ok(None) => End::Unchanged(timings),
            Err(_) if *self.stop.borrow() => End::Stopped,
            Err(failure) => End::Failed { failure, timings },
        }
    }

    /// `None` when there was nothing to do.
    async fn steps(&mut self, timings: &mut Timings) -> Result<Option<Vec<ProbeResult>>, Failure> {
        let mut clock = Laps::start();
        let plan = self.host.plan(&self.desired).await.map_err(|error| Failure::of_host(&error))?;
        timings.prepare_milliseconds = Some(clock.lap());
        if plan.is_empty() {
            return Ok(None);
        }
        let policies: Vec<&str> = self.orders.iter().map(|order| &*order.policy).collect();
        tracing::info!(?policies, difference = %plan.difference.into_value(), "the network is about to be changed");
        for order in self.orders {
            let failures = self.progress.failures(&order.policy);
            self.enactments.begun(order, failures).map_err(|error| cannot_note(&error))?;
        }
        let probes = self.probes();
        let current = self.host.observe().await.map_err(|error| Failure::of_host(&error))?;
        let baseline = self.prober.baseline(&probes, &current).await;
        timings.baseline_milliseconds = Some(clock.lap());

        let deadline = self.orders.iter().map(|order| order.transaction_deadline).max().unwrap_or_default();
        let begun = self.host.begin(&self.desired, deadline).await;
        timings.apply_milliseconds = Some(clock.lap());
        let checkpoint = match begun {
            Ok(checkpoint) => checkpoint,
            Err(error) => return Err(self.after_failed_begin(&error).await),
        };

        let limit = self.orders.iter().map(|order| order.probe_deadline).max().unwrap_or_default();
        let verdict = tokio::select! {
            verdict = self.prober.after(&probes, &baseline, limit) => Some(verdict),
            () = stopped(&mut self.stop) => None,
        };
        timings.probe_milliseconds = Some(clock.lap());
        let result = match verdict {
            Some(Ok(results)) => self.commit(&checkpoint, results).await,
            Some(Err(failed)) => Err(self.roll_back(&checkpoint, Failure::of_probe(failed)).await),
            None => Err(self.roll_back(&checkpoint, Failure::stopped()).await),
        };
        timings.conclude_milliseconds = Some(clock.lap());
        result.map(Some)
    }

    /// The probes of all orders; those that several ask for, once.
    fn probes(&self) -> Vec<Probe> {
        let mut probes: Vec<Probe> = Vec::new();
        for probe in self.orders.iter().flat_map(|order| &order.probes) {
            if !probes.contains(probe) {
                probes.push(probe.clone());
            }
        }
        probes
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

    async fn commit(
        &self,
        checkpoint: &Checkpoint,
        results: Vec<ProbeResult>,
    ) -> Result<Vec<ProbeResult>, Failure> {
        match self.host.commit(checkpoint).await {
            Ok(()) => Ok(results),
            Err(error) => {
                let why = format!("the probes passed, but the change could not be made permanent: {error}");
                let failure = Failure { why, setback: Setback::Again, is_open: false, probes: results };
                Err(self.roll_back(checkpoint, failure).await)
            }
        }
    }

    /// Puts the network back, and says so in the failure.
    async fn roll_back(&self, checkpoint: &Checkpoint, mut failure: Failure) -> Failure {
        match self.host.roll_back(checkpoint).await {
            // Gone means that the machine was faster.
            Ok(()) | Err(HostError::CheckpointGone { .. }) => {
                failure.why.push_str("; rolled back: the network is as it was before");
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
    pub(super) fn interrupted() -> Self {
        let why = "the agent ended in the middle of the change, which was rolled back".to_owned();
        Self { why, setback: Setback::Again, is_open: false, probes: Vec::new() }
    }

    fn stopped() -> Self {
        let why = "the agent was told to stop".to_owned();
        Self { why, setback: Setback::Again, is_open: false, probes: Vec::new() }
    }
}

fn cannot_note(error: &std::io::Error) -> Failure {
    Failure {
        why: format!("the order could not be noted on the node's disk, so nothing was touched: {error}"),
        setback: Setback::Again,
        is_open: false,
        probes: Vec::new(),
    }
}

/// Measures one step after another.
struct Laps(Instant);

impl Laps {
    fn start() -> Self {
        Self(Instant::now())
    }

    fn lap(&mut self) -> i64 {
        let now = Instant::now();
        let lap = now - std::mem::replace(&mut self.0, now);
        milliseconds(lap)
    }
}

/// Waits until we are told to stop.
pub(super) async fn stopped(stop: &mut watch::Receiver<bool>) {
    if stop.wait_for(|stop| *stop).await.is_err() {
        // Nobody is left who could tell.
        std::future::pending::<()>().await;
    }
}

/// Waits until something of this topic happens; for ever when nothing will any more.
pub(super) async fn wait_for(events: &mut Events, topic: Topic) {
    loop {
        match events.next().await {
            Some(changes) if changes.contains(topic) => return,
            Some(_) => {}
            None => std::future::pending().await,
        }
    }
}
