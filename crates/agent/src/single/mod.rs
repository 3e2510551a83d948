//! One change that is no order of the node: made for a program that drives the machine itself.
//!
//! It goes through the same steps as an order, under the same note on disk, checkpoint and probes. Whoever calls holds
//! the [`WorkLock`](crate::work_lock::WorkLock) of the machine meanwhile, so that what is open and not left open can
//! only be the rest of a process that died.

mod document;
mod settle;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, slice, time::Duration};

use knmstate_api::{
    NodeNetworkConfigurationEnactmentSpec,
    enactment::{ProbeResult, Timings},
};
use knmstate_core::{enactment::BACK_AS_BEFORE, probes::ApiAccess};
use knmstate_host::{Checkpoint, Guard, Host, HostError, NetworkState, Topic};
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};

pub use self::{
    document::{Wish, read},
    settle::{Settled, commit, roll_back},
};
use crate::{
    engine::{
        Conclusion, Settings,
        guarded::{Failure, Guarded, Laps},
        prepare::{Prepared, prepare},
        roll_back_ours,
        transaction::{take_note, wait_for},
    },
    probes::Prober,
};

/// How long NetworkManager is waited for when it died half-way, before the change is left as it is: noted, for the next
/// start of anything of ours.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often that is tried again when nothing is heard of it.
const PAUSE: Duration = Duration::from_secs(2);

/// One change, and how to go about it.
#[derive(Debug)]
pub struct Single<'a, H> {
    pub host: &'a H,
    pub prober: &'a Prober<H>,
    pub wish: Wish,
    /// How long the change may stay uncommitted while it is made.
    pub timeout: Duration,
    /// Whether probes are run at all.
    pub probes: bool,
    pub api: ApiAccess,
    pub conclusion: Conclusion,
    pub stop: watch::Receiver<bool>,
}

/// How a single change ended.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    /// It was so already, and nothing was touched. What is left open all the same has a checkpoint.
    Unchanged { checkpoint: Option<Checkpoint> },
    /// It is in force: for good, or until somebody settles its checkpoint.
    Changed { checkpoint: Checkpoint, probes: Vec<ProbeResult>, notes: Vec<String> },
    /// It could not be begun, and nothing was touched.
    Refused(HostError),
    /// It was begun and did not come to a good end.
    Failed { why: String, probes: Vec<ProbeResult>, as_before: bool },
}

impl<H: Host> Single<'_, H> {
    pub async fn carry_out(self) -> End {
        if let Err(error) = roll_back_ours(self.host).await {
            let why = format!("an earlier change is still open and cannot be rolled back: {error}");
            return End::Failed { why, probes: Vec::new(), as_before: false };
        }
        match self.steps().await {
            Ok(end) => end,
            Err(error) => End::Refused(error),
        }
    }

    /// An error means that nothing was touched.
    async fn steps(self) -> Result<End, HostError> {
        if let Some(open) = self.host.open_checkpoints().await?.into_iter().next() {
            let rolls_back_in = match open.guard {
                // For people, who do not count in milliseconds.
                Guard::RollsBackIn(left) => Some(Duration::from_secs(left.as_secs())),
                Guard::Lost => None,
            };
            return Err(HostError::Busy { checkpoint: open.checkpoint, rolls_back_in });
        }
        let current = self.host.observe().await?;
        let mut prepared = self.prepare(&current).await?;
        let plan = self.host.plan(&prepared.desired).await?;
        take_note(slice::from_mut(&mut prepared), &plan.warnings);
        if plan.is_empty() {
            return self.unchanged(&prepared.desired).await;
        }
        tracing::info!(difference = %plan.difference.into_value(), "the network is about to be changed");
        let guarded = Guarded {
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
        Ok(match guarded.carry_out(&mut Timings::default(), &mut Laps::start()).await {
            Ok(kept) => {
                End::Changed { checkpoint: kept.checkpoint, probes: kept.probes, notes: prepared.notes }
            }
            Err(failure) => self.failed(failure).await,
        })
    }

    async fn prepare(&self, current: &NetworkState) -> Result<Prepared, HostError> {
        let settings = Settings {
            transaction: self.timeout,
            bridge_defaults: self.wish.bridge_defaults,
            ..Settings::new(String::new())
        };
        let spec = NodeNetworkConfigurationEnactmentSpec { deadlines: None, ..self.wish.spec.clone() };
        let abilities = self.host.abilities().await;
        prepare("", &spec, &BTreeMap::new(), current, abilities, &settings, self.api)
    }

    /// Who asked for a checkpoint gets one, and has to settle it like any other.
    async fn unchanged(&self, desired: &NetworkState) -> Result<End, HostError> {
        let Conclusion::LeaveOpen(time) = self.conclusion else {
            return Ok(End::Unchanged { checkpoint: None });
        };
        let checkpoint = self.host.begin(desired, self.timeout).await?;
        self.host.leave_open(&checkpoint, time).await?;
        Ok(End::Unchanged { checkpoint: Some(checkpoint) })
    }

    async fn failed(&self, failure: Failure) -> End {
        let Failure { mut why, is_open, probes, .. } = failure;
        if !is_open {
            return End::Failed { why, probes, as_before: true };
        }
        let as_before = self.rolled_back_in_time().await;
        why.push_str(if as_before {
            BACK_AS_BEFORE
        } else {
            "; it is not known to be as before: that is seen to by the next command or the handler"
        });
        End::Failed { why, probes, as_before }
    }

    async fn rolled_back_in_time(&self) -> bool {
        let end = Instant::now() + PATIENCE;
        let mut events = self.host.events();
        loop {
            match roll_back_ours(self.host).await {
                Ok(()) => return true,
                Err(error) if Instant::now() >= end => {
                    tracing::warn!(%error, "the change could not be rolled back");
                    return false;
                }
                Err(_) => {
                    let _ = timeout(PAUSE, wait_for(&mut events, Topic::ServiceBack)).await;
                }
            }
        }
    }
}
