//! What the node says of each of its orders: kept on disk first, then told.

use std::{collections::BTreeMap, io};

use jiff::Timestamp;
use knmstate_api::{
    NodeNetworkConfigurationEnactmentSpec, NodeNetworkConfigurationEnactmentStatus, State,
    condition::whole_second,
    enactment::{CapturedState, ProbeResult, StateMetaInfo, Timings},
    reasons::enactment::{CONFIGURATION_PROGRESSING, PROGRESSING},
};
use knmstate_core::{
    document::Document,
    enactment::{self, Stage},
    rollout::speaks_of,
};

use super::{Achieved, OUTCOMES, Outcome, guarded::Failure, prepare::Prepared};
use crate::{
    ledger::{Entry, Ledger},
    store::{Order, Orders, Store},
};

/// The enactments of this node.
#[derive(Debug)]
pub(super) struct Enactments<S> {
    node: String,
    store: S,
    ledger: Ledger,
    outcomes: BTreeMap<String, Outcome>,
}

/// An order whose change an earlier life has begun and not finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Interrupted {
    pub policy: String,
    /// How many attempts had failed before.
    pub failures: u32,
}

impl<S: Store> Enactments<S> {
    pub(super) fn new(node: String, store: S, ledger: Ledger) -> Self {
        Self { node, store, ledger, outcomes: BTreeMap::new() }
    }

    /// The orders on disk.
    pub(super) fn kept_orders(&self) -> Orders {
        let entries = self.ledger.entries().iter();
        entries
            .map(|(policy, entry)| {
                (policy.clone(), Order { spec: entry.spec.clone(), status: Some(entry.status.clone()) })
            })
            .collect()
    }

    pub(super) fn spec(&self, policy: &str) -> Option<&NodeNetworkConfigurationEnactmentSpec> {
        self.ledger.get(policy).map(|entry| &entry.spec)
    }

    /// What the captures of an order resolved to earlier.
    pub(super) fn captured(&self, policy: &str) -> BTreeMap<String, Document> {
        let captured = self.ledger.get(policy).into_iter().flat_map(|entry| &entry.status.captured_states);
        captured.filter_map(|(name, captured)| Some((name.clone(), captured.state.clone()?.0))).collect()
    }

    /// Takes over the orders as they are now. Says which of them an earlier life was in the middle of.
    pub(super) fn take_over(&mut self, orders: &Orders) -> io::Result<Vec<Interrupted>> {
        let gone: Vec<String> =
            self.ledger.entries().keys().filter(|policy| !orders.contains_key(*policy)).cloned().collect();
        for policy in gone {
            self.ledger.forget(&policy)?;
            self.outcomes.remove(&policy);
        }
        let mut interrupted = Vec::new();
        for (policy, order) in orders {
            let first_seen = !self.outcomes.contains_key(policy);
            let kept = self.ledger.get(policy);
            let status = status_for(&order.spec, kept, order.status.as_ref());
            if first_seen && was_interrupted(&status) {
                interrupted.push(Interrupted { policy: policy.clone(), failures: retry_count(&status) });
            }
            self.ledger.keep(policy, Entry { spec: order.spec.clone(), status: status.clone() })?;
            self.outcomes.entry(policy.clone()).or_insert_with(|| Outcome {
                policy: policy.clone(),
                result: Err("not carried out".to_owned()),
            });
            // What could not be delivered by an earlier life is delivered now; what is there already is not written.
            if !status.conditions.is_empty() {
                self.store.tell(policy, status);
            }
        }
        Ok(interrupted)
    }

    /// Only says at which stage an order is.
    pub(super) fn tell_stage(&mut self, policy: &str, stage: &Stage) -> io::Result<()> {
        self.change(policy, |status, node, now| {
            if !enactment::says(&status.conditions, stage, node, policy) {
                enactment::set(&mut status.conditions, stage, node, policy, now);
            }
        })
    }

    /// What an order means on this node is known; it is told with whatever is told next.
    pub(super) fn prepared(&mut self, order: &Prepared) {
        let Some(entry) = self.ledger.get(&order.policy) else { return };
        let mut entry = entry.clone();
        fill_in(&mut entry.status, order);
        if !enactment::says_available(&entry.status.conditions, &self.node, &order.policy) {
            entry.status.notes.clone_from(&order.notes);
        }
        // Only captures have to survive: they are resolved once.
        if let Err(error) = self.ledger.keep(&order.policy, entry) {
            tracing::warn!(policy = order.policy, %error, "what captures resolved to could not be noted");
        }
    }

    /// A change is about to be made. Returns when that would be known after a loss of power.
    pub(super) fn begun(&mut self, order: &Prepared, failures: u32) -> io::Result<()> {
        self.change(&order.policy, |status, node, now| {
            fill_in(status, order);
            status.notes.clone_from(&order.notes);
            set_retry_count(status, failures);
            status.probes = Vec::new();
            status.timings = Some(Timings { start_time: Some(whole_second(now)), ..Timings::default() });
            enactment::set(&mut status.conditions, &Stage::Progressing, node, &order.policy, now);
        })
    }

    /// A change is in force and only addresses that others lend are waited for. Kept on disk, and not told.
    pub(super) fn committed(
        &mut self,
        policy: &str,
        achieved: Achieved,
        timings: &Timings,
    ) -> io::Result<()> {
        let outcome = Outcome { policy: policy.to_owned(), result: Ok(achieved) };
        self.outcomes.insert(policy.to_owned(), outcome);
        let Some(entry) = self.ledger.get(policy) else { return Ok(()) };
        let mut entry = entry.clone();
        let start_time = entry.status.timings.take().and_then(|timings| timings.start_time);
        // What was as ordered, because an earlier life had made it so, was concluded by that life.
        let concluded = timings.conclude_milliseconds.unwrap_or_default();
        let conclude_milliseconds = Some(concluded);
        entry.status.timings = Some(Timings { start_time, conclude_milliseconds, ..timings.clone() });
        self.ledger.keep(policy, entry)
    }

    /// Whether an earlier life has changed the network as ordered and was waiting for addresses.
    pub(super) fn was_unsettled(&self, policy: &str) -> bool {
        self.ledger.get(policy).is_some_and(|entry| is_unsettled(&entry.status))
    }

    /// An order is carried out; `missing` is what others have not done for it yet.
    pub(super) fn succeeded(
        &mut self,
        order: &Prepared,
        achieved: Achieved,
        timings: &Timings,
        probes: Vec<ProbeResult>,
        missing: &[String],
    ) -> io::Result<()> {
        if let Achieved::Changed { took } = achieved {
            tracing::info!(target: OUTCOMES, policy = order.policy, milliseconds = took.as_millis(), "applied");
        }
        for missing in missing {
            tracing::warn!(policy = order.policy, "{missing}");
        }
        let outcome = Outcome { policy: order.policy.clone(), result: Ok(achieved) };
        self.outcomes.insert(order.policy.clone(), outcome);
        self.change(&order.policy, |status, node, now| {
            fill_in(status, order);
            // What was missing then is left as it was said: addresses come and go, and conditions do not follow them.
            if enactment::says_available(&status.conditions, node, &order.policy)
                && achieved == Achieved::Already
            {
                return;
            }
            status.notes = order.notes.iter().chain(missing).cloned().collect();
            status.retry_count = BTreeMap::new();
            status.probes = probes;
            conclude(status, timings, now);
            let stage = match missing {
                [] => Stage::Available,
                missing => Stage::AvailableWithout { what: missing.join("; ") },
            };
            enactment::set(&mut status.conditions, &stage, node, &order.policy, now);
        })
    }

    pub(super) fn failed(
        &mut self,
        policy: &str,
        stage: &Stage,
        failures: u32,
        failure: &Failure,
        timings: &Timings,
    ) -> io::Result<()> {
        let why = &failure.why;
        if let Stage::Retrying { attempt, most, .. } = stage {
            tracing::warn!(policy, why, "an attempt failed; number {attempt} of {most} follows");
        } else {
            tracing::warn!(target: OUTCOMES, policy, why, "failed");
        }
        let outcome = Outcome { policy: policy.to_owned(), result: Err(failure.why.clone()) };
        self.outcomes.insert(policy.to_owned(), outcome);
        self.change(policy, |status, node, now| {
            set_retry_count(status, failures);
            status.probes.clone_from(&failure.probes);
            conclude(status, timings, now);
            enactment::set(&mut status.conditions, stage, node, policy, now);
        })
    }

    pub(super) fn into_outcomes(self) -> Vec<Outcome> {
        self.outcomes.into_values().collect()
    }

    /// Changes a status: on disk first, then told. What stays the same is neither written nor told again.
    #[expect(clippy::disallowed_methods, reason = "when something was said is part of what is said")]
    fn change(
        &mut self,
        policy: &str,
        change: impl FnOnce(&mut NodeNetworkConfigurationEnactmentStatus, &str, Timestamp),
    ) -> io::Result<()> {
        let Some(entry) = self.ledger.get(policy) else { return Ok(()) };
        let mut changed = entry.clone();
        change(&mut changed.status, &self.node, Timestamp::now());
        let status = changed.status.clone();
        self.ledger.keep(policy, changed)?;
        self.store.tell(policy, status);
        Ok(())
    }
}

/// The status to go on from: the newest that speaks of this very order, or a new one.
fn status_for(
    spec: &NodeNetworkConfigurationEnactmentSpec,
    kept: Option<&Entry>,
    told: Option<&NodeNetworkConfigurationEnactmentStatus>,
) -> NodeNetworkConfigurationEnactmentStatus {
    // What kubernetes-nmstate has said names no UID. Its captures hold, whatever became of them.
    let is_of_policy = |status: &NodeNetworkConfigurationEnactmentStatus| {
        status.policy_uid.is_none() || status.policy_uid == spec.policy_uid
    };
    let known = kept
        .filter(|entry| entry.spec.capture == spec.capture)
        .map(|entry| &entry.status)
        .or(told)
        .filter(|status| is_of_policy(status));
    match known {
        Some(status) if speaks_of(status, spec) => {
            NodeNetworkConfigurationEnactmentStatus { policy_uid: spec.policy_uid.clone(), ..status.clone() }
        }
        // Captures are resolved once in the life of a policy, whatever else is changed in it.
        other => NodeNetworkConfigurationEnactmentStatus {
            captured_states: other.map(|status| status.captured_states.clone()).unwrap_or_default(),
            policy_generation: spec.policy_generation,
            policy_uid: spec.policy_uid.clone(),
            ..NodeNetworkConfigurationEnactmentStatus::default()
        },
    }
}

fn was_interrupted(status: &NodeNetworkConfigurationEnactmentStatus) -> bool {
    is_at_work(status) && !is_unsettled(status)
}

fn is_at_work(status: &NodeNetworkConfigurationEnactmentStatus) -> bool {
    let progressing = status.conditions.get(PROGRESSING);
    status.conditions.is_true(PROGRESSING)
        && progressing.is_some_and(|condition| condition.reason == CONFIGURATION_PROGRESSING)
}

/// Whether the change is committed, and only not told to be.
fn is_unsettled(status: &NodeNetworkConfigurationEnactmentStatus) -> bool {
    let timings = status.timings.as_ref();
    is_at_work(status) && timings.is_some_and(|timings| timings.conclude_milliseconds.is_some())
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

/// What is known about an order before anything is touched. Secrets stay on the node's disk.
fn fill_in(status: &mut NodeNetworkConfigurationEnactmentStatus, order: &Prepared) {
    let desired = Some(State(order.desired.clone().without_secrets().sections().clone()));
    // Which features a desired state uses depends on what is there already; it is said once.
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
    fn of_what_kubernetes_nmstate_has_said_captures_hold_and_success() {
        let spec = NodeNetworkConfigurationEnactmentSpec {
            policy_uid: Some("u".to_owned()),
            policy_generation: 2,
            ..Default::default()
        };
        let why = String::new;
        for stage in [
            Stage::Available,
            Stage::Failed { why: why() },
            Stage::Retrying { attempt: 2, most: 5, why: why() },
            Stage::Progressing,
            Stage::Pending,
            Stage::Aborted,
        ] {
            let mut said = NodeNetworkConfigurationEnactmentStatus {
                policy_generation: 2,
                captured_states: [("card".to_owned(), CapturedState::default())].into(),
                retry_count: [("2".to_owned(), 5)].into(),
                ..Default::default()
            };
            enactment::set(&mut said.conditions, &stage, "n", "p", Timestamp::UNIX_EPOCH);
            let status = status_for(&spec, None, Some(&said));
            assert_eq!(status.captured_states, said.captured_states, "{stage:?}");
            assert_eq!((status.policy_generation, &status.policy_uid), (2, &spec.policy_uid), "{stage:?}");
            let is_done = stage == Stage::Available;
            assert_eq!(status.conditions.is_true(AVAILABLE), is_done, "{stage:?}");
            assert_eq!(status.conditions.is_empty(), !is_done, "{stage:?}");
            assert_eq!(status.retry_count.is_empty(), !is_done, "{stage:?}");
        }
    }
}
