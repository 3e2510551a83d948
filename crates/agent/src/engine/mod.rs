//! The engine: applies the orders of this node, one change of its network at a time.
//!
//! The loop in [`Engine::run`]: roll back what is open and ours, take the orders, apply what is due, wait for the next
//! event. [`knmstate_core::progress`] decides which orders are due; `round` applies them; `transaction` and
//! `guarded_change` are the sequence of one change; `lease_wait` waits for dynamic addresses after it;
//! `status_recorder` writes the results; `disk` is about a disk that does not take them.

mod disk;
pub(crate) mod guarded_change;
mod lease_wait;
pub(crate) mod prepare;
mod round;
mod status_recorder;
#[cfg(test)]
mod tests;
pub(crate) mod transaction;

pub use guarded_change::Conclusion;

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use knmstate_api::enactment::Timings;
use knmstate_core::{OrderProgress, Retries, enactment::EnactmentStage, pace};
use knmstate_host::{Events, Host, HostError, OpenCheckpoint, Topic};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout},
};

use self::{
    disk::Disk,
    guarded_change::{Failure, stopped},
    lease_wait::AwaitingLeases,
    status_recorder::{Interrupted, StatusRecorder},
    transaction::wait_for,
};
use crate::{
    change_lock::{ChangeGuard, ChangeLock},
    health::{Health, WorkInProgress},
    ledger::Ledger,
    probes::Prober,
    store::{Orders, Store},
};

/// How the engine applies its orders.
#[derive(Clone, Debug)]
pub struct EngineSettings {
    /// The name of the node.
    pub node: String,
    /// How often a failed order is tried again, and with which pauses.
    pub retries: Retries,
    /// How long a change may stay uncommitted before NetworkManager rolls it back, unless its order has another
    /// deadline.
    pub transaction: Duration,
    /// How long all probes together may take after a change, unless its order has another deadline.
    pub probes: Duration,
    /// How long to wait for dynamic addresses after a change. Zero: do not wait, and do not report missing ones.
    pub leases: Duration,
    /// How long to wait for orders at the start before those of the ledger are applied instead.
    pub orders_timeout: Duration,
    /// The file that processes lock while they work on the network of this node; see [`WorkLock`](crate::WorkLock).
    pub work_lock: Option<PathBuf>,
    /// How many hundredths of a core the readings for the report may cost in the long run.
    pub report_percent: u32,
    /// Whether ports of bridges become VLAN trunks where the order has no other setting, as in policies.
    pub bridge_defaults: bool,
}

impl EngineSettings {
    /// The defaults, for the node of this name.
    pub fn new(node: impl Into<String>) -> Self {
        Self {
            node: node.into(),
            retries: Retries::default(),
            transaction: Duration::from_mins(4),
            probes: Duration::from_mins(2),
            leases: Duration::from_secs(30),
            orders_timeout: Duration::from_secs(10),
            work_lock: None,
            report_percent: pace::PERCENT,
            bridge_defaults: true,
        }
    }
}

/// After so many failed attempts to roll an open change back, the network is reported as it is between the attempts.
const ATTEMPTS_BEFORE_REPORT: u32 = 2;

/// How long the steps before and after a change may take before the engine counts as hung.
const MARGIN: Duration = Duration::from_mins(5);

/// The log target for results of orders, for roles that print the results in another way.
pub const OUTCOMES_TARGET: &str = "knmstate_agent::outcomes";

/// What an agent is made of.
#[derive(Debug)]
pub struct AgentParts<H, S> {
    pub host: H,
    pub store: S,
    pub prober: Prober<H>,
    pub ledger: Ledger,
    pub settings: EngineSettings,
    pub health: Health,
}

/// The engine of one node.
#[derive(Debug)]
pub(crate) struct Engine<H, S> {
    host: H,
    store: S,
    prober: Prober<H>,
    change_lock: ChangeLock,
    /// Held from the start: an earlier process may have left a change open.
    change_guard: Option<ChangeGuard>,
    /// How often in a row rolling back an open change has failed.
    failed_roll_backs: u32,
    recorder: StatusRecorder<S>,
    progress: OrderProgress,
    settings: EngineSettings,
    /// Orders that are committed and wait for dynamic addresses before their result is reported.
    awaiting_leases: Vec<AwaitingLeases>,
    start: Instant,
    stop: watch::Receiver<bool>,
    disk: Disk,
    health: Health,
    /// The step that the engine is busy with. Waits without a limit are none.
    busy: Option<WorkInProgress>,
    /// Called before an order is prepared.
    #[cfg(test)]
    on_prepare: tests::Hook,
}

/// The result of one order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderOutcome {
    /// The policy of the order.
    pub policy: String,
    /// How it succeeded, or why it failed.
    pub result: Result<OrderSuccess, String>,
}

/// How an order succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderSuccess {
    /// The network was as desired already, and nothing was touched.
    Unchanged,
    /// The network was changed, in this time.
    Changed { took: Duration },
}

/// When the loop of the engine ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunUntil {
    /// At the request to stop.
    Stopped,
    /// When each order has succeeded or failed for good, or at the request to stop.
    Settled,
}

impl<H: Host, S: Store> Engine<H, S> {
    /// An engine that has not started. It takes the change lock, so that the network is not reported before it is known
    /// that no change is open.
    pub(crate) async fn new(
        parts: AgentParts<H, S>,
        change_lock: ChangeLock,
        stop: watch::Receiver<bool>,
    ) -> Self {
        let AgentParts { host, store, prober, ledger, settings, health } = parts;
        let change_guard = Some(change_lock.lock().await);
        let recorder = StatusRecorder::new(settings.node.clone(), store.clone(), ledger);
        let progress = OrderProgress::new(settings.retries);
        Self {
            host,
            store,
            prober,
            change_lock,
            change_guard,
            failed_roll_backs: 0,
            recorder,
            progress,
            settings,
            awaiting_leases: Vec::new(),
            start: Instant::now(),
            stop,
            disk: Disk::new(health.clone()),
            health,
            busy: None,
            #[cfg(test)]
            on_prepare: tests::Hook::default(),
        }
    }

    /// Applies orders until the request to stop. While the node's disk takes no writes, no change begins. Fails when
    /// results are not on disk at the end.
    pub(crate) async fn run(mut self) -> io::Result<()> {
        self.apply_orders(RunUntil::Stopped).await
    }

    /// Applies the orders that exist now, until each has succeeded or failed for good. Fails when the node's disk
    /// cannot be used.
    pub(crate) async fn run_once(mut self) -> io::Result<Vec<OrderOutcome>> {
        self.apply_orders(RunUntil::Settled).await?;
        self.release_change_lock();
        Ok(self.recorder.into_outcomes())
    }

    async fn apply_orders(&mut self, until: RunUntil) -> io::Result<()> {
        let mut orders = self.store.orders();
        let mut events = self.host.events();
        self.first_orders(&mut orders).await;
        while !*self.stop.borrow() {
            if !self.roll_back_open(&mut events).await {
                continue;
            }
            let round = self.apply_due_orders().await;
            if let Ok(false) = round {
                continue;
            }
            self.release_change_lock();
            self.wait_for_leases().await;
            let retry_at = match round.and_then(|_| self.recorder.save()) {
                Ok(()) => {
                    if self.disk.works() {
                        self.recorder.report_again();
                    }
                    None
                }
                Err(error) if until == RunUntil::Settled => return Err(error),
                Err(error) => Some(self.disk.failed(&error)),
            };
            if until == RunUntil::Settled && self.progress.is_settled() {
                break;
            }
            self.busy = None;
            self.wait(&mut orders, &mut events, retry_at).await;
        }
        self.recorder.save()
    }

    /// The engine does something now that takes no longer than this; see [`Health`].
    fn busy_for(&mut self, limit: Duration) {
        self.busy = Some(self.health.expect("engine", limit));
    }

    /// The orders at the start. If the store has none in time, the orders of the ledger apply: they were permitted.
    async fn first_orders(&mut self, orders: &mut watch::Receiver<Option<Arc<Orders>>>) {
        self.busy_for(self.settings.orders_timeout + MARGIN);
        let known = timeout(self.settings.orders_timeout, orders.wait_for(Option::is_some)).await;
        let now = match known {
            Ok(Ok(orders)) => orders.clone(),
            Ok(Err(_)) | Err(_) => None,
        };
        if let Some(orders) = now {
            self.take_over(&orders);
        } else {
            tracing::warn!("no orders received yet; applying those kept on this node's disk");
            let kept = self.recorder.kept_orders();
            self.take_over(&kept);
        }
    }

    fn take_over(&mut self, orders: &Orders) {
        self.busy_for(MARGIN);
        let with_kept = self.recorder.with_kept(orders);
        let orders = &*with_kept;
        self.progress.set_orders(orders.iter().map(|(policy, order)| (&**policy, &order.spec)));
        for Interrupted { policy, failures, was_changing } in self.recorder.take_over(orders) {
            // An attempt that the process did not survive counts as a failure.
            self.progress.restore_failures(&policy, failures);
            self.failed(&policy, &Failure::interrupted(was_changing), &Timings::default());
        }
        for policy in self.progress.waiting() {
            self.recorder.report_stage(policy, &EnactmentStage::Pending);
        }
        for policy in self.progress.aborted() {
            self.recorder.report_stage(policy, &EnactmentStage::Aborted);
        }
    }

    /// Rolls back what an earlier process, or a failed attempt of this one, left open; false when that failed. The host
    /// counts the attempts and gives up in the end.
    async fn roll_back_open(&mut self, events: &mut Events) -> bool {
        if self.change_guard.is_none() && self.failed_roll_backs == 0 {
            // No change was open when the lock was released, and none was begun since.
            return true;
        }
        if !self.take_change_lock().await {
            return false;
        }
        self.busy_for(MARGIN * 2);
        let Err(error) = roll_back_ours(&self.host).await else {
            self.failed_roll_backs = 0;
            return true;
        };
        tracing::warn!(%error, "a change is still open and cannot be rolled back yet");
        // While NetworkManager does not run, there is nothing to report and no reason to wait longer each time.
        if !matches!(error, HostError::Unavailable { .. }) {
            self.failed_roll_backs += 1;
        }
        if self.failed_roll_backs >= ATTEMPTS_BEFORE_REPORT {
            self.release_change_lock();
        }
        self.busy = None;
        let pause = Instant::now() + roll_back_pause(self.failed_roll_backs);
        tokio::select! {
            () = stopped(&mut self.stop) => {}
            () = wait_for(events, Topic::ServiceBack) => {}
            () = sleep_until(pause) => {}
        }
        false
    }

    /// Takes the change lock, if it is not held yet. False when the request to stop comes first.
    async fn take_change_lock(&mut self) -> bool {
        if self.change_guard.is_none() {
            // Another program may hold it for long.
            self.busy = None;
            let mut stop = self.stop.clone();
            tokio::select! {
                guard = self.change_lock.lock() => self.change_guard = Some(guard),
                () = stopped(&mut stop) => {}
            }
        }
        self.change_guard.is_some()
    }

    /// Lets the reporter read the network: no change is open any more, or one that cannot be rolled back soon.
    fn release_change_lock(&mut self) {
        if self.change_guard.take().is_some() {
            self.change_lock.notify_settled();
        }
    }

    /// Waits for the next retry, new orders, the return of NetworkManager, or the request to stop. While the disk takes
    /// no writes, only the time to try it again ends the wait for orders that are due.
    async fn wait(
        &mut self,
        orders: &mut watch::Receiver<Option<Arc<Orders>>>,
        events: &mut Events,
        disk_retry_at: Option<Instant>,
    ) {
        let next = disk_retry_at.or_else(|| self.progress.next_due().map(|due| self.start + due));
        let at_next = async {
            match next {
                Some(next) => sleep_until(next).await,
                None => std::future::pending().await,
            }
        };
        let new_orders = async {
            if orders.changed().await.is_err() {
                // The store is dropped when the process ends.
                std::future::pending::<()>().await;
            }
        };
        let mut stop = self.stop.clone();
        tokio::select! {
            () = stopped(&mut stop) => return,
            () = at_next => return,
            () = wait_for(events, Topic::ServiceBack) => {
                self.progress.service_available();
                // A restart of NetworkManager drops its checkpoints, also that of a change which a command left open.
                // Holding the lock makes the loop roll such a change back.
                self.take_change_lock().await;
                return;
            }
            () = new_orders => {}
        }
        let now = orders.borrow_and_update().clone();
        if let Some(now) = now {
            self.take_over(&now);
        }
    }
}

/// How an open change was settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RolledBack {
    /// The network is as before, or no change was open.
    AsBefore,
    /// A change could not be rolled back, and the host has given it up.
    GivenUp,
}

/// Rolls back every open change of ours, unless it was left open for another program. A checkpoint that no longer
/// exists has been rolled back by NetworkManager.
pub(crate) async fn roll_back_ours<H: Host>(host: &H) -> Result<RolledBack, HostError> {
    match roll_back_each(host).await {
        Ok(()) => Ok(RolledBack::AsBefore),
        Err(error @ HostError::SetAside(_)) => {
            tracing::error!("{error}. {}", error.advice());
            // What else is open has to be rolled back all the same.
            roll_back_each(host).await.map(|()| RolledBack::GivenUp)
        }
        Err(error) => Err(error),
    }
}

async fn roll_back_each<H: Host>(host: &H) -> Result<(), HostError> {
    for open in host.open_checkpoints().await?.into_iter().filter(OpenCheckpoint::is_ours_to_undo) {
        tracing::warn!(checkpoint = %open.checkpoint, "rolling back a change that was left open");
        match host.roll_back(&open.checkpoint).await {
            Ok(()) | Err(HostError::CheckpointGone { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// How long to wait before another attempt to roll back an open change, unless NetworkManager comes back earlier: longer
/// after each attempt that failed.
fn roll_back_pause(failed: u32) -> Duration {
    Duration::from_secs(5) * 2_u32.pow(failed.saturating_sub(1).min(5))
}

fn milliseconds(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
