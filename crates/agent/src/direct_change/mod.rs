//! A change of the network that is not an order of the node, but made by a command for another program.
//!
//! It takes the same steps as an order, with the same journal, checkpoint and probes. The caller holds the
//! [`WorkLock`](crate::WorkLock) of the node meanwhile. So a change that is open and was not left open on purpose can
//! only come from a process that died.

mod request;
mod settle;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, slice, time::Duration};

use knmstate_api::{
    NodeNetworkConfigurationEnactmentSpec,
    enactment::{ProbeResult, Timings},
};
use knmstate_core::{enactment::ROLLED_BACK, probes::ApiAccess};
use knmstate_host::{Checkpoint, Guard, Host, HostError, NetworkState, Topic};
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};

pub use self::{
    request::ChangeRequest,
    settle::{SettleResult, commit_open_change, roll_back_open_change},
};
use crate::{
    engine::{
        Conclusion, EngineSettings, RolledBack,
        guarded_change::{Failure, GuardedChange, Stopwatch},
        prepare::{PreparedOrder, prepare},
        roll_back_ours,
        transaction::{add_warnings, wait_for},
    },
    probes::Prober,
};

/// How long to wait for NetworkManager when it died during the change. After that the change stays open; the journal
/// has it, and the next command or the handler rolls it back.
const ROLL_BACK_TIMEOUT: Duration = Duration::from_secs(30);

/// The time between the first two attempts to roll back, unless NetworkManager comes back earlier; then twice as long
/// each time. The host counts the attempts, and a command is no reason to give up sooner than the handler would.
const FIRST_PAUSE: Duration = Duration::from_secs(2);

/// One change, and how to make it.
#[derive(Debug)]
pub struct DirectChange<'a, H> {
    pub host: &'a H,
    pub prober: &'a Prober<H>,
    pub request: ChangeRequest,
    /// How long the change may stay uncommitted while it is made and probed.
    pub timeout: Duration,
    /// Whether to run probes.
    pub probes: bool,
    /// Whether there is an API server that probes can ask.
    pub api: ApiAccess,
    /// What to do when the probes have passed.
    pub conclusion: Conclusion,
    /// Becomes true at the request to stop, which rolls the change back.
    pub stop: watch::Receiver<bool>,
}

/// How a direct change ended.
#[derive(Clone, Debug, PartialEq)]
pub enum DirectChangeResult {
    /// The network was as desired already, and nothing was touched. There is a checkpoint if the change was to be left
    /// open.
    Unchanged { checkpoint: Option<Checkpoint> },
    /// The change is applied: committed, or open until another program settles its checkpoint.
    Changed { checkpoint: Checkpoint, probes: Vec<ProbeResult>, notes: Vec<String> },
    /// The change could not begin, and nothing was touched.
    Refused(HostError),
    /// The change began and failed. `as_before`: it was rolled back; otherwise the state of the network is not known.
    Failed { why: String, probes: Vec<ProbeResult>, as_before: bool },
}

impl<H: Host> DirectChange<'_, H> {
    /// Makes the change. First rolls back a change that a process which died has left open.
    pub async fn run(self) -> DirectChangeResult {
        if let Err(error) = roll_back_ours(self.host).await {
            let why = format!("an earlier change is still open and cannot be rolled back: {error}");
            return DirectChangeResult::Failed { why, probes: Vec::new(), as_before: false };
        }
        match self.steps().await {
            Ok(end) => end,
            Err(error) => DirectChangeResult::Refused(error),
        }
    }

    /// An error means that nothing was touched.
    async fn steps(self) -> Result<DirectChangeResult, HostError> {
        if let Some(open) = self.host.open_checkpoints().await?.into_iter().next() {
            let rolls_back_in = match open.guard {
                // In whole seconds, because this becomes a message.
                Guard::RollsBackIn(left) => Some(Duration::from_secs(left.as_secs())),
                Guard::Lost => None,
            };
            return Err(HostError::Busy { checkpoint: open.checkpoint, rolls_back_in });
        }
        let current = self.host.observe().await?;
        let mut prepared = self.prepare(&current).await?;
        let plan = self.host.plan(&prepared.desired).await?;
        add_warnings(slice::from_mut(&mut prepared), &plan.warnings);
        if plan.is_empty() {
            return self.unchanged(&prepared.desired).await;
        }
        tracing::info!(difference = %plan.difference.into_value(), "changing the network");
        let guarded = GuardedChange {
            host: self.host,
            prober: self.prober,
            desired: &prepared.desired,
            before: &plan.before,
            probes: if self.probes { prepared.probes } else { Vec::new() },
            deadline: prepared.transaction_deadline,
            probe_deadline: prepared.probe_deadline,
            conclusion: self.conclusion,
            stop: self.stop.clone(),
        };
        Ok(match guarded.run(&mut Timings::default(), &mut Stopwatch::start()).await {
            Ok(passed) => DirectChangeResult::Changed {
                checkpoint: passed.checkpoint,
                probes: passed.probes,
                notes: prepared.notes,
            },
            Err(failure) => self.failed(failure).await,
        })
    }

    async fn prepare(&self, current: &NetworkState) -> Result<PreparedOrder, HostError> {
        let settings = EngineSettings {
            transaction: self.timeout,
            bridge_defaults: self.request.bridge_defaults,
            ..EngineSettings::new(String::new())
        };
        let spec = NodeNetworkConfigurationEnactmentSpec { deadlines: None, ..self.request.spec.clone() };
        let abilities = self.host.abilities().await;
        prepare("", &spec, &BTreeMap::new(), current, abilities, &settings, self.api)
    }

    /// With `LeaveOpen` the caller gets a checkpoint all the same, and settles it like any other.
    async fn unchanged(&self, desired: &NetworkState) -> Result<DirectChangeResult, HostError> {
        let Conclusion::LeaveOpen(time) = self.conclusion else {
            return Ok(DirectChangeResult::Unchanged { checkpoint: None });
        };
        let checkpoint = self.host.begin(desired, self.timeout).await?;
        self.host.leave_open(&checkpoint, time).await?;
        Ok(DirectChangeResult::Unchanged { checkpoint: Some(checkpoint) })
    }

    async fn failed(&self, failure: Failure) -> DirectChangeResult {
        let Failure { mut why, is_open, probes, .. } = failure;
        if !is_open {
            return DirectChangeResult::Failed { why, probes, as_before: true };
        }
        let as_before = self.rolled_back_in_time().await;
        why.push_str(if as_before {
            ROLLED_BACK
        } else {
            "; the state of the network is not known; the next command or the handler rolls the change back, unless it \
             was given up"
        });
        DirectChangeResult::Failed { why, probes, as_before }
    }

    async fn rolled_back_in_time(&self) -> bool {
        let end = Instant::now() + ROLL_BACK_TIMEOUT;
        let (mut events, mut pause) = (self.host.events(), FIRST_PAUSE);
        loop {
            match roll_back_ours(self.host).await {
                Ok(rolled_back) => return rolled_back == RolledBack::AsBefore,
                Err(error) if Instant::now() >= end => {
                    tracing::warn!(%error, "the change could not be rolled back");
                    return false;
                }
                Err(_) => {
                    let _ = timeout(pause, wait_for(&mut events, Topic::ServiceBack)).await;
                    pause *= 2;
                }
            }
        }
    }
}
