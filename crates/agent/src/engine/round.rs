//! One round of the engine: everything that is due, together if possible, one by one if not.

use std::{collections::BTreeMap, io, slice, time::Duration};

use knmstate_api::enactment::{ProbeResult, Timings};
use knmstate_core::{document::Document, join::join, needs, progress::Setback};
use knmstate_host::{Host, HostError, NetworkState};
use tokio::time::Instant;

use super::{
    Achieved, Engine,
    guarded::Failure,
    milliseconds,
    prepare::{Prepared, prepare},
    transaction::{End, Transaction, take_note},
};
use crate::store::Store;

/// What the steps around a change may take altogether, before the engine counts as hung.
const MARGIN: Duration = Duration::from_mins(5);

/// What carrying out some orders has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carried {
    Unchanged,
    Changed,
    /// A change could not be settled: nothing else may be begun before it is.
    Open,
}

impl<H: Host, S: Store> Engine<H, S> {
    /// False when a change could not be settled: nothing else may be begun before it is.
    pub(super) async fn carry_out_what_is_due(&mut self) -> io::Result<bool> {
        let due: Vec<String> =
            self.progress.due(self.start.elapsed()).into_iter().map(str::to_owned).collect();
        if due.is_empty() {
            return Ok(true);
        }
        // Idle it need not show itself; at work it has to come to an end.
        let longest = self.settings.transaction * 2 + self.settings.probes + MARGIN;
        let _alive = self.health.expect("engine", longest * u32::try_from(due.len()).unwrap_or(1));
        if !self.hold().await {
            return Ok(true);
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
        let mut orders = self.without_what_is_met(orders).await?;
        if orders.len() > 1
            && let Some(carried) = self.carry_out_together(&mut orders).await?
        {
            return Ok(carried);
        }
        let mut carried = Carried::Unchanged;
        for mut order in orders {
            let desired = order.desired.clone();
            let end = self.transaction(slice::from_mut(&mut order), desired).carry_out().await;
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

    /// What is as ordered is not touched because something else is not. Orders that contradict each other are left as
    /// they are: the one that is met would change with every start.
    async fn without_what_is_met(&mut self, mut orders: Vec<Prepared>) -> io::Result<Vec<Prepared>> {
        let Some(whole) = joined(&orders).filter(|_| orders.len() > 1) else { return Ok(orders) };
        let begun = Instant::now();
        // One look is enough when all is well, as it is after most starts.
        let all_met = match self.host.plan(&whole).await {
            Ok(plan) => {
                take_note(&mut orders, &plan.warnings);
                plan.is_empty()
            }
            // Why it cannot be told is found out when it is to be changed.
            Err(_) => false,
        };
        let mut left = Vec::new();
        for order in orders {
            if all_met || self.is_met(&order.desired).await {
                let prepare_milliseconds = Some(milliseconds(begun.elapsed()));
                let timings = Timings { prepare_milliseconds, ..Timings::default() };
                self.succeeded(&order, Achieved::Already, &timings, Vec::new())?;
            } else {
                left.push(order);
            }
        }
        Ok(left)
    }

    /// Why it cannot be told is found out when it is to be changed.
    async fn is_met(&self, desired: &NetworkState) -> bool {
        self.host.plan(desired).await.is_ok_and(|plan| plan.is_empty())
    }

    /// Several orders as one change. `None` when they have to be tried one by one, so that blame falls on the right one.
    async fn carry_out_together(&mut self, orders: &mut [Prepared]) -> io::Result<Option<Carried>> {
        let Some(whole) = joined(orders) else { return Ok(None) };
        match self.transaction(orders, whole).carry_out().await {
            End::Stopped => Ok(Some(Carried::Unchanged)),
            End::Unchanged(timings) => {
                for order in orders.iter() {
                    self.succeeded(order, Achieved::Already, &timings, Vec::new())?;
                }
                Ok(Some(Carried::Unchanged))
            }
            End::Changed { took, timings, probes } => {
                for order in orders.iter() {
                    let own = |name: &str| order.probes.iter().any(|probe| probe.name == name);
                    let probes = probes.iter().filter(|probe| own(&probe.name)).cloned().collect();
                    self.succeeded(order, Achieved::Changed { took }, &timings, probes)?;
                }
                Ok(Some(Carried::Changed))
            }
            End::Failed { failure, timings } if failure.concerns_all() => {
                for order in orders.iter() {
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
        orders: &'a mut [Prepared],
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
        probes: Vec<ProbeResult>,
    ) -> io::Result<()> {
        self.progress.succeeded(&order.policy);
        if self.has_to_settle(order, achieved) {
            return self.unsettle(order, achieved, timings, probes);
        }
        self.enactments.succeeded(order, achieved, timings, probes, &[])
    }

    pub(super) fn failed(&mut self, policy: &str, failure: &Failure, timings: &Timings) -> io::Result<()> {
        let stage = self.progress.failed(policy, failure.setback, self.start.elapsed(), &failure.why);
        let failures = self.progress.failures(policy);
        self.enactments.failed(policy, &stage, failures, failure, timings)
    }
}

/// Several orders as one document; `None` if they contradict each other.
fn joined(orders: &[Prepared]) -> Option<NetworkState> {
    let whole = join(orders.iter().map(|order| order.desired.sections())).ok()?;
    NetworkState::parse(serde_json::Value::Object(whole)).ok()
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

impl Failure {
    pub(crate) fn of_host(error: &HostError) -> Self {
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
