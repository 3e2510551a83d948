//! The four conditions of a policy, derived from the phases of its nodes.
//!
//! Users' tools match types, statuses, reasons and the messages with counts. The denominators differ on purpose: Ready
//! nodes for progress, all nodes that take part for success and failure.

use jiff::Timestamp;
use knmstate_api::{
    ConditionList,
    ConditionStatus::{False, True, Unknown},
    reasons::policy::{
        AVAILABLE, CONFIGURATION_PROGRESSING, DEGRADED, FAILED_TO_CONFIGURE, IGNORED, NO_MATCHING_NODE,
        PROGRESSING, SUCCESSFULLY_CONFIGURED,
    },
};

use crate::{
    rollout::Tally,
    rows::{self, Row},
    shorten,
};

/// The length of a longest message, in bytes. The API server accepts several times as much, and refuses what is longer.
const MAX_MESSAGE: usize = 4096;
/// The length of a longest text of a node in a message, so that one node cannot fill it.
const MAX_NODE_TEXT: usize = 1024;

/// The state of a policy, with the message of its conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Summary {
    /// It selects no node.
    NoMatch,
    Progressing(String),
    Succeeded(String),
    Failed(String),
}

impl Summary {
    /// Summarizes the counts of its nodes. A node that will try again has not failed.
    pub fn of(tally: &Tally) -> Self {
        let &Tally { nodes, ready, available, failed, aborted, pending, .. } = tally;
        let finished = available + failed + aborted;
        let unready = match nodes - ready {
            0 => String::new(),
            count => format!(", {count} nodes ignored due to NotReady state"),
        };
        if nodes == 0 {
            return Self::NoMatch;
        }
        if failed + aborted > 0 {
            let aborted = match aborted {
                0 => String::new(),
                count => format!(", {count} nodes aborted configuration"),
            };
            return Self::Failed(format!("{failed}/{nodes} nodes failed to configure{aborted}"));
        }
        if finished < ready {
            return Self::Progressing(format!(
                "Policy is progressing {finished}/{ready} nodes finished{unready}"
            ));
        }
        if pending > 0 {
            return Self::Progressing(format!(
                "Policy is progressing {finished}/{ready} nodes finished, {pending} pending{unready}"
            ));
        }
        Self::Succeeded(format!("{available}/{nodes} nodes successfully configured{unready}"))
    }

    /// Adds why nodes wait, to a policy that is in progress.
    #[must_use]
    pub fn with_remarks(self, remarks: &[String]) -> Self {
        match self {
            Self::Progressing(message) if !remarks.is_empty() => {
                Self::Progressing(format!("{message}: {}", remarks.join("; ")))
            }
            other => other,
        }
    }

    /// Adds what is missing on some nodes, to a policy that has succeeded: the first node as an example, because a
    /// rollout may be large.
    #[must_use]
    pub fn with_missing(self, missing: &[(&str, &str)]) -> Self {
        match (self, missing) {
            (Self::Succeeded(message), [(node, what), others @ ..]) => {
                let others = match others.len() {
                    0 => String::new(),
                    1 => " (and similar on 1 other node)".to_owned(),
                    count => format!(" (and similar on {count} other nodes)"),
                };
                let what = shorten(what, MAX_NODE_TEXT);
                Self::Succeeded(format!("{message}; {node}: {what}{others}"))
            }
            (other, _) => other,
        }
    }

    /// The message of the condition that is true.
    fn message(&self) -> &str {
        match self {
            Self::NoMatch => "Policy does not match any node",
            Self::Progressing(message) | Self::Succeeded(message) | Self::Failed(message) => message,
        }
    }
}

/// Sets all four conditions to a summary.
pub fn set_conditions(conditions: &mut ConditionList, summary: &Summary, now: Timestamp) {
    rows::set(conditions, rows(summary), now);
}

/// Whether the conditions are those of a summary already, with whatever times.
pub fn is_set(conditions: &ConditionList, summary: &Summary) -> bool {
    rows::are_set(conditions, rows(summary))
}

fn rows(summary: &Summary) -> [Row; 4] {
    let none = String::new;
    let message = shorten(summary.message(), MAX_MESSAGE).into_owned();
    match summary {
        Summary::NoMatch => {
            let reason = NO_MATCHING_NODE;
            [
                (AVAILABLE, False, reason, none()),
                (DEGRADED, False, reason, none()),
                (PROGRESSING, False, reason, none()),
                (IGNORED, True, reason, message),
            ]
        }
        Summary::Progressing(_) => {
            let reason = CONFIGURATION_PROGRESSING;
            [
                (AVAILABLE, Unknown, reason, none()),
                (DEGRADED, Unknown, reason, none()),
                (PROGRESSING, True, reason, message),
                (IGNORED, False, reason, none()),
            ]
        }
        Summary::Succeeded(_) => {
            let reason = SUCCESSFULLY_CONFIGURED;
            [
                (AVAILABLE, True, reason, message),
                (DEGRADED, False, reason, none()),
                (PROGRESSING, False, reason, none()),
                (IGNORED, False, reason, none()),
            ]
        }
        Summary::Failed(_) => {
            let reason = FAILED_TO_CONFIGURE;
            [
                (AVAILABLE, False, reason, none()),
                (DEGRADED, True, reason, message),
                // Not consistent, but tools rely on it.
                (PROGRESSING, False, CONFIGURATION_PROGRESSING, none()),
                (IGNORED, False, reason, none()),
            ]
        }
    }
}

#[cfg(test)]
mod tests {
    use knmstate_api::{ConditionStatus, reasons::policy::TYPES};

    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    #[test]
    fn what_is_missing_is_reported_for_the_first_node() {
        let done = || Summary::Succeeded("3/3 nodes successfully configured".to_owned());
        let all = [("n1", "eth1: no lease"), ("n2", "eth1: none"), ("n3", "eth2: none")];
        for (count, rest) in [
            (0, ""),
            (1, "; n1: eth1: no lease"),
            (2, "; n1: eth1: no lease (and similar on 1 other node)"),
            (3, "; n1: eth1: no lease (and similar on 2 other nodes)"),
        ] {
            let summary = done().with_missing(&all[..count]);
            assert_eq!(summary, Summary::Succeeded(format!("3/3 nodes successfully configured{rest}")));
        }
        let failed = Summary::Failed("1/3 nodes failed to configure".to_owned());
        assert_eq!(failed.clone().with_missing(&all), failed);
    }

    #[test]
    fn a_message_has_a_limited_length() {
        let done = || Summary::Succeeded("2/2 nodes successfully configured".to_owned());
        let (long, longest) = ("ä".repeat(20_000), "x".repeat(1024));
        for (what, expected) in
            [(&*longest, longest.clone()), (&*long, format!("{}…", "ä".repeat(510))), ("x", "x".to_owned())]
        {
            let said =
                format!("2/2 nodes successfully configured; n1: {expected} (and similar on 1 other node)");
            assert_eq!(done().with_missing(&[("n1", what), ("n2", "y")]), Summary::Succeeded(said));
        }
        let refused = Summary::Failed(long);
        let mut conditions = ConditionList::default();
        set_conditions(&mut conditions, &refused, NOW);
        let said = &conditions.first_true().unwrap().message;
        assert_eq!((said.len(), said.ends_with("ä…")), (4095, true));
        assert!(is_set(&conditions, &refused), "it is not written again");
    }

    fn tally(nodes: usize, ready: usize, [available, failed, aborted, pending]: [usize; 4]) -> Tally {
        Tally { nodes, ready, available, failed, aborted, pending, holding: 0 }
    }

    #[test]
    fn the_first_rule_that_holds_decides() {
        use Summary::{Failed, NoMatch, Progressing, Succeeded};
        let text = str::to_owned;
        for (tally, expected) in [
            (tally(0, 0, [0, 0, 0, 0]), NoMatch),
            (tally(3, 3, [0, 1, 0, 2]), Failed(text("1/3 nodes failed to configure"))),
            (
                tally(3, 3, [0, 2, 1, 0]),
                Failed(text("2/3 nodes failed to configure, 1 nodes aborted configuration")),
            ),
            (tally(3, 2, [0, 1, 0, 0]), Failed(text("1/3 nodes failed to configure"))),
            (tally(3, 3, [0, 0, 0, 1]), Progressing(text("Policy is progressing 0/3 nodes finished"))),
            (tally(3, 3, [2, 0, 0, 0]), Progressing(text("Policy is progressing 2/3 nodes finished"))),
            (
                tally(3, 2, [1, 0, 0, 0]),
                Progressing(text(
                    "Policy is progressing 1/2 nodes finished, 1 nodes ignored due to NotReady state",
                )),
            ),
            (
                tally(3, 2, [2, 0, 0, 1]),
                Progressing(text(
                    "Policy is progressing 2/2 nodes finished, 1 pending, 1 nodes ignored due to NotReady state",
                )),
            ),
            (tally(3, 3, [3, 0, 0, 0]), Succeeded(text("3/3 nodes successfully configured"))),
            (
                tally(3, 2, [2, 0, 0, 0]),
                Succeeded(text("2/3 nodes successfully configured, 1 nodes ignored due to NotReady state")),
            ),
        ] {
            assert_eq!(Summary::of(&tally), expected, "{tally:?}");
        }
    }

    /// Statuses and reasons of Available, Degraded, Progressing and Ignored.
    #[test]
    fn every_summary_has_the_conditions_that_users_tools_match() {
        let all = |status: [ConditionStatus; 4], reason| status.map(|status| (status, reason));
        let mut failed = all([False, True, False, False], "FailedToConfigure");
        failed[2].1 = "ConfigurationProgressing";
        for (summary, expected) in [
            (Summary::NoMatch, all([False, False, False, True], "NoMatchingNode")),
            (
                Summary::Progressing("m".to_owned()),
                all([Unknown, Unknown, True, False], "ConfigurationProgressing"),
            ),
            (Summary::Succeeded("m".to_owned()), all([True, False, False, False], "SuccessfullyConfigured")),
            (Summary::Failed("m".to_owned()), failed),
        ] {
            let mut conditions = ConditionList::default();
            set_conditions(&mut conditions, &summary, NOW);
            assert!(conditions.iter().map(|condition| &*condition.type_).eq(TYPES));
            for (type_, expected) in TYPES.into_iter().zip(expected) {
                let found = conditions.get(type_).unwrap();
                assert_eq!((found.status, &*found.reason), expected, "{type_} of {summary:?}");
            }
            assert_eq!(conditions.first_true().unwrap().message, summary.message());
            assert!(is_set(&conditions, &summary));
            assert!(!is_set(&conditions, &Summary::Succeeded("another".to_owned())));
        }
    }
}
