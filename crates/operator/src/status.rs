//! The conditions of the NMState: whether all operands run.

use jiff::Timestamp;
use knmstate_api::{
    ConditionList,
    ConditionStatus::{self, False, True},
    reasons::nmstate::{
        AVAILABLE, DEGRADED, DEPLOYING, INTERNAL_ERROR, PROGRESSING, SUCCESSFULLY_DEPLOYED,
        TLS_PROFILE_NOT_FULLY_HONORED,
    },
};

/// The progress of a Deployment or DaemonSet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Workload {
    pub generation: i64,
    /// The generation of the counts below.
    pub observed_generation: i64,
    /// The wanted number of pods.
    pub wanted: i64,
    /// The number of pods of the newest generation.
    pub updated: i64,
    pub available: i64,
}

impl Workload {
    /// Why it is not ready, in the messages that users of kubernetes-nmstate know; `None` if it is ready.
    pub(crate) fn lacks(&self, kind: &str, name: &str) -> Option<String> {
        let Self { generation, observed_generation, wanted, updated, available } = *self;
        if observed_generation < generation {
            Some(format!(
                "{kind} \"{name}\" update is being processed (generation {generation}, observed generation {observed_generation})"
            ))
        } else if wanted == 0 {
            Some(format!("{kind} \"{name}\" is not yet scheduled on any nodes"))
        } else if updated < wanted {
            Some(format!("{kind} \"{name}\" update is rolling out ({updated} out of {wanted} updated)"))
        } else if available < wanted {
            Some(format!("{kind} \"{name}\" is not available (awaiting {} nodes)", wanted - available))
        } else {
            None
        }
    }
}

/// The result of a reconciliation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DeploymentState {
    /// Everything runs.
    Deployed,
    /// Everything runs, but only a part of the cluster's TLS profile is honored.
    TlsNotHonored(String),
    /// The workloads that are not ready.
    Deploying(Vec<String>),
    /// The reconciliation failed with this error.
    Failed(String),
}

impl DeploymentState {
    /// The new conditions. Those that do not change keep their times.
    pub(crate) fn conditions(&self, before: &ConditionList, now: Timestamp) -> ConditionList {
        type Row<'a> = (ConditionStatus, &'a str, &'a str);
        const IN_PROGRESS: &str = "Deploying is in progress";
        const ALL_WELL: &str = "All components are available and ready";
        let lines;
        let [available, progressing, degraded]: [Row<'_>; 3] = match self {
            Self::Deployed => {
                let row = |status| (status, SUCCESSFULLY_DEPLOYED, ALL_WELL);
                [row(True), row(False), row(False)]
            }
            Self::TlsNotHonored(message) => {
                let row = |status| (status, SUCCESSFULLY_DEPLOYED, ALL_WELL);
                [row(True), row(False), (True, TLS_PROFILE_NOT_FULLY_HONORED, message)]
            }
            Self::Deploying(lacking) => {
                lines = lacking.join("\n");
                [(False, DEPLOYING, IN_PROGRESS), (True, DEPLOYING, &lines), (False, DEPLOYING, IN_PROGRESS)]
            }
            Self::Failed(message) => {
                let row = |status| (status, INTERNAL_ERROR, message.as_str());
                [row(False), row(False), row(True)]
            }
        };
        let mut conditions = before.clone();
        for (type_, (status, reason, message)) in
            [(AVAILABLE, available), (PROGRESSING, progressing), (DEGRADED, degraded)]
        {
            // A new heartbeat alone is not written: it would wake all watches, including our own.
            let known = conditions.get(type_);
            if known.is_none_or(|known| {
                (known.status, known.reason.as_str(), known.message.as_str()) != (status, reason, message)
            }) {
                conditions.set(type_, status, reason, message, now);
            }
        }
        conditions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(
        generation: i64,
        observed_generation: i64,
        wanted: i64,
        updated: i64,
        available: i64,
    ) -> Workload {
        Workload { generation, observed_generation, wanted, updated, available }
    }

    #[test]
    fn workloads_that_are_not_ready_have_the_known_messages() {
        for (workload, expected) in [
            (workload(2, 2, 3, 3, 3), None),
            (
                workload(2, 1, 3, 3, 3),
                Some("update is being processed (generation 2, observed generation 1)"),
            ),
            (workload(1, 1, 0, 0, 0), Some("is not yet scheduled on any nodes")),
            (workload(1, 1, 3, 1, 3), Some("update is rolling out (1 out of 3 updated)")),
            (workload(1, 1, 3, 3, 1), Some("is not available (awaiting 2 nodes)")),
        ] {
            let expected = expected.map(|words| format!("DaemonSet \"h\" {words}"));
            assert_eq!(workload.lacks("DaemonSet", "h"), expected);
        }
    }

    #[test]
    fn an_equal_result_changes_nothing() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let first = DeploymentState::Deployed.conditions(&ConditionList::default(), at(100));
        assert_eq!(DeploymentState::Deployed.conditions(&first, at(200)), first);
        let types: Vec<_> = first.iter().map(|condition| condition.type_.as_str()).collect();
        assert_eq!(types, ["Available", "Progressing", "Degraded"]);
        let failed = DeploymentState::Failed("no".to_owned()).conditions(&first, at(300));
        assert_eq!(failed.status(AVAILABLE), False);
        assert_eq!(failed.first_true().unwrap().message, "no");
        assert_eq!(
            failed.get(PROGRESSING).unwrap().last_transition_time,
            first.get(PROGRESSING).unwrap().last_transition_time
        );
    }
}
