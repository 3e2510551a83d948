//! The engine: carries out the orders of this node, one change of its network at a time.
//!
//! The loop in [`Engine::run`] is all there is to its life: leave nothing of ours open, take over the orders, carry out
//! what is due, wait for something to happen. Which orders are due is decided in
//! [`knmstate_core::progress`]; what is done with them in `round`; what one change goes through in `transaction`;
//! what is waited for after it in `settle`; what is said about it in `enactments`.

mod enactments;
pub(crate) mod guarded;
pub(crate) mod prepare;
mod round;
mod settle;
#[cfg(test)]
mod tests;
pub(crate) mod transaction;

pub use guarded::Conclusion;

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use knmstate_api::enactment::Timings;
use knmstate_core::{
    enactment::Stage,
    pace,
    progress::{Progress, Retries},
};
use knmstate_host::{Events, Host, HostError, OpenCheckpoint, Topic};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout},
};

use self::{
    enactments::{Enactments, Interrupted},
    guarded::{Failure, stopped},
    settle::Unsettled,
    transaction::wait_for,
};
use crate::{
    health::Health,
    ledger::Ledger,
    probes::Prober,
    steady::{Held, Steady},
    store::{Orders, Store},
};

/// How a node goes about its orders.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The name of the node.
    pub node: String,
    pub retries: Retries,
    /// How long a change may stay uncommitted before the machine takes it back, unless its order says otherwise.
    pub transaction: Duration,
    /// How long all probes together may take after a change, unless its order says otherwise.
    pub probes: Duration,
    /// How long to wait, after a change, for addresses that others lend; no time at all means that nobody asks whether
    /// they came.
    pub leases: Duration,
    /// How long to wait for orders at the start before those on disk are carried out instead.
    pub patience: Duration,
    /// The file by which processes that work on the network of this node keep out of each other's way.
    pub work_lock: Option<PathBuf>,
    /// How many hundredths of a core reading the network for the report may cost in the long run.
    pub report_percent: u32,
    /// Whether ports of bridges become trunks where nothing else is said, as in policies.
    pub bridge_defaults: bool,
}

impl Settings {
    pub fn new(node: impl Into<String>) -> Self {
        Self {
            node: node.into(),
            retries: Retries::default(),
            transaction: Duration::from_mins(4),
            probes: Duration::from_mins(2),
            leases: Duration::from_secs(30),
            patience: Duration::from_secs(10),
            work_lock: None,
            report_percent: pace::PERCENT,
            bridge_defaults: true,
        }
    }
}

/// How long to wait before a change that could not be rolled back is looked at again, unless something happens.
const CLEAN_UP_PAUSE: Duration = Duration::from_secs(5);

/// The target under which it is logged how an order ended, for roles that tell it in another way.
pub const OUTCOMES: &str = "knmstate_agent::outcomes";

/// What an engine is made of.
#[derive(Debug)]
pub struct Parts<H, S> {
    pub host: H,
    pub store: S,
    pub prober: Prober<H>,
    pub ledger: Ledger,
    pub settings: Settings,
    pub health: Health,
}

/// The engine of one node.
#[derive(Debug)]
pub struct Engine<H, S> {
    host: H,
    store: S,
    prober: Prober<H>,
    steady: Steady,
    /// Held from the very start: an earlier life may have left a change half done.
    held: Option<Held>,
    enactments: Enactments<S>,
    progress: Progress,
    settings: Settings,
    /// What is in force, and not told because addresses are still to come.
    unsettled: Vec<Unsettled>,
    start: Instant,
    stop: watch::Receiver<bool>,
    health: Health,
}

/// What has become of one order, for whoever has to tell a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub policy: String,
    pub result: Result<Achieved, String>,
}

/// How an order came to be fulfilled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Achieved {
    /// It was so already, and nothing was touched.
    Already,
    /// It was made so, in this time.
    Changed { took: Duration },
}

impl<H: Host, S: Store> Engine<H, S> {
    /// An engine that has not begun yet. Nobody can report the network from now on until it is known to be in no
    /// in-between state.
    pub async fn new(parts: Parts<H, S>, steady: Steady, stop: watch::Receiver<bool>) -> Self {
        let Parts { host, store, prober, ledger, settings, health } = parts;
        let held = Some(steady.hold().await);
        let enactments = Enactments::new(settings.node.clone(), store.clone(), ledger);
        let progress = Progress::new(settings.retries);
        let start = Instant::now();
        let unsettled = Vec::new();
        Self {
            host,
            store,
            prober,
            steady,
            held,
            enactments,
            progress,
            settings,
            unsettled,
            start,
            stop,
            health,
        }
    }

    /// Carries out orders until it is told to stop.
    pub async fn run(mut self) -> io::Result<()> {
        let mut orders = self.store.orders();
        let mut events = self.host.events();
        self.first_orders(&mut orders).await?;
        while !*self.stop.borrow() {
            if !self.clean_up(&mut events).await {
                continue;
            }
            if !self.carry_out_what_is_due().await? {
                continue;
            }
            self.let_go();
            self.settle().await?;
            self.wait(&mut orders, &mut events).await?;
        }
        Ok(())
    }

    /// Carries out the orders that are there now, until each has succeeded or failed for good.
    pub async fn run_once(mut self) -> io::Result<Vec<Outcome>> {
        let mut orders = self.store.orders();
        let mut events = self.host.events();
        self.first_orders(&mut orders).await?;
        while !*self.stop.borrow() {
            if !self.clean_up(&mut events).await {
                continue;
            }
            if !self.carry_out_what_is_due().await? {
                continue;
            }
            self.let_go();
            self.settle().await?;
            if self.progress.is_settled() {
                break;
            }
            self.wait(&mut orders, &mut events).await?;
        }
        self.let_go();
        Ok(self.enactments.into_outcomes())
    }

    /// The orders to begin with. When nobody gives any, those of an earlier life hold: they were granted.
    async fn first_orders(&mut self, orders: &mut watch::Receiver<Option<Arc<Orders>>>) -> io::Result<()> {
        let known = timeout(self.settings.patience, orders.wait_for(Option::is_some)).await;
        let now = match known {
            Ok(Ok(orders)) => orders.clone(),
            Ok(Err(_)) | Err(_) => None,
        };
        if let Some(orders) = now {
            self.take_over(&orders)
        } else {
            tracing::warn!("nobody gives orders yet; those kept on this node's disk are carried out");
            let kept = self.enactments.kept_orders();
            self.take_over(&kept)
        }
    }

    fn take_over(&mut self, orders: &Orders) -> io::Result<()> {
        self.progress.take_over(orders.iter().map(|(policy, order)| (&**policy, &order.spec)));
        for Interrupted { policy, failures } in self.enactments.take_over(orders)? {
            // Whoever dies in the middle of a change has not succeeded with it.
            self.progress.failed_before(&policy, failures);
            self.failed(&policy, &Failure::interrupted(), &Timings::default())?;
        }
        for policy in self.progress.waiting() {
            self.enactments.tell_stage(policy, &Stage::Pending)?;
        }
        for policy in self.progress.aborted() {
            self.enactments.tell_stage(policy, &Stage::Aborted)?;
        }
        Ok(())
    }

    /// Rolls back what is open and ours; false when that was not possible yet.
    async fn clean_up(&mut self, events: &mut Events) -> bool {
        if self.held.is_none() {
            // Whatever was left open has been settled, and nothing was begun since.
            return true;
        }
        match roll_back_ours(&self.host).await {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(%error, "a change is still open and cannot be rolled back yet");
                let pause = Instant::now() + CLEAN_UP_PAUSE;
                tokio::select! {
                    () = stopped(&mut self.stop) => {}
                    () = wait_for(events, Topic::ServiceBack) => {}
                    () = sleep_until(pause) => {}
                }
                false
            }
        }
    }

    /// Keeps everybody else from the network. False when we are told to stop before that is possible.
    async fn hold(&mut self) -> bool {
        if self.held.is_none() {
            let mut stop = self.stop.clone();
            tokio::select! {
                held = self.steady.hold() => self.held = Some(held),
                () = stopped(&mut stop) => {}
            }
        }
        self.held.is_some()
    }

    /// The network is in no in-between state any more; whoever reports it may look.
    fn let_go(&mut self) {
        if self.held.take().is_some() {
            self.steady.settled();
        }
    }

    async fn wait(
        &mut self,
        orders: &mut watch::Receiver<Option<Arc<Orders>>>,
        events: &mut Events,
    ) -> io::Result<()> {
        let next = self.progress.next_due().map(|due| self.start + due);
        let at_next = async {
            match next {
                Some(next) => sleep_until(next).await,
                None => std::future::pending().await,
            }
        };
        let new_orders = async {
            if orders.changed().await.is_err() {
                // The store is gone, which happens when the process ends.
                std::future::pending::<()>().await;
            }
        };
        let mut stop = self.stop.clone();
        tokio::select! {
            () = stopped(&mut stop) => return Ok(()),
            () = at_next => return Ok(()),
            () = wait_for(events, Topic::ServiceBack) => {
                self.progress.service_is_back();
                // It has forgotten what was open, also what a command had left open: nobody but us puts that back.
                self.hold().await;
                return Ok(());
            }
            () = new_orders => {}
        }
        let now = orders.borrow_and_update().clone();
        now.map_or(Ok(()), |now| self.take_over(&now))
    }
}

/// Rolls back every change that is open and ours, unless it was left open for somebody else. What is gone by the time we get there has rolled back by itself.
pub(crate) async fn roll_back_ours<H: Host>(host: &H) -> Result<(), HostError> {
    for open in host.open_checkpoints().await?.into_iter().filter(OpenCheckpoint::is_ours_to_undo) {
        tracing::warn!(checkpoint = %open.checkpoint, "a change was left open; it is rolled back");
        match host.roll_back(&open.checkpoint).await {
            Ok(()) | Err(HostError::CheckpointGone { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn milliseconds(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
