//! The facts about an enactment that a rollout depends on.

use knmstate_api::{
    NodeNetworkConfigurationEnactmentSpec, NodeNetworkConfigurationEnactmentStatus,
    reasons::enactment::{ABORTED, AVAILABLE, FAILING, PROGRESSING},
};

use super::{Enactment, NodeOutcome, Order};

/// The facts about an enactment. `wanted` is the order for the node from the current generation of the policy; its
/// permit does not matter.
pub fn enactment_facts(
    spec: Option<&NodeNetworkConfigurationEnactmentSpec>,
    status: &NodeNetworkConfigurationEnactmentStatus,
    wanted: &NodeNetworkConfigurationEnactmentSpec,
) -> Enactment {
    let Some(spec) = spec else {
        let outcome = if is_about(status, wanted) { outcome(status) } else { NodeOutcome::Unfinished };
        return Enactment { order: None, outcome };
    };
    // The result of this order, which may be older than `wanted`.
    let of_order = if is_about(status, spec) { outcome(status) } else { NodeOutcome::Unfinished };
    let order = Order {
        permit: spec.permit,
        permit_time: spec.permit_time.as_ref().map(|time| time.0),
        is_current: (spec.policy_generation, &spec.policy_uid)
            == (wanted.policy_generation, &wanted.policy_uid),
        is_same_request: is_same_request(spec, wanted),
        is_finished: matches!(of_order, NodeOutcome::Available { .. } | NodeOutcome::Failed),
        is_applied: matches!(of_order, NodeOutcome::Available { .. }),
    };
    Enactment {
        outcome: if order.is_current { of_order } else { NodeOutcome::Unfinished },
        order: Some(order),
    }
}

fn outcome(status: &NodeNetworkConfigurationEnactmentStatus) -> NodeOutcome {
    let conditions = &status.conditions;
    if let Some(available) = conditions.get(AVAILABLE).filter(|_| conditions.is_true(AVAILABLE)) {
        return NodeOutcome::Available { since: available.last_transition_time.as_ref().map(|time| time.0) };
    }
    if conditions.is_true(ABORTED) {
        return NodeOutcome::Aborted;
    }
    // Failing and Progressing together mean that another attempt follows.
    if conditions.is_true(FAILING) && !conditions.is_true(PROGRESSING) {
        return NodeOutcome::Failed;
    }
    NodeOutcome::Unfinished
}

/// Whether a status is about an order.
///
/// A status by kubernetes-nmstate has no UID. If its Available is true, it counts, so that the status of a policy does
/// not change when knmstate takes over. Otherwise it does not count: the node starts again, because the failure, abort
/// or wait was decided by a program that is gone.
pub fn is_about(
    status: &NodeNetworkConfigurationEnactmentStatus,
    order: &NodeNetworkConfigurationEnactmentSpec,
) -> bool {
    let is_taken_over = status.policy_uid.is_none() && status.conditions.is_true(AVAILABLE);
    status.policy_generation == order.policy_generation
        && (status.policy_uid == order.policy_uid || is_taken_over)
}

/// Whether two orders differ in nothing but the generation of the policy and the permit.
fn is_same_request(
    one: &NodeNetworkConfigurationEnactmentSpec,
    other: &NodeNetworkConfigurationEnactmentSpec,
) -> bool {
    let NodeNetworkConfigurationEnactmentSpec { policy_uid, policy_generation, permit, permit_time, .. } =
        one.clone();
    one == &NodeNetworkConfigurationEnactmentSpec {
        policy_uid,
        policy_generation,
        permit,
        permit_time,
        ..other.clone()
    }
}

#[cfg(test)]
mod tests {
    use jiff::{Timestamp, ToSpan as _};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use knmstate_api::{
        Condition,
        ConditionStatus::{False, True},
        Drift, Permit, State,
    };
    use serde_json::json;

    use super::*;
    use crate::enactment::{self, EnactmentStage};

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;
    const DONE: NodeOutcome = NodeOutcome::Available { since: Some(NOW) };

    fn order(uid: &str, generation: i64, permit: Permit) -> NodeNetworkConfigurationEnactmentSpec {
        NodeNetworkConfigurationEnactmentSpec {
            node_name: "n".to_owned(),
            policy_name: "p".to_owned(),
            policy_uid: Some(uid.to_owned()),
            policy_generation: generation,
            permit,
            permit_time: Some(Time(NOW + 1.minute())),
            desired_state: Some(State(json!({"interfaces": []}).as_object().unwrap().clone())),
            ..Default::default()
        }
    }

    fn wanted() -> NodeNetworkConfigurationEnactmentSpec {
        NodeNetworkConfigurationEnactmentSpec { permit_time: None, ..order("u", 3, Permit::Wait) }
    }

    fn status_of(
        uid: Option<&str>,
        generation: i64,
        stage: &EnactmentStage,
    ) -> NodeNetworkConfigurationEnactmentStatus {
        let mut status = NodeNetworkConfigurationEnactmentStatus {
            policy_uid: uid.map(str::to_owned),
            policy_generation: generation,
            ..Default::default()
        };
        enactment::set_conditions(&mut status.conditions, stage, "n", "p", NOW);
        status
    }

    fn retrying() -> EnactmentStage {
        EnactmentStage::Retrying { attempt: 2, max_attempts: 5, why: "w".to_owned() }
    }

    fn failed() -> EnactmentStage {
        EnactmentStage::Failed { why: "w".to_owned() }
    }

    #[test]
    fn every_reported_stage_counts() {
        for (stage, expected) in [
            (EnactmentStage::Pending, NodeOutcome::Unfinished),
            (EnactmentStage::Progressing, NodeOutcome::Unfinished),
            (EnactmentStage::Available, DONE),
            (retrying(), NodeOutcome::Unfinished),
            (failed(), NodeOutcome::Failed),
            (EnactmentStage::Aborted, NodeOutcome::Aborted),
        ] {
            let facts = enactment_facts(
                Some(&order("u", 3, Permit::Apply)),
                &status_of(Some("u"), 3, &stage),
                &wanted(),
            );
            assert_eq!(facts.outcome, expected, "{stage:?}");
            let order = facts.order.unwrap();
            assert!(order.is_current && order.is_same_request);
            assert_eq!((order.permit, order.permit_time), (Permit::Apply, Some(NOW + 1.minute())));
            assert_eq!(order.is_applied, expected == DONE, "{stage:?}");
            assert_eq!(order.is_finished, expected == DONE || expected == NodeOutcome::Failed, "{stage:?}");
        }
        let empty = NodeNetworkConfigurationEnactmentStatus::default();
        let facts = enactment_facts(Some(&order("u", 3, Permit::Wait)), &empty, &wanted());
        assert_eq!(facts.outcome, NodeOutcome::Unfinished);
    }

    /// UID and generation of the order, UID and generation of a status that is Available, and the expected facts: whether
    /// the order is current, whether it is applied, and the outcome.
    #[test]
    fn a_status_counts_for_the_order_that_it_is_about() {
        for (uid, generation, status_uid, status_generation, is_current, is_applied, outcome) in [
            ("u", 3, Some("u"), 3, true, true, DONE),
            ("u", 3, Some("u"), 2, true, false, NodeOutcome::Unfinished),
            ("u", 3, Some("old"), 3, true, false, NodeOutcome::Unfinished),
            // A status by kubernetes-nmstate.
            ("u", 3, None, 3, true, true, DONE),
            ("u", 2, Some("u"), 2, false, true, NodeOutcome::Unfinished),
            ("u", 2, Some("u"), 1, false, false, NodeOutcome::Unfinished),
            ("old", 3, Some("old"), 3, false, true, NodeOutcome::Unfinished),
            // A policy that was deleted and created again starts with generation 1.
            ("old", 9, Some("old"), 9, false, true, NodeOutcome::Unfinished),
        ] {
            let facts = enactment_facts(
                Some(&order(uid, generation, Permit::Apply)),
                &status_of(status_uid, status_generation, &EnactmentStage::Available),
                &wanted(),
            );
            let row = format!("order {uid}@{generation}, status {status_uid:?}@{status_generation}");
            assert_eq!(facts.outcome, outcome, "{row}");
            let order = facts.order.unwrap();
            assert_eq!((order.is_current, order.is_applied), (is_current, is_applied), "{row}");
            assert_eq!(order.is_finished, is_applied, "{row}");
        }
    }

    #[test]
    fn a_failure_of_kubernetes_nmstate_is_not_a_failure_of_an_order() {
        for stage in [
            failed(),
            retrying(),
            EnactmentStage::Aborted,
            EnactmentStage::Progressing,
            EnactmentStage::Pending,
        ] {
            let order = order("u", 3, Permit::Apply);
            let facts = enactment_facts(Some(&order), &status_of(None, 3, &stage), &wanted());
            assert_eq!(facts.outcome, NodeOutcome::Unfinished, "{stage:?}");
            assert!(!facts.order.unwrap().is_finished, "{stage:?}");
        }
    }

    #[test]
    fn an_older_order_is_finished_by_a_failure_and_not_by_a_retry() {
        for (stage, is_finished) in
            [(failed(), true), (retrying(), false), (EnactmentStage::Progressing, false)]
        {
            let facts = enactment_facts(
                Some(&order("u", 2, Permit::Apply)),
                &status_of(Some("u"), 2, &stage),
                &wanted(),
            );
            let order = facts.order.unwrap();
            assert_eq!((order.is_finished, order.is_applied), (is_finished, false), "{stage:?}");
        }
    }

    #[test]
    fn only_the_content_of_an_order_makes_it_a_different_request() {
        let status = NodeNetworkConfigurationEnactmentStatus::default();
        let old = order("u", 2, Permit::Apply);
        let other_state = NodeNetworkConfigurationEnactmentSpec { desired_state: None, ..old.clone() };
        let other_drift = NodeNetworkConfigurationEnactmentSpec { drift: Drift::Correct, ..old.clone() };
        for (spec, expected) in
            [(old, true), (order("old", 9, Permit::Wait), true), (other_state, false), (other_drift, false)]
        {
            let facts = enactment_facts(Some(&spec), &status, &wanted());
            assert_eq!(facts.order.unwrap().is_same_request, expected, "{spec:?}");
        }
    }

    #[test]
    fn without_an_order_the_status_counts_if_it_is_of_the_current_generation() {
        for (uid, generation, stage, expected) in [
            (None, 3, EnactmentStage::Available, DONE),
            (None, 2, EnactmentStage::Available, NodeOutcome::Unfinished),
            (None, 3, failed(), NodeOutcome::Unfinished),
            (None, 3, retrying(), NodeOutcome::Unfinished),
            (None, 3, EnactmentStage::Aborted, NodeOutcome::Unfinished),
            (Some("u"), 3, EnactmentStage::Available, DONE),
            (Some("old"), 3, EnactmentStage::Available, NodeOutcome::Unfinished),
        ] {
            let facts = enactment_facts(None, &status_of(uid, generation, &stage), &wanted());
            assert_eq!(facts, Enactment { order: None, outcome: expected }, "{uid:?}@{generation} {stage:?}");
        }
    }

    #[test]
    fn conditions_without_times_and_reasons_are_read() {
        let condition =
            |type_: &str, status| Condition { type_: type_.to_owned(), status, ..Default::default() };
        for (conditions, expected) in [
            (vec![condition(AVAILABLE, True)], NodeOutcome::Available { since: None }),
            (vec![condition(FAILING, True)], NodeOutcome::Failed),
            (vec![condition(FAILING, True), condition(PROGRESSING, False)], NodeOutcome::Failed),
            (vec![condition(AVAILABLE, False), condition(FAILING, False)], NodeOutcome::Unfinished),
        ] {
            let status = NodeNetworkConfigurationEnactmentStatus {
                policy_generation: 3,
                policy_uid: Some("u".to_owned()),
                conditions: conditions.into(),
                ..Default::default()
            };
            assert_eq!(enactment_facts(None, &status, &wanted()).outcome, expected);
        }
    }
}
