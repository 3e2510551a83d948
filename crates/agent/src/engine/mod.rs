//! The engine: carries out the orders of this node, one change of its network at a time.
//!
//! The loop in [`Engine::run`] is all there is to its life: leave nothing of ours open, take over the orders, carry out
//! what is due, wait for something to happen. Which orders are due is decided in
//! [`knmstate_core::progress`]; what one change goes through is in [`transaction`]; what is said about it, in
//! [`enactments`].

mod enactments;
mod prepare;
#[cfg(test)]
mod tests;
mod transaction;

use std::{collections::BTreeMap, io, sync::Arc, time::Duration};

use knmstate_api::enactment::Timings;
use knmstate_core::{
    document::Document,
    enactment::Stage,
    join::join,
    needs,
    progress::{Progress, Retries, Setback},
};
use knmstate_host::{Events, Host, HostError, NetworkState, Topic};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout},
};

use self::{
    enactments::{Enactments, Interrupted},
    prepare::{Prepared, prepare},
    transaction::{End, Failure, Transaction, stopped, wait_for},
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
    /// How long to wait for orders at the start before those on disk are carried out instead.
    pub patience: Duration,
}

impl Settings {
    pub fn new(node: impl Into<String>) -> Self {
        Self {
            node: node.into(),
            retries: Retries::default(),
            transaction: Duration::from_mins(4),
            probes: Duration::from_mins(2),
            patience: Duration::from_secs(10),
        }
    }
}

/// How long to wait before a change that could not be rolled back is looked at again, unless something happens.
const CLEAN_UP_PAUSE: Duration = Duration::from_secs(5);

/// What the steps around a change may take altogether, before the engine counts as hung.
const MARGIN: Duration = Duration::from_mins(5);

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

/// What carrying out some orders has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carried {
    Unchanged,
    Changed,
    /// A change could not be settled: nothing else may be begun before it is.
    Open,
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
        Self { host, store, prober, steady, held, enactments, progress, settings, start, stop, health }
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
            if self.progress.is_settled() {
                break;
            }
            self.let_go();
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
                return Ok(());
            }
            () = new_orders => {}
        }
        let now = orders.borrow_and_update().clone();
        now.map_or(Ok(()), |now| self.take_over(&now))
    }

    /// False when a change could not be settled: nothing else may be begun before it is.
    async fn carry_out_what_is_due(&mut self) -> io::Result<bool> {
        let due: Vec<String> =
            self.progress.due(self.start.elapsed()).into_iter().map(str::to_owned).collect();
        if due.is_empty() {
            return Ok(true);
        }
        // Idle it need not show itself; at work it has to come to an end.
        let longest = self.settings.transaction * 2 + self.settings.probes + MARGIN;
        let _alive = self.health.expect("engine", longest * u32::try_from(due.len()).unwrap_or(1));
        if self.held.is_none() {
            self.held = Some(self.steady.hold().await);
        }
        let mut left = due;
        loop {
            let current = match self.host.observe().await {
                Ok(current) => current,
                Err(error) => {
                    for policy in &left {
                        self.failed(policy, &Failure::of_host(&error), &Timings::default())?;
                    }
                    return Ok(true);
                }
            };
            let (orders, refused) = self.prepare(&left, &current).await;
            let progress = self.carry_out(in_order(orders)).await?;
            // What one order makes may be what the capture of another asks for.
            if progress == Carried::Changed && !refused.is_empty() {
                left = refused.into_iter().map(|(policy, _)| policy).collect();
                continue;
            }
            for (policy, error) in refused {
                self.failed(&policy, &Failure::of_host(&error), &Timings::default())?;
            }
            return Ok(progress != Carried::Open);
        }
    }

    async fn carry_out(&mut self, orders: Vec<Prepared>) -> io::Result<Carried> {
        if orders.len() > 1
            && let Some(carried) = self.carry_out_together(&orders).await?
        {
            return Ok(carried);
        }
        let mut carried = Carried::Unchanged;
        for order in orders {
            let end = self.transaction(&[&order], order.desired.clone()).carry_out().await;
            match end {
                End::Stopped => break,
                End::Unchanged(timings) => self.succeeded(&order, Achieved::Already, &timings, Vec::new())?,
                End::Changed { took, timings, probes } => {
                    self.succeeded(&order, Achieved::Changed { took }, &timings, probes)?;
                    carried = Carried::Changed;
                }
                End::Failed { failure, timings } => {
                    self.failed(&order.policy, &failure, &timings)?;
                    if failure.is_open {
                        return Ok(Carried::Open);
                    }
                }
            }
        }
        Ok(carried)
    }

    /// Works out what each order means on this node, now; and which of them mean nothing.
    async fn prepare(
        &mut self,
        due: &[String],
        current: &NetworkState,
    ) -> (Vec<Prepared>, Vec<(String, HostError)>) {
        let abilities = self.host.abilities().await;
        let (mut prepared, mut refused) = (Vec::new(), Vec::new());
        for policy in due {
            let Some(spec) = self.enactments.spec(policy).cloned() else { continue };
            let known = self.enactments.captured(policy);
            match prepare(policy, &spec, &known, current, abilities, &self.settings, self.store.api_access())
            {
                Ok(order) => {
                    self.enactments.prepared(&order);
                    prepared.push(order);
                }
                Err(error) => refused.push((policy.clone(), error)),
            }
        }
        (prepared, refused)
    }

    /// Several orders as one change. `None` when they have to be tried one by one, so that blame falls on the right one.
    async fn carry_out_together(&mut self, orders: &[Prepared]) -> io::Result<Option<Carried>> {
        let Ok(whole) = join(orders.iter().map(|order| order.desired.sections())) else { return Ok(None) };
        let Ok(whole) = NetworkState::parse(serde_json::Value::Object(whole)) else { return Ok(None) };
        let members: Vec<&Prepared> = orders.iter().collect();
        match self.transaction(&members, whole).carry_out().await {
            End::Stopped => Ok(Some(Carried::Unchanged)),
            End::Unchanged(timings) => {
                for order in orders {
                    self.succeeded(order, Achieved::Already, &timings, Vec::new())?;
                }
                Ok(Some(Carried::Unchanged))
            }
            End::Changed { took, timings, probes } => {
                for order in orders {
                    let own = |name: &str| order.probes.iter().any(|probe| probe.name == name);
                    let probes = probes.iter().filter(|probe| own(&probe.name)).cloned().collect();
                    self.succeeded(order, Achieved::Changed { took }, &timings, probes)?;
                }
                Ok(Some(Carried::Changed))
            }
            End::Failed { failure, timings } if failure.concerns_all() => {
                for order in orders {
                    self.failed(&order.policy, &failure, &timings)?;
                }
                Ok(Some(if failure.is_open { Carried::Open } else { Carried::Unchanged }))
            }
            End::Failed { failure, .. } => {
                let policies: Vec<&str> = orders.iter().map(|order| &*order.policy).collect();
                tracing::info!(?policies, why = failure.why, "together they fail; each is tried alone");
                Ok(None)
            }
        }
    }

    fn transaction<'a>(
        &'a mut self,
        orders: &'a [&'a Prepared],
        desired: NetworkState,
    ) -> Transaction<'a, H, S> {
        Transaction {
            host: &self.host,
            prober: &self.prober,
            enactments: &mut self.enactments,
            progress: &self.progress,
            orders,
            desired,
            stop: self.stop.clone(),
        }
    }

    fn succeeded(
        &mut self,
        order: &Prepared,
        achieved: Achieved,
        timings: &Timings,
        probes: Vec<knmstate_api::enactment::ProbeResult>,
    ) -> io::Result<()> {
        self.progress.succeeded(&order.policy);
        self.enactments.succeeded(order, achieved, timings, probes)
    }

    fn failed(&mut self, policy: &str, failure: &Failure, timings: &Timings) -> io::Result<()> {
        let stage = self.progress.failed(policy, failure.setback, self.start.elapsed(), &failure.why);
        let failures = self.progress.failures(policy);
        self.enactments.failed(policy, &stage, failures, failure, timings)
    }
}

/// Rolls back every change that is open and ours. What is gone by the time we get there has rolled back by itself.
async fn roll_back_ours<H: Host>(host: &H) -> Result<(), HostError> {
    for open in host.open_checkpoints().await?.into_iter().filter(|open| open.ours) {
        tracing::warn!(checkpoint = %open.checkpoint, "a change was left open; it is rolled back");
        match host.roll_back(&open.checkpoint).await {
            Ok(()) | Err(HostError::CheckpointGone { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn in_order(orders: Vec<Prepared>) -> Vec<Prepared> {
    let documents: BTreeMap<&str, &Document> =
        orders.iter().map(|order| (&*order.policy, order.desired.sections())).collect();
    let sorted: Vec<String> = needs::in_order(&documents).into_iter().map(str::to_owned).collect();
    let place = |order: &Prepared| sorted.iter().position(|policy| *policy == order.policy);
    let mut orders = orders;
    orders.sort_by_key(place);
    orders
}

fn milliseconds(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

impl Failure {
    fn of_host(error: &HostError) -> Self {
        let setback = match error {
            HostError::Unavailable { .. } => Setback::Unavailable { not_before: Duration::ZERO },
            HostError::Busy { rolls_back_in, .. } => Setback::Unavailable {
                not_before: rolls_back_in.unwrap_or_default() + Duration::from_secs(1),
            },
            error if error.is_retryable() => Setback::Again,
            _ => Setback::Final,
        };
        Self { why: format!("{error}. {}", error.advice()), setback, is_open: false, probes: Vec::new() }
    }

    /// Whether another document would have failed in the same way.
    fn concerns_all(&self) -> bool {
        self.is_open || matches!(self.setback, Setback::Unavailable { .. })
    }
}
