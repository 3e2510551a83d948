//! What an enactment says of itself: the five conditions in each of its states, and the sentences that go with them.
//!
//! Users' tools match types, statuses and reasons, oddities included, and `kubectl get` shows the first condition that
//! is true; so the order in which they are first set is part of the table.

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

/// How far a node is with an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It waits for its turn.
    Pending,
    /// It is at work.
    Progressing,
    /// It is done, and the network is as ordered.
    Available,
    /// The same, but others have not done their part yet: nobody has lent an address, say.
    AvailableWithout { what: String },
    /// The last attempt failed; there will be another one.
    Retrying {
        /// Which attempt the next one is, counted from one.
        attempt: u32,
        /// How many there are at most.
        most: u32,
        why: String,
    },
    /// It failed for good.
    Failed { why: String },
    /// The rollout stopped before it was the node's turn.
    Aborted,
}

/// Sets all five conditions to what they are at a stage.
pub fn set(conditions: &mut ConditionList, stage: &Stage, node: &str, policy: &str, now: Timestamp) {
    rows::set(conditions, rows(stage, node, policy), now);
}

/// What is in the message of every failure whose change was rolled back.
const ROLLED_BACK: &str = "rolled back";
/// What such a message ends with when it is known to have worked.
pub const BACK_AS_BEFORE: &str = "; rolled back: the network is as it was before";

/// Whether the last attempt failed, and its change was rolled back.
pub fn is_rolled_back(conditions: &ConditionList) -> bool {
    let failing = conditions.get(FAILING).filter(|failing| failing.status == True);
    failing.is_some_and(|failing| failing.message.contains(ROLLED_BACK))
}

/// Whether the conditions say this already, whenever they began to.
pub fn says(conditions: &ConditionList, stage: &Stage, node: &str, policy: &str) -> bool {
    rows::are_set(conditions, rows(stage, node, policy))
}

/// Whether the conditions say that the network is as ordered, with or without the part of others.
pub fn says_available(conditions: &ConditionList, node: &str, policy: &str) -> bool {
    let stage = match missing(conditions) {
        Some(what) => Stage::AvailableWithout { what: what.to_owned() },
        None => Stage::Available,
    };
    says(conditions, &stage, node, policy)
}

/// What others have not done, where the network is as ordered.
pub fn missing(conditions: &ConditionList) -> Option<&str> {
    let available = conditions.get(AVAILABLE).filter(|available| available.status == True);
    available?.message.strip_prefix(RECONCILED)?.strip_prefix("; ")
}

const RECONCILED: &str = "successfully reconciled";

fn rows(stage: &Stage, node: &str, policy: &str) -> [Row; 5] {
    let said = String::new;
    match stage {
        Stage::Pending => {
            let reason = MAX_UNAVAILABLE_LIMIT_REACHED;
            let message = "Waiting for progressing nodes to finish".to_owned();
            [
                (PENDING, True, reason, message.clone()),
                (ABORTED, False, reason, said()),
                (PROGRESSING, False, reason, message),
                (FAILING, False, reason, said()),
                (AVAILABLE, False, reason, said()),
            ]
        }
        Stage::Progressing => {
            let reason = CONFIGURATION_PROGRESSING;
            [
                (PROGRESSING, True, reason, "Applying desired state".to_owned()),
                (FAILING, Unknown, reason, said()),
                (AVAILABLE, Unknown, reason, said()),
                (PENDING, False, reason, said()),
                (ABORTED, False, reason, said()),
            ]
        }
        Stage::Available | Stage::AvailableWithout { .. } => {
            let reason = SUCCESSFULLY_CONFIGURED;
            let message = match stage {
                Stage::AvailableWithout { what } => format!("{RECONCILED}; {what}"),
                _ => RECONCILED.to_owned(),
            };
            [
                (PROGRESSING, False, reason, said()),
                (FAILING, False, reason, said()),
                (AVAILABLE, True, reason, message),
                (PENDING, False, reason, said()),
                (ABORTED, False, reason, said()),
            ]
        }
        Stage::Retrying { attempt, most, why } => {
            let message = format!(
                "failed to reconcile NodeNetworkConfigurationPolicy on node {node}. Retrying {attempt}/{most}: {why}"
            );
            [
                (PROGRESSING, True, RETRYING, message.clone()),
                (FAILING, True, RETRYING, message),
                (AVAILABLE, False, RETRYING, said()),
                (PENDING, False, RETRYING, said()),
                // Odd, and relied upon.
                (ABORTED, False, SUCCESSFULLY_CONFIGURED, said()),
            ]
        }
        Stage::Failed { why } => {
            let reason = FAILED_TO_CONFIGURE;
            [
                (PROGRESSING, False, reason, said()),
                (FAILING, True, reason, why.clone()),
                (AVAILABLE, False, reason, said()),
                (PENDING, False, reason, said()),
                // Odd, and relied upon.
                (ABORTED, False, SUCCESSFULLY_CONFIGURED, said()),
            ]
        }
        Stage::Aborted => {
            let reason = CONFIGURATION_ABORTED;
            let enactment = knmstate_api::names::enactment_name(node, policy);
            [
                (PENDING, False, reason, said()),
                (ABORTED, True, reason, format!("reconciliation of enactment \"{enactment}\" has aborted")),
                (PROGRESSING, False, reason, said()),
                (FAILING, False, reason, said()),
                (AVAILABLE, False, reason, said()),
            ]
        }
    }
}

#[cfg(test)]
mod tests {
    use knmstate_api::ConditionStatus;

    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn retrying() -> Stage {
        Stage::Retrying { attempt: 2, most: 5, why: "no carrier".to_owned() }
    }

    fn without() -> Stage {
        Stage::AvailableWithout { what: "no lease; it goes on asking".to_owned() }
    }

    fn failed() -> Stage {
        Stage::Failed { why: "no such interface".to_owned() }
    }

    /// Statuses and reasons of Available, Failing, Progressing, Pending and Aborted at each stage.
    #[test]
    fn every_stage_says_what_users_tools_match() {
        let all = |status: [ConditionStatus; 5], reason| status.map(|status| (status, reason));
        let with_odd_abort = |status: [ConditionStatus; 5], reason| {
            let mut row = all(status, reason);
            row[4].1 = "SuccessfullyConfigured";
            row
        };
        let table = [
            (Stage::Progressing, all([Unknown, Unknown, True, False, False], "ConfigurationProgressing")),
            (Stage::Pending, all([False, False, False, True, False], "MaxUnavailableLimitReached")),
            (Stage::Available, all([True, False, False, False, False], "SuccessfullyConfigured")),
            (without(), all([True, False, False, False, False], "SuccessfullyConfigured")),
            (retrying(), with_odd_abort([False, True, True, False, False], "Retrying")),
            (failed(), with_odd_abort([False, True, False, False, False], "FailedToConfigure")),
            (Stage::Aborted, all([False, False, False, False, True], "ConfigurationAborted")),
        ];
        for (stage, expected) in table {
            let mut conditions = ConditionList::default();
            set(&mut conditions, &stage, "worker-1", "p1", NOW);
            for (type_, (status, reason)) in knmstate_api::reasons::enactment::TYPES.into_iter().zip(expected)
            {
                let found = conditions.get(type_).unwrap();
                assert_eq!((found.status, &*found.reason), (status, reason), "{type_} of {stage:?}");
            }
            assert!(says(&conditions, &stage, "worker-1", "p1"));
            assert!(!says(&conditions, &Stage::Failed { why: "another".to_owned() }, "worker-1", "p1"));
        }
    }

    #[test]
    fn the_sentences_are_those_that_users_know() {
        let shown = |stage: &Stage| {
            let mut conditions = ConditionList::default();
            set(&mut conditions, stage, "worker-1", "p1", NOW);
            conditions.first_true().map(|condition| condition.message.clone()).unwrap()
        };
        for (stage, message) in [
            (Stage::Pending, "Waiting for progressing nodes to finish"),
            (Stage::Progressing, "Applying desired state"),
            (Stage::Available, "successfully reconciled"),
            (without(), "successfully reconciled; no lease; it goes on asking"),
            (
                retrying(),
                "failed to reconcile NodeNetworkConfigurationPolicy on node worker-1. Retrying 2/5: no carrier",
            ),
            (failed(), "no such interface"),
            (Stage::Aborted, "reconciliation of enactment \"worker-1.p1\" has aborted"),
        ] {
            assert_eq!(shown(&stage), message);
        }
    }

    #[test]
    fn what_others_have_not_done_is_read_again() {
        for (stage, is_available, what) in [
            (Stage::Available, true, None),
            (without(), true, Some("no lease; it goes on asking")),
            (failed(), false, None),
            (Stage::Progressing, false, None),
        ] {
            let mut conditions = ConditionList::default();
            set(&mut conditions, &stage, "n", "p", NOW);
            assert_eq!(says_available(&conditions, "n", "p"), is_available, "{stage:?}");
            assert_eq!(missing(&conditions), what, "{stage:?}");
        }
    }

    #[test]
    fn the_order_is_that_of_the_first_stage() {
        for (first, order) in [
            (Stage::Progressing, ["Progressing", "Failing", "Available", "Pending", "Aborted"]),
            (Stage::Pending, ["Pending", "Aborted", "Progressing", "Failing", "Available"]),
        ] {
            let mut conditions = ConditionList::default();
            set(&mut conditions, &first, "n", "p", NOW);
            set(&mut conditions, &Stage::Available, "n", "p", NOW);
            let found: Vec<&str> = conditions.iter().map(|condition| &*condition.type_).collect();
            assert_eq!(found, order);
        }
    }
}
