//! What is left out of the status of an enactment that is too large to store.
//!
//! A status that cannot be stored holds up the rollout: the controller does not learn how the node came out. So the parts
//! that the rollout does not need are left out, those first that are elsewhere, too: the desired state is in the order,
//! captures are in the node's ledger. The notes list what was left out. The conditions are always kept.

use knmstate_api::{Condition, ConditionList, NodeNetworkConfigurationEnactmentStatus as Status};

use crate::budget::{BUDGET, size};

/// A status may always have this size, however large the order is.
const LEAST: usize = 64 * 1024;

/// Messages that are cut keep this many bytes, and of those so many at the end, where they say whether the change was
/// rolled back.
const MESSAGE: usize = 2048;
const SHORT_MESSAGE: usize = 512;
const END_OF_MESSAGE: usize = 256;

/// How many notes and probes are kept when there are too many.
const FIRST: usize = 16;

/// A part to leave out; true if there was something to leave out.
type Cut = fn(&mut Status) -> bool;

const STEPS: [(&str, Cut); 8] = [
    ("desiredState", |status| status.desired_state.take().is_some()),
    ("capturedStates", |status| !std::mem::take(&mut status.captured_states).is_empty()),
    ("plan", |status| status.plan.take().is_some()),
    ("drift", |status| status.drift.take().is_some()),
    ("features", |status| !std::mem::take(&mut status.features).is_empty()),
    ("parts of long messages", |status| cut_messages(status, MESSAGE)),
    ("some of the notes and probes", |status| {
        let is_long = status.notes.len().max(status.probes.len()) > FIRST;
        status.notes.truncate(FIRST);
        status.probes.truncate(FIRST);
        is_long
    }),
    ("more of long messages", |status| cut_messages(status, SHORT_MESSAGE)),
];

/// How large the JSON of a status may be, beside an order whose JSON has this size.
pub fn budget_beside(order: usize) -> usize {
    BUDGET.saturating_sub(order).max(LEAST)
}

/// The status with as much as fits into `bytes` of JSON, and a note about what was left out.
pub fn fit(mut status: Status, bytes: usize) -> Status {
    let mut omitted = Vec::new();
    for (what, cut) in STEPS {
        if size(&status) + note(&omitted).map_or(0, |note| note.len()) <= bytes {
            break;
        }
        if cut(&mut status) {
            omitted.push(what);
        }
    }
    status.notes.extend(note(&omitted));
    status
}

fn note(omitted: &[&str]) -> Option<String> {
    let list = omitted.join(", ");
    let note = || format!("left out here, because the status would be too large for the API server: {list}");
    (!omitted.is_empty()).then(note)
}

/// What remains of a status that the API server refuses: what the rollout goes by, and `why` as a note.
pub fn minimal(status: &Status, why: &str) -> Status {
    let mut minimal = Status {
        policy_generation: status.policy_generation,
        policy_uid: status.policy_uid.clone(),
        conditions: status.conditions.clone(),
        retry_count: status.retry_count.clone(),
        notes: vec![why.to_owned()],
        ..Status::default()
    };
    cut_messages(&mut minimal, SHORT_MESSAGE);
    minimal
}

/// Cuts all texts to this length; true if there was a longer one.
fn cut_messages(status: &mut Status, bytes: usize) -> bool {
    let mut is_cut = false;
    let mut cut = |text: &mut String| is_cut |= cut_text(text, bytes);
    let mut conditions: Vec<Condition> = status.conditions.iter().cloned().collect();
    for condition in &mut conditions {
        cut(&mut condition.message);
    }
    status.conditions = ConditionList::from(conditions);
    for note in &mut status.notes {
        cut(note);
    }
    for probe in &mut status.probes {
        cut(&mut probe.message);
    }
    is_cut
}

/// Cuts the middle out of a text that is longer than this; true if it was.
fn cut_text(text: &mut String, bytes: usize) -> bool {
    const GAP: &str = " … ";
    if text.len() <= bytes {
        return false;
    }
    let head = text.floor_char_boundary(bytes - END_OF_MESSAGE - GAP.len());
    let tail = text.ceil_char_boundary(text.len() - END_OF_MESSAGE);
    text.replace_range(head..tail, GAP);
    true
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use knmstate_api::{
        State,
        enactment::{CapturedState, ProbeResult},
        reasons::enactment::FAILING,
    };
    use serde_json::json;

    use super::*;
    use crate::enactment::{EnactmentStage, ROLLED_BACK, is_rolled_back, set_conditions};

    const KIB: usize = 1024;

    fn state(bytes: usize) -> State {
        serde_json::from_value(json!({ "interfaces": ["x".repeat(bytes)] })).unwrap()
    }

    fn status(desired: usize, captured: usize, message: usize, notes: usize) -> Status {
        let mut status = Status {
            desired_state: Some(state(desired)),
            captured_states: [(
                "c".to_owned(),
                CapturedState { state: Some(state(captured)), meta_info: None },
            )]
            .into(),
            policy_generation: 7,
            policy_uid: Some("u".to_owned()),
            retry_count: [("7".to_owned(), 5)].into(),
            notes: vec!["remark".to_owned(); notes],
            probes: vec![ProbeResult { name: "web".to_owned(), ..ProbeResult::default() }],
            ..Status::default()
        };
        let why = format!("{}ä{ROLLED_BACK}", "w".repeat(message));
        let stage = EnactmentStage::Failed { why };
        set_conditions(&mut status.conditions, &stage, "n", "p", Timestamp::UNIX_EPOCH);
        status
    }

    #[test]
    fn what_is_elsewhere_is_left_out_first() {
        let table = [
            (status(100, 100, 100, 1), ""),
            (status(100 * KIB, 100, 100, 1), "desiredState"),
            (status(100 * KIB, 100 * KIB, 100, 1), "desiredState, capturedStates"),
            (status(100, 100 * KIB, 100, 1), "desiredState, capturedStates"),
            (status(1, 1, 100 * KIB, 1), "desiredState, capturedStates, parts of long messages"),
            (status(1, 1, 100, 10_000), "desiredState, capturedStates, some of the notes and probes"),
        ];
        for (status, expected) in table {
            let fitted = fit(status.clone(), 64 * KIB);
            assert!(size(&fitted) <= 64 * KIB, "{expected}: {}", size(&fitted));
            let note = fitted.notes.last().unwrap();
            if expected.is_empty() {
                assert_eq!(fitted, status);
            } else {
                assert!(note.ends_with(&format!(": {expected}")), "{note}");
            }
            assert_eq!((fitted.policy_generation, &fitted.policy_uid), (7, &status.policy_uid));
            assert_eq!(fitted.retry_count, status.retry_count);
            let failing = fitted.conditions.get(FAILING).unwrap();
            assert_eq!(
                failing.last_transition_time,
                status.conditions.get(FAILING).unwrap().last_transition_time
            );
            assert!(is_rolled_back(&fitted.conditions), "{expected}: the end of the message counts");
            assert_eq!(fit(fitted.clone(), 64 * KIB), fitted, "{expected}: what fits stays as it is");
        }
    }

    #[test]
    fn order_and_status_together_stay_below_what_etcd_takes() {
        for order in [0, 100 * KIB, 1000 * KIB, 1300 * KIB] {
            let fitted = fit(status(2000 * KIB, 2000 * KIB, 2000 * KIB, 100_000), budget_beside(order));
            assert!(order + size(&fitted) < 1400 * KIB, "{order}: {}", size(&fitted));
        }
    }

    #[test]
    fn a_minimal_status_has_what_the_rollout_goes_by_and_the_reason() {
        let full = status(KIB, KIB, 100 * KIB, 100);
        let minimal = minimal(&full, "refused");
        assert!(size(&minimal) < 4 * KIB, "{}", size(&minimal));
        assert_eq!(minimal.notes, ["refused"]);
        assert_eq!((minimal.policy_generation, &minimal.policy_uid), (7, &full.policy_uid));
        assert_eq!(minimal.conditions.iter().count(), full.conditions.iter().count());
        assert!(minimal.conditions.is_true(FAILING) && is_rolled_back(&minimal.conditions));
        assert!(minimal.desired_state.is_none() && minimal.captured_states.is_empty());
    }

    #[test]
    fn texts_are_cut_between_characters() {
        for length in 600..620 {
            let mut text = "ä".repeat(length);
            assert!(cut_text(&mut text, 512));
            assert!(text.len() <= 512 && text.contains('…') && text.ends_with('ä'), "{}", text.len());
            assert!(!cut_text(&mut text, 512));
        }
    }
}
