//! The status of each order: written to the ledger first, then reported to the store.
//!
//! The beginning of an attempt fails when the ledger cannot be written, because an attempt that is not on disk would
//! not be counted if it killed the process. A result is reported in any case: what has happened has happened.

use std::{borrow::Cow, collections::BTreeMap, io};

use jiff::Timestamp;
use knmstate_api::{
    NodeNetworkConfigurationEnactmentSpec, NodeNetworkConfigurationEnactmentStatus, State,
    enactment::{CapturedState, ProbeResult, StateMetaInfo, Timings},
    reasons::enactment::{CONFIGURATION_PROGRESSING, PROGRESSING},
    whole_second,
};
use knmstate_core::{
    enactment::{self, EnactmentStage},
    rollout::is_about,
};
use knmstate_document::Document;

use super::{OUTCOMES_TARGET, OrderOutcome, OrderSuccess, guarded_change::Failure, prepare::PreparedOrder};
use crate::{
    ledger::{Entry, Ledger},
    store::{Order, Orders, Store},
};

/// Records the statuses of this node's orders.
#[derive(Debug)]
pub(super) struct StatusRecorder<S> {
    node: String,
    store: S,
    ledger: Ledger,
    outcomes: BTreeMap<String, OrderOutcome>,
}

/// An order of which an earlier process has begun an attempt and not finished it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Interrupted {
    pub policy: String,
    /// How many attempts had failed before that one.
    pub failures: u32,
    /// The change itself had begun. Otherwise nothing was touched.
    pub was_changing: bool,
}

impl<S: Store> StatusRecorder<S> {
    pub(super) fn new(node: String, store: S, ledger: Ledger) -> Self {
        Self { node, store, ledger, outcomes: BTreeMap::new() }
    }

    /// The orders on disk.
    pub(super) fn kept_orders(&self) -> Orders {
        self.kept(|_| true).collect()
    }

    /// These orders, and those on disk in place of orders that the store cannot read.
    pub(super) fn with_kept<'a>(&self, orders: &'a Orders) -> Cow<'a, Orders> {
        let is_unreadable = |policy: &str| !orders.contains_key(policy) && self.store.is_unreadable(policy);
        let mut kept = self.kept(is_unreadable).peekable();
        if kept.peek().is_none() {
            return Cow::Borrowed(orders);
        }
        Cow::Owned(orders.clone().into_iter().chain(kept).collect())
    }

    fn kept(&self, which: impl Fn(&str) -> bool) -> impl Iterator<Item = (String, Order)> {
        let entries = self.ledger.entries().iter().filter(move |(policy, _)| which(policy));
        entries.map(|(policy, entry)| {
            (policy.clone(), Order { spec: entry.spec.clone(), status: Some(entry.status.clone()) })
        })
    }

    pub(super) fn spec(&self, policy: &str) -> Option<&NodeNetworkConfigurationEnactmentSpec> {
        self.ledger.get(policy).map(|entry| &entry.spec)
    }

    /// What the captures of an order resolved to earlier.
    pub(super) fn captured(&self, policy: &str) -> BTreeMap<String, Document> {
        let captured = self.ledger.get(policy).into_iter().flat_map(|entry| &entry.status.captured_states);
        captured.filter_map(|(name, captured)| Some((name.clone(), captured.state.clone()?.0))).collect()
    }

    /// Takes over the current orders. Returns those of which an earlier process has not finished an attempt.
    pub(super) fn take_over(&mut self, orders: &Orders) -> Vec<Interrupted> {
        let gone: Vec<String> =
            self.ledger.entries().keys().filter(|policy| !orders.contains_key(*policy)).cloned().collect();
        for policy in gone {
            self.ledger.forget(&policy);
            self.outcomes.remove(&policy);
        }
        let mut interrupted = Vec::new();
        for (policy, order) in orders {
            let first_seen = !self.outcomes.contains_key(policy);
            let kept = self.ledger.get(policy);
            let status = status_for(&order.spec, kept, order.status.as_ref());
            let attempting =
                kept.is_some_and(|entry| entry.attempting && is_about(&entry.status, &order.spec));
            let was_changing = was_interrupted(&status);
            if first_seen && (attempting || was_changing) {
                let failures = retry_count(&status);
                interrupted.push(Interrupted { policy: policy.clone(), failures, was_changing });
            }
            self.ledger.keep(policy, Entry { spec: order.spec.clone(), status: status.clone(), attempting });
            self.outcomes.entry(policy.clone()).or_insert_with(|| OrderOutcome {
                policy: policy.clone(),
                result: Err("not applied".to_owned()),
            });
            // What an earlier process could not deliver is delivered now; a store does not write what it has already.
            if !status.conditions.is_empty() {
                self.store.report_status(policy, status);
            }
        }
        interrupted
    }

    /// Writes what the node's disk has not taken before.
    pub(super) fn save(&mut self) -> io::Result<()> {
        self.ledger.save()
    }

    /// Reports all statuses again, for a store whose disk did not take them either.
    pub(super) fn report_again(&self) {
        for (policy, entry) in self.ledger.entries() {
            if !entry.status.conditions.is_empty() {
                self.store.report_status(policy, entry.status.clone());
            }
        }
    }

    /// Reports only the stage of an order.
    pub(super) fn report_stage(&mut self, policy: &str, stage: &EnactmentStage) {
        self.change(policy, |status, node, now| {
            if !enactment::is_set(&status.conditions, stage, node, policy) {
                enactment::set_conditions(&mut status.conditions, stage, node, policy, now);
            }
        });
    }

    /// Records, in the ledger only, that an attempt begins. Returns when the record would survive a power loss. An
    /// order that is applied already is only compared with the network, which is no attempt.
    pub(super) fn attempting(&mut self, policy: &str, failures: u32) -> io::Result<()> {
        let Some(entry) = self.ledger.get(policy) else { return Ok(()) };
        if enactment::is_available(&entry.status.conditions, &self.node, policy) {
            return Ok(());
        }
        let mut entry = Entry { attempting: true, ..entry.clone() };
        set_retry_count(&mut entry.status, failures);
        self.ledger.record(policy, entry)
    }

    /// Records what preparing an order has found. It is reported with the next status.
    pub(super) fn prepared(&mut self, order: &PreparedOrder) {
        let Some(entry) = self.ledger.get(&order.policy) else { return };
        let mut entry = entry.clone();
        fill_in(&mut entry.status, order);
        if !enactment::is_available(&entry.status.conditions, &self.node, &order.policy) {
            entry.status.notes.clone_from(&order.notes);
        }
        self.ledger.keep(&order.policy, entry);
    }

    /// Records that a change begins. Returns when the record would survive a power loss.
    pub(super) fn begun(&mut self, order: &PreparedOrder, failures: u32) -> io::Result<()> {
        let policy = &order.policy;
        let changed = self.changed(policy, |status, node, now| {
            fill_in(status, order);
            status.notes.clone_from(&order.notes);
            set_retry_count(status, failures);
            status.probes = Vec::new();
            status.timings = Some(Timings { start_time: Some(whole_second(now)), ..Timings::default() });
            enactment::set_conditions(
                &mut status.conditions,
                &EnactmentStage::Progressing,
                node,
                policy,
                now,
            );
        });
        let Some(entry) = changed else { return Ok(()) };
        let status = entry.status.clone();
        self.ledger.record(policy, Entry { attempting: true, ..entry })?;
        self.store.report_status(policy, status);
        Ok(())
    }

    /// Records, in the ledger only, that a change is committed and waits for dynamic addresses.
    pub(super) fn committed(&mut self, policy: &str, success: OrderSuccess, timings: &Timings) {
        let outcome = OrderOutcome { policy: policy.to_owned(), result: Ok(success) };
        self.outcomes.insert(policy.to_owned(), outcome);
        let Some(entry) = self.ledger.get(policy) else { return };
        let mut entry = Entry { attempting: false, ..entry.clone() };
        let start_time = entry.status.timings.take().and_then(|timings| timings.start_time);
        // Without a duration it was an earlier process that committed the change.
        let concluded = timings.conclude_milliseconds.unwrap_or_default();
        let conclude_milliseconds = Some(concluded);
        entry.status.timings = Some(Timings { start_time, conclude_milliseconds, ..timings.clone() });
        self.ledger.keep(policy, entry);
    }

    /// Whether an earlier process has committed the change of this order and was waiting for addresses.
    pub(super) fn was_awaiting_leases(&self, policy: &str) -> bool {
        self.ledger.get(policy).is_some_and(|entry| is_awaiting_leases(&entry.status))
    }

    /// Records that an order succeeded. `missing` has a message for each dynamic address that has not arrived.
    pub(super) fn succeeded(
        &mut self,
        order: &PreparedOrder,
        success: OrderSuccess,
        timings: &Timings,
        probes: Vec<ProbeResult>,
        missing: &[String],
    ) {
        if let OrderSuccess::Changed { took } = success {
            tracing::info!(target: OUTCOMES_TARGET, policy = order.policy, milliseconds = took.as_millis(), "applied");
        }
        for missing in missing {
            tracing::warn!(policy = order.policy, "{missing}");
        }
        let outcome = OrderOutcome { policy: order.policy.clone(), result: Ok(success) };
        self.outcomes.insert(order.policy.clone(), outcome);
        self.change(&order.policy, |status, node, now| {
            fill_in(status, order);
            // The message keeps what was missing then: addresses come and go, and conditions do not follow them.
            if enactment::is_available(&status.conditions, node, &order.policy)
                && success == OrderSuccess::Unchanged
            {
                return;
            }
            status.notes = order.notes.iter().chain(missing).cloned().collect();
            status.retry_count = BTreeMap::new();
            status.probes = probes;
            conclude(status, timings, now);
            let stage = match missing {
                [] => EnactmentStage::Available,
                missing => EnactmentStage::AvailableWithout { what: missing.join("; ") },
            };
            enactment::set_conditions(&mut status.conditions, &stage, node, &order.policy, now);
        });
    }

    /// Records a failed attempt, at the stage that follows from it.
    pub(super) fn failed(
        &mut self,
        policy: &str,
        stage: &EnactmentStage,
        failures: u32,
        failure: &Failure,
        timings: &Timings,
    ) {
        let why = &failure.why;
        if let EnactmentStage::Retrying { attempt, max_attempts, .. } = stage {
            tracing::warn!(policy, why, "attempt failed; next is {attempt} of {max_attempts}");
        } else {
            tracing::warn!(target: OUTCOMES_TARGET, policy, why, "failed");
        }
        let outcome = OrderOutcome { policy: policy.to_owned(), result: Err(failure.why.clone()) };
        self.outcomes.insert(policy.to_owned(), outcome);
        self.change(policy, |status, node, now| {
            set_retry_count(status, failures);
            status.probes.clone_from(&failure.probes);
            conclude(status, timings, now);
            enactment::set_conditions(&mut status.conditions, stage, node, policy, now);
        });
    }

    pub(super) fn into_outcomes(self) -> Vec<OrderOutcome> {
        self.outcomes.into_values().collect()
    }

    /// Changes a status after an attempt: in the ledger first, then in the store. Both skip what stays the same.
    fn change(
        &mut self,
        policy: &str,
        change: impl FnOnce(&mut NodeNetworkConfigurationEnactmentStatus, &str, Timestamp),
    ) {
        let Some(entry) = self.changed(policy, change) else { return };
        let status = entry.status.clone();
        self.ledger.keep(policy, Entry { attempting: false, ..entry });
        self.store.report_status(policy, status);
    }

    /// The entry of an order with a changed status.
    #[expect(clippy::disallowed_methods, reason = "conditions carry the time of their change")]
    fn changed(
        &self,
        policy: &str,
        change: impl FnOnce(&mut NodeNetworkConfigurationEnactmentStatus, &str, Timestamp),
    ) -> Option<Entry> {
        let mut entry = self.ledger.get(policy)?.clone();
        change(&mut entry.status, &self.node, Timestamp::now());
        Some(entry)
    }
}

/// The status to continue with: the newest that is about this very order, or a new one.
fn status_for(
    spec: &NodeNetworkConfigurationEnactmentSpec,
    kept: Option<&Entry>,
    reported: Option<&NodeNetworkConfigurationEnactmentStatus>,
) -> NodeNetworkConfigurationEnactmentStatus {
    // A status that kubernetes-nmstate has written has no UID. Its captures are kept, whether the order succeeded or
    // not.
    let is_of_policy = |status: &NodeNetworkConfigurationEnactmentStatus| {
        status.policy_uid.is_none() || status.policy_uid == spec.policy_uid
    };
    let known = kept
        .filter(|entry| entry.spec.capture == spec.capture)
        .map(|entry| &entry.status)
        .or(reported)
        .filter(|status| is_of_policy(status));
    match known {
        Some(status) if is_about(status, spec) => {
            NodeNetworkConfigurationEnactmentStatus { policy_uid: spec.policy_uid.clone(), ..status.clone() }
        }
        // Captures are resolved once per policy, whatever else is changed in it.
        other => NodeNetworkConfigurationEnactmentStatus {
            captured_states: other.map(|status| status.captured_states.clone()).unwrap_or_default(),
            policy_generation: spec.policy_generation,
            policy_uid: spec.policy_uid.clone(),
            ..NodeNetworkConfigurationEnactmentStatus::default()
        },
    }
}

fn was_interrupted(status: &NodeNetworkConfigurationEnactmentStatus) -> bool {
    is_progressing(status) && !is_awaiting_leases(status)
}

fn is_progressing(status: &NodeNetworkConfigurationEnactmentStatus) -> bool {
    let progressing = status.conditions.get(PROGRESSING);
    status.conditions.is_true(PROGRESSING)
        && progressing.is_some_and(|condition| condition.reason == CONFIGURATION_PROGRESSING)
}

/// Whether the change is committed and its result not reported, because addresses are missing.
fn is_awaiting_leases(status: &NodeNetworkConfigurationEnactmentStatus) -> bool {
    let timings = status.timings.as_ref();
    is_progressing(status) && timings.is_some_and(|timings| timings.conclude_milliseconds.is_some())
}

fn retry_count(status: &NodeNetworkConfigurationEnactmentStatus) -> u32 {
    let count = status.retry_count.get(&status.policy_generation.to_string());
    count.and_then(|count| u32::try_from(*count).ok()).unwrap_or_default()
}

fn set_retry_count(status: &mut NodeNetworkConfigurationEnactmentStatus, failures: u32) {
    let count = i32::try_from(failures).unwrap_or(i32::MAX);
    let generation = status.policy_generation.to_string();
    status.retry_count = [(generation, count)].into_iter().filter(|(_, count)| *count > 0).collect();
}

/// Copies to the status what is known before the change begins. Secrets stay on the node's disk.
fn fill_in(status: &mut NodeNetworkConfigurationEnactmentStatus, order: &PreparedOrder) {
    let desired = Some(State(order.desired.clone().without_secrets().sections().clone()));
    // Which features a desired state uses depends on the current state, so they are listed once.
    if status.desired_state != desired {
        status.desired_state = desired;
        status.features.clone_from(&order.features);
    }
    for (name, state) in &order.captured {
        status.captured_states.entry(name.clone()).or_insert_with(|| CapturedState {
            state: Some(state.clone()),
            meta_info: Some(StateMetaInfo::default()),
        });
    }
}

/// Sets the timings of an attempt that has ended.
fn conclude(status: &mut NodeNetworkConfigurationEnactmentStatus, timings: &Timings, now: Timestamp) {
    let start_time = status.timings.take().and_then(|timings| timings.start_time);
    status.timings =
        Some(Timings { start_time, completion_time: Some(whole_second(now)), ..timings.clone() });
}

#[cfg(test)]
mod tests {
    use knmstate_api::reasons::enactment::AVAILABLE;

    use super::*;

    #[test]
    fn captures_and_success_of_kubernetes_nmstate_are_kept() {
        let spec = NodeNetworkConfigurationEnactmentSpec {
            policy_uid: Some("u".to_owned()),
            policy_generation: 2,
            ..Default::default()
        };
        let why = String::new;
        for stage in [
            EnactmentStage::Available,
            EnactmentStage::Failed { why: why() },
            EnactmentStage::Retrying { attempt: 2, max_attempts: 5, why: why() },
            EnactmentStage::Progressing,
            EnactmentStage::Pending,
            EnactmentStage::Aborted,
        ] {
            let mut old = NodeNetworkConfigurationEnactmentStatus {
                policy_generation: 2,
                captured_states: [("nic".to_owned(), CapturedState::default())].into(),
                retry_count: [("2".to_owned(), 5)].into(),
                ..Default::default()
            };
            enactment::set_conditions(&mut old.conditions, &stage, "n", "p", Timestamp::UNIX_EPOCH);
            let status = status_for(&spec, None, Some(&old));
            assert_eq!(status.captured_states, old.captured_states, "{stage:?}");
            assert_eq!((status.policy_generation, &status.policy_uid), (2, &spec.policy_uid), "{stage:?}");
            let is_done = stage == EnactmentStage::Available;
            assert_eq!(status.conditions.is_true(AVAILABLE), is_done, "{stage:?}");
            assert_eq!(status.conditions.is_empty(), !is_done, "{stage:?}");
            assert_eq!(status.retry_count.is_empty(), !is_done, "{stage:?}");
        }
    }
}
