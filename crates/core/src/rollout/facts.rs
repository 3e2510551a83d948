//! What of an enactment matters for a rollout, as the API server has it.

use knmstate_api::{
    NodeNetworkConfigurationEnactmentSpec, NodeNetworkConfigurationEnactmentStatus,
    reasons::enactment::{ABORTED, AVAILABLE, FAILING, PROGRESSING},
};

use super::{Enactment, Order, Stage};

/// What an enactment says about a rollout. `wanted` is the order that the present generation of its policy is for the
/// node; its permit does not matter.
pub fn enactment_facts(
    spec: Option<&NodeNetworkConfigurationEnactmentSpec>,
    status: &NodeNetworkConfigurationEnactmentStatus,
    wanted: &NodeNetworkConfigurationEnactmentSpec,
) -> Enactment {
    let Some(spec) = spec else {
        let stage = if speaks_of(status, wanted) { stage(status) } else { Stage::Open };
        return Enactment { order: None, stage };
    };
    // What is said of this order, which may be older than the one that is wanted.
    let of_order = if speaks_of(status, spec) { stage(status) } else { Stage::Open };
    let order = Order {
        permit: spec.permit,
        permit_time: spec.permit_time.as_ref().map(|time| time.0),
        is_current: (spec.policy_generation, &spec.policy_uid)
            == (wanted.policy_generation, &wanted.policy_uid),
        asks_the_same: asks_the_same(spec, wanted),
        is_finished: matches!(of_order, Stage::Available { .. } | Stage::Failed),
        is_carried_out: matches!(of_order, Stage::Available { .. }),
    };
    Enactment { stage: if order.is_current { of_order } else { Stage::Open }, order: Some(order) }
}

fn stage(status: &NodeNetworkConfigurationEnactmentStatus) -> Stage {
    let conditions = &status.conditions;
    if let Some(available) = conditions.get(AVAILABLE).filter(|_| conditions.is_true(AVAILABLE)) {
        return Stage::Available { since: available.last_transition_time.as_ref().map(|time| time.0) };
    }
    if conditions.is_true(ABORTED) {
        return Stage::Aborted;
    }
    // With both there will be another attempt.
    if conditions.is_true(FAILING) && !conditions.is_true(PROGRESSING) {
        return Stage::Failed;
    }
    Stage::Open
}

/// Whether a status is about an order.
///
/// One of kubernetes-nmstate names no UID. If it says that the node is done, that counts, so that nothing changes in what
/// a policy says when it is taken over. Whatever else it says is over: the node begins anew, and has not failed, been
/// stopped or been told to wait by anybody who is still there.
pub fn speaks_of(
    status: &NodeNetworkConfigurationEnactmentStatus,
    order: &NodeNetworkConfigurationEnactmentSpec,
) -> bool {
    let is_taken_over = status.policy_uid.is_none() && status.conditions.is_true(AVAILABLE);
    status.policy_generation == order.policy_generation
        && (status.policy_uid == order.policy_uid || is_taken_over)
}

/// Whether two orders differ in nothing but whom they come from and whether they are permitted.
fn asks_the_same(
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
    use crate::enactment::{self, Stage as Told};

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;
    const DONE: Stage = Stage::Available { since: Some(NOW) };

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

    fn told(uid: Option<&str>, generation: i64, stage: &Told) -> NodeNetworkConfigurationEnactmentStatus {
        let mut status = NodeNetworkConfigurationEnactmentStatus {
            policy_uid: uid.map(str::to_owned),
            policy_generation: generation,
            ..Default::default()
        };
        enactment::set(&mut status.conditions, stage, "n", "p", NOW);
        status
    }

    fn retrying() -> Told {
        Told::Retrying { attempt: 2, most: 5, why: "w".to_owned() }
    }

    fn failed() -> Told {
        Told::Failed { why: "w".to_owned() }
    }

    #[test]
    fn every_stage_that_is_told_counts() {
        for (said, expected) in [
            (Told::Pending, Stage::Open),
            (Told::Progressing, Stage::Open),
            (Told::Available, DONE),
            (retrying(), Stage::Open),
            (failed(), Stage::Failed),
            (Told::Aborted, Stage::Aborted),
        ] {
            let facts =
                enactment_facts(Some(&order("u", 3, Permit::Apply)), &told(Some("u"), 3, &said), &wanted());
            assert_eq!(facts.stage, expected, "{said:?}");
            let order = facts.order.unwrap();
            assert!(order.is_current && order.asks_the_same);
            assert_eq!((order.permit, order.permit_time), (Permit::Apply, Some(NOW + 1.minute())));
            assert_eq!(order.is_carried_out, expected == DONE, "{said:?}");
            assert_eq!(order.is_finished, expected == DONE || expected == Stage::Failed, "{said:?}");
        }
        let unsaid = NodeNetworkConfigurationEnactmentStatus::default();
        let facts = enactment_facts(Some(&order("u", 3, Permit::Wait)), &unsaid, &wanted());
        assert_eq!(facts.stage, Stage::Open);
    }

    /// UID and generation of the order, UID and generation of the status, and what follows when the status says that
    /// it is done: whether the order is the present one, whether it is carried out, and the stage.
    #[test]
    fn a_status_counts_for_the_order_that_it_speaks_of() {
        for (uid, generation, said_uid, said, is_current, is_carried_out, stage) in [
            ("u", 3, Some("u"), 3, true, true, DONE),
            ("u", 3, Some("u"), 2, true, false, Stage::Open),
            ("u", 3, Some("old"), 3, true, false, Stage::Open),
            // What kubernetes-nmstate has said.
            ("u", 3, None, 3, true, true, DONE),
            ("u", 2, Some("u"), 2, false, true, Stage::Open),
            ("u", 2, Some("u"), 1, false, false, Stage::Open),
            ("old", 3, Some("old"), 3, false, true, Stage::Open),
            // Made anew, a policy counts from the beginning.
            ("old", 9, Some("old"), 9, false, true, Stage::Open),
        ] {
            let facts = enactment_facts(
                Some(&order(uid, generation, Permit::Apply)),
                &told(said_uid, said, &Told::Available),
                &wanted(),
            );
            let row = format!("order {uid}@{generation}, status {said_uid:?}@{said}");
            assert_eq!(facts.stage, stage, "{row}");
            let order = facts.order.unwrap();
            assert_eq!((order.is_current, order.is_carried_out), (is_current, is_carried_out), "{row}");
            assert_eq!(order.is_finished, is_carried_out, "{row}");
        }
    }

    #[test]
    fn what_kubernetes_nmstate_has_not_achieved_is_no_failure_of_an_order() {
        for said in [failed(), retrying(), Told::Aborted, Told::Progressing, Told::Pending] {
            let order = order("u", 3, Permit::Apply);
            let facts = enactment_facts(Some(&order), &told(None, 3, &said), &wanted());
            assert_eq!(facts.stage, Stage::Open, "{said:?}");
            assert!(!facts.order.unwrap().is_finished, "{said:?}");
        }
    }

    #[test]
    fn an_older_order_is_finished_by_a_failure_and_not_by_a_retry() {
        for (said, is_finished) in [(failed(), true), (retrying(), false), (Told::Progressing, false)] {
            let facts =
                enactment_facts(Some(&order("u", 2, Permit::Apply)), &told(Some("u"), 2, &said), &wanted());
            let order = facts.order.unwrap();
            assert_eq!((order.is_finished, order.is_carried_out), (is_finished, false), "{said:?}");
        }
    }

    #[test]
    fn only_what_is_asked_of_the_node_makes_a_difference() {
        let status = NodeNetworkConfigurationEnactmentStatus::default();
        let old = order("u", 2, Permit::Apply);
        let other_state = NodeNetworkConfigurationEnactmentSpec { desired_state: None, ..old.clone() };
        let other_drift = NodeNetworkConfigurationEnactmentSpec { drift: Drift::Correct, ..old.clone() };
        for (spec, expected) in
            [(old, true), (order("old", 9, Permit::Wait), true), (other_state, false), (other_drift, false)]
        {
            let facts = enactment_facts(Some(&spec), &status, &wanted());
            assert_eq!(facts.order.unwrap().asks_the_same, expected, "{spec:?}");
        }
    }

    #[test]
    fn without_an_order_the_status_counts_if_it_is_of_the_present_generation() {
        for (uid, generation, said, expected) in [
            (None, 3, Told::Available, DONE),
            (None, 2, Told::Available, Stage::Open),
            (None, 3, failed(), Stage::Open),
            (None, 3, retrying(), Stage::Open),
            (None, 3, Told::Aborted, Stage::Open),
            (Some("u"), 3, Told::Available, DONE),
            (Some("old"), 3, Told::Available, Stage::Open),
        ] {
            let facts = enactment_facts(None, &told(uid, generation, &said), &wanted());
            assert_eq!(facts, Enactment { order: None, stage: expected }, "{uid:?}@{generation} {said:?}");
        }
    }

    #[test]
    fn conditions_of_others_are_read() {
        let condition =
            |type_: &str, status| Condition { type_: type_.to_owned(), status, ..Default::default() };
        for (conditions, expected) in [
            (vec![condition(AVAILABLE, True)], Stage::Available { since: None }),
            (vec![condition(FAILING, True)], Stage::Failed),
            (vec![condition(FAILING, True), condition(PROGRESSING, False)], Stage::Failed),
            (vec![condition(AVAILABLE, False), condition(FAILING, False)], Stage::Open),
        ] {
            let status = NodeNetworkConfigurationEnactmentStatus {
                policy_generation: 3,
                policy_uid: Some("u".to_owned()),
                conditions: conditions.into(),
                ..Default::default()
            };
            assert_eq!(enactment_facts(None, &status, &wanted()).stage, expected);
        }
    }
}
