//! The five conditions of an enactment at each stage, with their messages.
//!
//! Users' tools match types, statuses and reasons, oddities included. `kubectl get` prints the first condition that is
//! true, so the order in which they are first set is part of the table.

use jiff::Timestamp;
use knmstate_api::{
    ConditionList,
    ConditionStatus::{False, True, Unknown},
    reasons::enactment::{
        ABORTED, AVAILABLE, CONFIGURATION_ABORTED, CONFIGURATION_PROGRESSING, FAILED_TO_CONFIGURE, FAILING,
        MAX_UNAVAILABLE_LIMIT_REACHED, PENDING, PROGRESSING, RETRYING, SUCCESSFULLY_CONFIGURED,
    },
};

use crate::rows::{self, Row};

/// The stage of an order on its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnactmentStage {
    /// It waits for its permit.
    Pending,
    /// It is being applied.
    Progressing,
    /// It is applied.
    Available,
    /// It is applied, but something from other parties is missing, such as a dynamic address.
    AvailableWithout { what: String },
    /// The last attempt failed; another one follows.
    Retrying {
        /// The number of the next attempt, counted from one.
        attempt: u32,
        /// The maximum number of attempts.
        max_attempts: u32,
        why: String,
    },
    /// It failed; no further attempt follows.
    Failed { why: String },
    /// The rollout stopped before the node could begin.
    Aborted,
}

/// Sets all five conditions for a stage.
pub fn set_conditions(
    conditions: &mut ConditionList,
    stage: &EnactmentStage,
    node: &str,
    policy: &str,
    now: Timestamp,
) {
    rows::set(conditions, rows(stage, node, policy), now);
}

/// Part of the message of every failure whose change was rolled back.
const ROLLED_BACK_MARK: &str = "rolled back";
/// The end of the message of a failure whose change was rolled back successfully.
pub const ROLLED_BACK: &str = "; rolled back: the network is as it was before";

/// Whether the last attempt failed, and its change was rolled back.
pub fn is_rolled_back(conditions: &ConditionList) -> bool {
    let failing = conditions.get(FAILING).filter(|failing| failing.status == True);
    failing.is_some_and(|failing| failing.message.contains(ROLLED_BACK_MARK))
}

/// Whether the conditions are those of a stage already, with whatever times.
pub fn is_set(conditions: &ConditionList, stage: &EnactmentStage, node: &str, policy: &str) -> bool {
    rows::are_set(conditions, rows(stage, node, policy))
}

/// Whether the conditions are those of an applied order, with or without something missing.
pub fn is_available(conditions: &ConditionList, node: &str, policy: &str) -> bool {
    let stage = match missing(conditions) {
        Some(what) => EnactmentStage::AvailableWithout { what: what.to_owned() },
        None => EnactmentStage::Available,
    };
    is_set(conditions, &stage, node, policy)
}

/// What is missing from other parties where the order is applied; see [`EnactmentStage::AvailableWithout`].
pub fn missing(conditions: &ConditionList) -> Option<&str> {
    let available = conditions.get(AVAILABLE).filter(|available| available.status == True);
    available?.message.strip_prefix(RECONCILED)?.strip_prefix("; ")
}

const RECONCILED: &str = "successfully reconciled";

fn rows(stage: &EnactmentStage, node: &str, policy: &str) -> [Row; 5] {
    let none = String::new;
    match stage {
        EnactmentStage::Pending => {
            let reason = MAX_UNAVAILABLE_LIMIT_REACHED;
            let message = "Waiting for progressing nodes to finish".to_owned();
            [
                (PENDING, True, reason, message.clone()),
                (ABORTED, False, reason, none()),
                (PROGRESSING, False, reason, message),
                (FAILING, False, reason, none()),
                (AVAILABLE, False, reason, none()),
            ]
        }
        EnactmentStage::Progressing => {
            let reason = CONFIGURATION_PROGRESSING;
            [
                (PROGRESSING, True, reason, "Applying desired state".to_owned()),
                (FAILING, Unknown, reason, none()),
                (AVAILABLE, Unknown, reason, none()),
                (PENDING, False, reason, none()),
                (ABORTED, False, reason, none()),
            ]
        }
        EnactmentStage::Available | EnactmentStage::AvailableWithout { .. } => {
            let reason = SUCCESSFULLY_CONFIGURED;
            let message = match stage {
                EnactmentStage::AvailableWithout { what } => format!("{RECONCILED}; {what}"),
                _ => RECONCILED.to_owned(),
            };
            [
                (PROGRESSING, False, reason, none()),
                (FAILING, False, reason, none()),
                (AVAILABLE, True, reason, message),
                (PENDING, False, reason, none()),
                (ABORTED, False, reason, none()),
            ]
        }
        EnactmentStage::Retrying { attempt, max_attempts, why } => {
            let message = format!(
                "failed to reconcile NodeNetworkConfigurationPolicy on node {node}. Retrying {attempt}/{max_attempts}: {why}"
            );
            [
                (PROGRESSING, True, RETRYING, message.clone()),
                (FAILING, True, RETRYING, message),
                (AVAILABLE, False, RETRYING, none()),
                (PENDING, False, RETRYING, none()),
                // Not consistent, but tools rely on it.
                (ABORTED, False, SUCCESSFULLY_CONFIGURED, none()),
            ]
        }
        EnactmentStage::Failed { why } => {
            let reason = FAILED_TO_CONFIGURE;
            [
                (PROGRESSING, False, reason, none()),
                (FAILING, True, reason, why.clone()),
                (AVAILABLE, False, reason, none()),
                (PENDING, False, reason, none()),
                // Not consistent, but tools rely on it.
                (ABORTED, False, SUCCESSFULLY_CONFIGURED, none()),
            ]
        }
        EnactmentStage::Aborted => {
            let reason = CONFIGURATION_ABORTED;
            let enactment = knmstate_api::names::enactment_name(node, policy);
            [
                (PENDING, False, reason, none()),
                (ABORTED, True, reason, format!("reconciliation of enactment \"{enactment}\" has aborted")),
                (PROGRESSING, False, reason, none()),
                (FAILING, False, reason, none()),
                (AVAILABLE, False, reason, none()),
            ]
        }
    }
}

#[cfg(test)]
mod tests {
    use knmstate_api::ConditionStatus;

    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn retrying() -> EnactmentStage {
        EnactmentStage::Retrying { attempt: 2, max_attempts: 5, why: "no carrier".to_owned() }
    }

    fn without() -> EnactmentStage {
        EnactmentStage::AvailableWithout { what: "no lease".to_owned() }
    }

    fn failed() -> EnactmentStage {
        EnactmentStage::Failed { why: "no such interface".to_owned() }
    }

    /// Statuses and reasons of Available, Failing, Progressing, Pending and Aborted at each stage.
    #[test]
    fn every_stage_has_the_conditions_that_users_tools_match() {
        let all = |status: [ConditionStatus; 5], reason| status.map(|status| (status, reason));
        let with_odd_abort = |status: [ConditionStatus; 5], reason| {
            let mut row = all(status, reason);
            row[4].1 = "SuccessfullyConfigured";
            row
        };
        let table = [
            (
                EnactmentStage::Progressing,
                all([Unknown, Unknown, True, False, False], "ConfigurationProgressing"),
            ),
            (EnactmentStage::Pending, all([False, False, False, True, False], "MaxUnavailableLimitReached")),
            (EnactmentStage::Available, all([True, False, False, False, False], "SuccessfullyConfigured")),
            (without(), all([True, False, False, False, False], "SuccessfullyConfigured")),
            (retrying(), with_odd_abort([False, True, True, False, False], "Retrying")),
            (failed(), with_odd_abort([False, True, False, False, False], "FailedToConfigure")),
            (EnactmentStage::Aborted, all([False, False, False, False, True], "ConfigurationAborted")),
        ];
        for (stage, expected) in table {
            let mut conditions = ConditionList::default();
            set_conditions(&mut conditions, &stage, "worker-1", "p1", NOW);
            for (type_, (status, reason)) in knmstate_api::reasons::enactment::TYPES.into_iter().zip(expected)
            {
                let found = conditions.get(type_).unwrap();
                assert_eq!((found.status, &*found.reason), (status, reason), "{type_} of {stage:?}");
            }
            assert!(is_set(&conditions, &stage, "worker-1", "p1"));
            assert!(!is_set(
                &conditions,
                &EnactmentStage::Failed { why: "another".to_owned() },
                "worker-1",
                "p1"
            ));
        }
    }

    #[test]
    fn the_messages_are_those_that_users_know() {
        let shown = |stage: &EnactmentStage| {
            let mut conditions = ConditionList::default();
            set_conditions(&mut conditions, stage, "worker-1", "p1", NOW);
            conditions.first_true().map(|condition| condition.message.clone()).unwrap()
        };
        for (stage, message) in [
            (EnactmentStage::Pending, "Waiting for progressing nodes to finish"),
            (EnactmentStage::Progressing, "Applying desired state"),
            (EnactmentStage::Available, "successfully reconciled"),
            (without(), "successfully reconciled; no lease"),
            (
                retrying(),
                "failed to reconcile NodeNetworkConfigurationPolicy on node worker-1. Retrying 2/5: no carrier",
            ),
            (failed(), "no such interface"),
            (EnactmentStage::Aborted, "reconciliation of enactment \"worker-1.p1\" has aborted"),
        ] {
            assert_eq!(shown(&stage), message);
        }
    }

    #[test]
    fn what_is_missing_is_read_from_the_conditions() {
        for (stage, expected, what) in [
            (EnactmentStage::Available, true, None),
            (without(), true, Some("no lease")),
            (failed(), false, None),
            (EnactmentStage::Progressing, false, None),
        ] {
            let mut conditions = ConditionList::default();
            set_conditions(&mut conditions, &stage, "n", "p", NOW);
            assert_eq!(is_available(&conditions, "n", "p"), expected, "{stage:?}");
            assert_eq!(missing(&conditions), what, "{stage:?}");
        }
    }

    #[test]
    fn the_order_is_that_of_the_first_stage() {
        for (first, order) in [
            (EnactmentStage::Progressing, ["Progressing", "Failing", "Available", "Pending", "Aborted"]),
            (EnactmentStage::Pending, ["Pending", "Aborted", "Progressing", "Failing", "Available"]),
        ] {
            let mut conditions = ConditionList::default();
            set_conditions(&mut conditions, &first, "n", "p", NOW);
            set_conditions(&mut conditions, &EnactmentStage::Available, "n", "p", NOW);
            let found: Vec<&str> = conditions.iter().map(|condition| &*condition.type_).collect();
            assert_eq!(found, order);
        }
    }
}
