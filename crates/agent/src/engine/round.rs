//! One round of the engine: applies the due orders, together if possible, one by one if not.

use std::{
    collections::BTreeMap,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    slice,
    time::Duration,
};

use knmstate_api::enactment::{ProbeResult, Timings};
use knmstate_core::{FailureKind, join::join, needs};
use knmstate_document::Document;
use knmstate_host::{Host, HostError, NetworkState};
use tokio::time::Instant;

use super::{
    Engine, MARGIN, OrderSuccess,
    guarded_change::Failure,
    milliseconds,
    prepare::{PreparedOrder, prepare},
    transaction::{Transaction, TransactionEnd, add_warnings},
};
use crate::store::Store;

/// How a round ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RoundResult {
    Unchanged,
    Changed,
    /// A change could not be rolled back. No other change may begin before it is.
    Open,
}

/// The orders that can be applied, and the others with the reason.
type Prepared = (Vec<PreparedOrder>, Vec<(String, HostError)>);

impl<H: Host, S: Store> Engine<H, S> {
    /// Applies the orders that are due. False when a change could not be rolled back: no other may begin before it is.
    /// Fails when the ledger cannot be written. Nothing is open then.
    pub(super) async fn apply_due_orders(&mut self) -> io::Result<bool> {
        let due: Vec<String> =
            self.progress.due(self.start.elapsed()).into_iter().map(str::to_owned).collect();
        if due.is_empty() {
            return Ok(true);
        }
        // A disk that is known to fail is no reason to read the network.
        self.recorder.save()?;
        if !self.take_change_lock().await {
            return Ok(true);
        }
        let mut left = due;
        loop {
            self.busy_for(MARGIN);
            let current = match self.host.observe().await {
                Ok(current) => current,
                Err(error) => {
                    for policy in &left {
                        self.failed(policy, &Failure::of_host(&error), &Timings::default());
                    }
                    return Ok(true);
                }
            };
            let (orders, refused) = self.prepare(&left, &current).await?;
            let progress = self.apply_all(in_order(orders)).await?;
            // A capture may refer to what another order has just created.
            if progress == RoundResult::Changed && !refused.is_empty() {
                left = refused.into_iter().map(|(policy, _)| policy).collect();
                continue;
            }
            for (policy, error) in refused {
                self.failed(&policy, &Failure::of_host(&error), &Timings::default());
            }
            return Ok(progress != RoundResult::Open);
        }
    }

    async fn apply_all(&mut self, orders: Vec<PreparedOrder>) -> io::Result<RoundResult> {
        let mut orders = self.without_satisfied(orders).await;
        if orders.len() > 1
            && let Some(result) = self.apply_together(&mut orders).await?
        {
            return Ok(result);
        }
        let mut result = RoundResult::Unchanged;
        for mut order in orders {
            let desired = order.desired.clone();
            let end = self.transaction(slice::from_mut(&mut order), desired).run().await?;
            match end {
                TransactionEnd::Stopped => break,
                TransactionEnd::Unchanged(timings) => {
                    self.succeeded(&order, OrderSuccess::Unchanged, &timings, Vec::new());
                }
                TransactionEnd::Changed { took, timings, probes } => {
                    self.succeeded(&order, OrderSuccess::Changed { took }, &timings, probes);
                    result = RoundResult::Changed;
                }
                TransactionEnd::Failed { failure, timings } => {
                    self.failed(&order.policy, &failure, &timings);
                    if failure.is_open {
                        return Ok(RoundResult::Open);
                    }
                }
            }
        }
        Ok(result)
    }

    /// Prepares each order for this node as it is now. Returns those that cannot be applied with the reason. The attempt
    /// is counted before: preparing reads what admins and the node's network contain, and may be the end of the process.
    async fn prepare(&mut self, due: &[String], current: &NetworkState) -> io::Result<Prepared> {
        let abilities = self.host.abilities().await;
        let (mut prepared, mut refused) = (Vec::new(), Vec::new());
        for policy in due {
            let Some(spec) = self.recorder.spec(policy).cloned() else { continue };
            let known = self.recorder.captured(policy);
            self.recorder.attempting(policy, self.progress.failures(policy))?;
            let (settings, api) = (&self.settings, self.store.api_access());
            let order = AssertUnwindSafe(|| {
                #[cfg(test)]
                self.on_prepare.call(policy);
                prepare(policy, &spec, &known, current, abilities, settings, api)
            });
            let panicked = |_| Err(HostError::Panicked { during: "preparing the order".to_owned() });
            match catch_unwind(order).unwrap_or_else(panicked) {
                Ok(order) => {
                    self.recorder.prepared(&order);
                    prepared.push(order);
                }
                Err(error) => refused.push((policy.clone(), error)),
            }
        }
        Ok((prepared, refused))
    }

    /// Removes the orders that the network satisfies already, so that a change for another order does not touch them.
    /// Orders that contradict each other stay: which of them is satisfied would change with every start.
    async fn without_satisfied(&mut self, mut orders: Vec<PreparedOrder>) -> Vec<PreparedOrder> {
        let Some(whole) = joined(&orders).filter(|_| orders.len() > 1) else { return orders };
        let begun = Instant::now();
        // One plan for all is enough in the usual case: after most starts nothing has to be changed.
        let all_satisfied = match self.host.plan(&whole).await {
            Ok(plan) => {
                add_warnings(&mut orders, &plan.warnings);
                plan.is_empty()
            }
            // The change itself will fail with the reason.
            Err(_) => false,
        };
        let mut left = Vec::new();
        for order in orders {
            self.busy_for(MARGIN);
            if all_satisfied || self.is_satisfied(&order.desired).await {
                let prepare_milliseconds = Some(milliseconds(begun.elapsed()));
                let timings = Timings { prepare_milliseconds, ..Timings::default() };
                self.succeeded(&order, OrderSuccess::Unchanged, &timings, Vec::new());
            } else {
                left.push(order);
            }
        }
        left
    }

    /// Whether nothing would have to be changed. False when that cannot be planned: the change itself fails with the
    /// reason.
    async fn is_satisfied(&self, desired: &NetworkState) -> bool {
        self.host.plan(desired).await.is_ok_and(|plan| plan.is_empty())
    }

    /// Applies several orders as one change. `None` when they have to be tried one by one, to find the one that fails.
    async fn apply_together(&mut self, orders: &mut [PreparedOrder]) -> io::Result<Option<RoundResult>> {
        let Some(whole) = joined(orders) else { return Ok(None) };
        match self.transaction(orders, whole).run().await? {
            TransactionEnd::Stopped => Ok(Some(RoundResult::Unchanged)),
            TransactionEnd::Unchanged(timings) => {
                for order in orders.iter() {
                    self.succeeded(order, OrderSuccess::Unchanged, &timings, Vec::new());
                }
                Ok(Some(RoundResult::Unchanged))
            }
            TransactionEnd::Changed { took, timings, probes } => {
                for order in orders.iter() {
                    let own = |name: &str| order.probes.iter().any(|probe| probe.name == name);
                    let probes = probes.iter().filter(|probe| own(&probe.name)).cloned().collect();
                    self.succeeded(order, OrderSuccess::Changed { took }, &timings, probes);
                }
                Ok(Some(RoundResult::Changed))
            }
            TransactionEnd::Failed { failure, timings } if failure.concerns_all() => {
                for order in orders.iter() {
                    self.failed(&order.policy, &failure, &timings);
                }
                Ok(Some(if failure.is_open { RoundResult::Open } else { RoundResult::Unchanged }))
            }
            TransactionEnd::Failed { failure, .. } => {
                let policies: Vec<&str> = orders.iter().map(|order| &*order.policy).collect();
                tracing::info!(
                    ?policies,
                    why = failure.why,
                    "applying the orders together failed; trying each alone"
                );
                Ok(None)
            }
        }
    }

    fn transaction<'a>(
        &'a mut self,
        orders: &'a mut [PreparedOrder],
        desired: NetworkState,
    ) -> Transaction<'a, H, S> {
        let longest =
            |time: fn(&PreparedOrder) -> Duration| orders.iter().map(time).max().unwrap_or_default();
        let (change, probes) =
            (longest(|order| order.transaction_deadline), longest(|order| order.probe_deadline));
        self.busy_for(change * 2 + probes + MARGIN);
        Transaction {
            host: &self.host,
            prober: &self.prober,
            recorder: &mut self.recorder,
            progress: &self.progress,
            orders,
            desired,
            stop: self.stop.clone(),
        }
    }

    fn succeeded(
        &mut self,
        order: &PreparedOrder,
        success: OrderSuccess,
        timings: &Timings,
        probes: Vec<ProbeResult>,
    ) {
        self.progress.succeeded(&order.policy);
        if self.has_leases_to_await(order, success) {
            self.await_leases_of(order, success, timings, probes);
        } else {
            self.recorder.succeeded(order, success, timings, probes, &[]);
        }
    }

    pub(super) fn failed(&mut self, policy: &str, failure: &Failure, timings: &Timings) {
        let stage = self.progress.failed(policy, failure.kind, self.start.elapsed(), &failure.why);
        let failures = self.progress.failures(policy);
        self.recorder.failed(policy, &stage, failures, failure, timings);
    }
}

/// The desired states of several orders as one; `None` if they contradict each other.
fn joined(orders: &[PreparedOrder]) -> Option<NetworkState> {
    let whole = join(orders.iter().map(|order| order.desired.sections())).ok()?;
    NetworkState::parse(serde_json::Value::Object(whole)).ok()
}

/// Sorts orders so that each comes after those that it needs.
fn in_order(orders: Vec<PreparedOrder>) -> Vec<PreparedOrder> {
    let documents: BTreeMap<&str, &Document> =
        orders.iter().map(|order| (&*order.policy, order.desired.sections())).collect();
    let sorted: Vec<String> = needs::in_order(&documents).into_iter().map(str::to_owned).collect();
    let place = |order: &PreparedOrder| sorted.iter().position(|policy| *policy == order.policy);
    let mut orders = orders;
    orders.sort_by_key(place);
    orders
}

impl Failure {
    pub(crate) fn of_host(error: &HostError) -> Self {
        let kind = match error {
            HostError::Unavailable { .. } => FailureKind::Unavailable { not_before: Duration::ZERO },
            HostError::Busy { rolls_back_in, .. } => FailureKind::Unavailable {
                not_before: rolls_back_in.unwrap_or_default() + Duration::from_secs(1),
            },
            error if error.is_retryable() => FailureKind::Retryable,
            _ => FailureKind::Final,
        };
        Self { why: format!("{error}. {}", error.advice()), kind, is_open: false, probes: Vec::new() }
    }

    /// Whether each of the orders would have failed in the same way if it had been tried alone.
    fn concerns_all(&self) -> bool {
        self.is_open || matches!(self.kind, FailureKind::Unavailable { .. })
    }
}
