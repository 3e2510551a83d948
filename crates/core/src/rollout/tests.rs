use jiff::ToSpan as _;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::policy_status::Summary;

mod pools;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn policy(spec: Value) -> NodeNetworkConfigurationPolicySpec {
    serde_json::from_value(spec).unwrap()
}

fn healthy() -> Node {
    Node { away_since: None, is_ready: true, has_handler: true, is_canary: false }
}

fn nodes(count: usize) -> BTreeMap<String, Node> {
    (0..count).map(|number| (format!("n{number}"), healthy())).collect()
}

fn ordered(permit: Permit, outcome: NodeOutcome) -> Enactment {
    let order = Order {
        permit,
        permit_time: Some(NOW),
        is_current: true,
        is_same_request: true,
        is_finished: matches!(outcome, NodeOutcome::Available { .. } | NodeOutcome::Failed),
        is_applied: matches!(outcome, NodeOutcome::Available { .. }),
    };
    Enactment { order: Some(order), outcome }
}

fn of_old(permit: Permit, is_finished: bool, is_applied: bool, is_same_request: bool) -> Enactment {
    let order =
        Order { permit, permit_time: Some(NOW), is_current: false, is_same_request, is_finished, is_applied };
    Enactment { order: Some(order), outcome: NodeOutcome::Unfinished }
}

const DONE: NodeOutcome = NodeOutcome::Available { since: Some(NOW) };

fn at_work() -> Enactment {
    ordered(Permit::Apply, NodeOutcome::Unfinished)
}

fn done() -> Enactment {
    ordered(Permit::Apply, DONE)
}

fn failed() -> Enactment {
    ordered(Permit::Apply, NodeOutcome::Failed)
}

fn waiting() -> Enactment {
    ordered(Permit::Wait, NodeOutcome::Unfinished)
}

fn enactments<const N: usize>(all: [Enactment; N]) -> BTreeMap<String, Enactment> {
    all.into_iter().enumerate().map(|(number, enactment)| (format!("n{number}"), enactment)).collect()
}

fn permits_of(decision: &Decision) -> String {
    let letter = |permit: &Permit| match permit {
        Permit::Wait => 'w',
        Permit::Apply => 'A',
        Permit::Restore => 'R',
        Permit::Abort => 'x',
    };
    decision.permits.values().map(letter).collect()
}

/// The permits, in the order of the nodes, at a moment.
fn at(
    spec: &Value,
    nodes: &BTreeMap<String, Node>,
    enactments: &BTreeMap<String, Enactment>,
    now: Timestamp,
) -> String {
    let policy = policy(spec.clone());
    permits_of(&decide(&RolloutContext { policy: &policy, pools: None, now }, nodes, enactments))
}

fn permits<const N: usize>(spec: &Value, all: [Enactment; N]) -> String {
    at(spec, &nodes(N), &enactments(all), NOW)
}

#[test]
fn slots_are_given_while_there_are_any() {
    let one = json!({"maxUnavailable": 1});
    let two = json!({"maxUnavailable": 2});
    assert_eq!(at(&json!({}), &nodes(5), &BTreeMap::new(), NOW), "AAAww", "half of the nodes, rounded up");
    for (spec, all, expected) in [
        (&one, [waiting(), waiting(), waiting(), waiting()], "Awww"),
        (&one, [at_work(), waiting(), waiting(), waiting()], "Awww"),
        (&one, [done(), waiting(), waiting(), waiting()], "AAww"),
        (&one, [done(), done(), at_work(), waiting()], "AAAw"),
        (&two, [failed(), waiting(), waiting(), waiting()], "AAww"),
        (&two, [failed(), at_work(), waiting(), waiting()], "AAww"),
        (&two, [done(), done(), done(), done()], "AAAA"),
        // More at work than allowed, as after a change of the limit: no node is stopped, and none begins.
        (&one, [at_work(), at_work(), done(), waiting()], "AAAw"),
    ] {
        assert_eq!(permits(spec, all), expected);
    }
}

#[test]
fn a_rollout_stops_when_as_many_have_failed_as_may_be_at_work() {
    let two = json!({"maxUnavailable": 2});
    assert_eq!(permits(&two, [failed(), failed(), waiting(), waiting()]), "AAxx");
    assert_eq!(permits(&two, [failed(), at_work(), waiting(), waiting()]), "AAww");
    let aborted = ordered(Permit::Abort, NodeOutcome::Aborted);
    assert_eq!(permits(&two, [done(), done(), aborted, waiting()]), "AAxA", "an aborted node stays aborted");
    let tolerant = json!({"maxUnavailable": 3, "rollout": {"maxFailures": 1}});
    assert_eq!(permits(&tolerant, [failed(), waiting(), waiting(), waiting()]), "AAAw");
    assert_eq!(permits(&tolerant, [failed(), failed(), waiting(), waiting()]), "AAxx");
    let narrow = json!({"maxUnavailable": 1, "rollout": {"maxFailures": 2}});
    assert_eq!(permits(&narrow, [failed(), waiting(), waiting(), waiting()]), "AAww", "the rollout goes on");
    assert_eq!(permits(&narrow, [failed(), at_work(), waiting(), waiting()]), "AAww", "one at a time");
    assert_eq!(permits(&narrow, [failed(), failed(), failed(), waiting()]), "AAAx");
    let strict = json!({"maxUnavailable": 3, "rollout": {"maxFailures": 0}});
    assert_eq!(permits(&strict, [failed(), at_work(), waiting(), waiting()]), "AAxx");
}

#[test]
fn a_new_generation_keeps_the_permits_of_nodes_at_work() {
    let one = json!({"maxUnavailable": 1});
    let at_work = || of_old(Permit::Apply, false, false, false);
    let has_waited = || of_old(Permit::Wait, false, false, false);
    let has_failed = || of_old(Permit::Apply, true, false, false);
    let was_done = || of_old(Permit::Apply, true, true, false);
    assert_eq!(permits(&one, [has_waited(), at_work(), has_waited()]), "wAw", "it keeps its slot");
    assert_eq!(permits(&one, [has_failed(), was_done(), has_waited()]), "Aww", "all others wait");
    let given_up = of_old(Permit::Abort, false, false, false);
    assert_eq!(permits(&one, [given_up, was_done(), was_done()]), "Aww");
    let unchanged = || of_old(Permit::Apply, true, true, true);
    assert_eq!(
        permits(&one, [unchanged(), unchanged(), has_waited()]),
        "AAA",
        "a node that has the state already needs no slot"
    );
}

#[test]
fn what_kubernetes_nmstate_has_applied_is_not_applied_again() {
    let one = json!({"maxUnavailable": 1});
    let from_before = |outcome| Enactment { order: None, outcome };
    let all = [
        from_before(DONE),
        from_before(NodeOutcome::Failed),
        from_before(DONE),
        from_before(NodeOutcome::Unfinished),
    ];
    assert_eq!(permits(&one, all), "AAAw");
}

#[test]
fn a_node_that_is_not_healthy_frees_its_slot_after_the_timeout() {
    let one = json!({"maxUnavailable": 1});
    let mut nodes = nodes(2);
    let all = enactments([at_work(), waiting()]);
    let late = NOW + 30.hours();
    assert_eq!(at(&one, &nodes, &all, late), "Aw", "the rollout waits for a healthy node");
    nodes.insert("n0".to_owned(), Node { away_since: Some(NOW + 1.minute()), is_ready: false, ..healthy() });
    assert_eq!(at(&one, &nodes, &all, NOW + 10.minutes()), "Aw");
    assert_eq!(at(&one, &nodes, &all, NOW + 11.minutes()), "AA");
    let policy = policy(one.clone());
    let decision =
        decide(&RolloutContext { policy: &policy, pools: None, now: NOW + 2.minutes() }, &nodes, &all);
    assert_eq!(decision.again_at, Some(NOW + 11.minutes()));
    nodes.remove("n0");
    assert_eq!(at(&one, &nodes, &all, NOW), "A", "a removed node holds no slot");
    let with_deadline = json!({"maxUnavailable": 1, "rollout": {"progressDeadline": "5m"}});
    assert_eq!(at(&with_deadline, &self::nodes(2), &all, NOW + 4.minutes()), "Aw");
    assert_eq!(at(&with_deadline, &self::nodes(2), &all, NOW + 5.minutes()), "AA");
}

#[test]
fn nodes_that_are_not_healthy_come_last() {
    let one = json!({"maxUnavailable": 1});
    let mut nodes = nodes(3);
    nodes.insert("n0".to_owned(), Node { away_since: Some(NOW), is_ready: false, ..healthy() });
    assert_eq!(at(&one, &nodes, &BTreeMap::new(), NOW), "wAw");
    nodes.insert("n1".to_owned(), Node { has_handler: false, ..healthy() });
    assert_eq!(at(&one, &nodes, &BTreeMap::new(), NOW), "wA", "one without a handler gets no order");
    let all = enactments([waiting(), waiting(), waiting()]);
    assert_eq!(at(&one, &nodes, &all, NOW), "wwA", "and keeps the one it has");
}

#[test]
fn no_node_begins_in_a_paused_rollout() {
    let paused = json!({"rollout": {"paused": true}});
    assert_eq!(permits(&paused, [at_work(), done(), waiting(), waiting()]), "AAww");
}

#[test]
fn canaries_go_first_and_alone() {
    let spec = json!({"maxUnavailable": 4, "rollout": {"canary": {"count": 1, "soak": "10m"}}});
    let mut nodes = nodes(4);
    nodes.insert("n2".to_owned(), Node { is_canary: true, ..healthy() });
    let decide_at = |all: [Enactment; 4], now| at(&spec, &nodes, &enactments(all), now);
    assert_eq!(decide_at([waiting(), waiting(), waiting(), waiting()], NOW), "wwAw");
    assert_eq!(decide_at([waiting(), waiting(), at_work(), waiting()], NOW), "wwAw");
    assert_eq!(decide_at([waiting(), waiting(), done(), waiting()], NOW + 9.minutes()), "wwAw");
    assert_eq!(decide_at([waiting(), waiting(), done(), waiting()], NOW + 10.minutes()), "AAAA");
    assert_eq!(decide_at([waiting(), waiting(), failed(), waiting()], NOW), "xxAx");
    let policy = policy(spec.clone());
    let all = enactments([waiting(), waiting(), done(), waiting()]);
    let decision = decide(&RolloutContext { policy: &policy, pools: None, now: NOW }, &nodes, &all);
    assert_eq!(decision.again_at, Some(NOW + 10.minutes()));
}

#[test]
fn canaries_are_the_first_by_name_or_those_with_a_label() {
    let labels = |value: &str| BTreeMap::from([("zone".to_owned(), value.to_owned())]);
    let all = BTreeMap::from([
        ("c".to_owned(), labels("x")),
        ("a".to_owned(), labels("y")),
        ("b".to_owned(), labels("x")),
    ]);
    let names = |canary: Value| {
        let canary: Canary = serde_json::from_value(canary).unwrap();
        canaries(&canary, &all).into_iter().cloned().collect::<String>()
    };
    assert_eq!(names(json!({"count": 2})), "ab");
    assert_eq!(names(json!({"count": 9})), "abc");
    assert_eq!(names(json!({"selector": {"matchLabels": {"zone": "x"}}})), "bc");
}

#[test]
fn every_node_is_counted_once() {
    let policy = policy(json!({"maxUnavailable": 3}));
    let mut nodes = nodes(6);
    nodes.insert("n5".to_owned(), Node { is_ready: false, away_since: Some(NOW), ..healthy() });
    let all = enactments([
        done(),
        failed(),
        at_work(),
        ordered(Permit::Abort, NodeOutcome::Aborted),
        waiting(),
        waiting(),
    ]);
    let decision = decide(&RolloutContext { policy: &policy, pools: None, now: NOW }, &nodes, &all);
    let expected = Tally { nodes: 6, ready: 5, available: 1, failed: 1, aborted: 1, pending: 1, holding: 3 };
    assert_eq!(decision.tally, expected);
}

prop_compose! {
    fn any_enactment()(kind in 0..9) -> Option<Enactment> {
        match kind {
            0 => None,
            1 => Some(at_work()),
            2 => Some(done()),
            3 => Some(failed()),
            4 => Some(waiting()),
            5 => Some(ordered(Permit::Abort, NodeOutcome::Aborted)),
            6 => Some(of_old(Permit::Apply, false, false, false)),
            7 => Some(of_old(Permit::Apply, true, false, false)),
            _ => Some(of_old(Permit::Wait, false, false, false)),
        }
    }
}

prop_compose! {
    fn any_node()(is_ready: bool, has_handler: bool, is_canary: bool) -> Node {
        Node { away_since: (!is_ready).then_some(NOW), is_ready, has_handler, is_canary }
    }
}

/// How many nodes may work and have not finished, before and after a decision.
fn in_progress(decision: &Decision, before: &BTreeMap<String, Enactment>) -> (usize, usize) {
    let was = |name: &String| {
        before
            .get(name)
            .and_then(|enactment| enactment.order.as_ref())
            .is_some_and(|order| order.permit == Permit::Apply && !order.is_finished)
    };
    let finished = |name: &String| {
        before.get(name).is_some_and(|enactment| {
            enactment.outcome != NodeOutcome::Unfinished
                && enactment.order.as_ref().is_some_and(|order| order.is_current)
        })
    };
    let is = |name: &&String| decision.permits[*name] == Permit::Apply && !finished(name);
    (before.keys().filter(|name| was(name)).count(), decision.permits.keys().filter(is).count())
}

proptest! {
    /// A decision never permits more nodes than the limit, except those that were at work before.
    #[test]
    fn the_limit_holds(
        all in prop::collection::vec((any_node(), any_enactment()), 0..12),
        limit in 0..5_i32,
        minutes in 0..20_i64,
    ) {
        let policy = policy(json!({"maxUnavailable": limit}));
        let name = |number: usize| format!("n{number:02}");
        let nodes = all.iter().enumerate().map(|(number, (node, _))| (name(number), node.clone())).collect();
        let before: BTreeMap<_, _> = all.iter().enumerate()
            .filter_map(|(number, (_, enactment))| Some((name(number), enactment.clone()?))).collect();
        let decision = decide(&RolloutContext { policy: &policy, pools: None, now: NOW + minutes.minutes() }, &nodes, &before);
        let (was, is) = in_progress(&decision, &before);
        let limit = usize::try_from(limit.max(1)).unwrap();
        // Nodes that the rollout no longer waits for keep their permit, and work when they come back.
        let given_up = before.iter().filter(|(name, _)| nodes[*name].away_since.is_some()).count();
        prop_assert!(is <= was.max(limit + given_up), "{was} before, {is} after");
        // No permit of this generation is ever revoked.
        for (name, enactment) in &before {
            if let Some(order) = enactment.order.as_ref().filter(|order| order.is_current && order.permit != Permit::Wait) {
                prop_assert_eq!(decision.permits[name], order.permit);
            }
        }
        let Tally { nodes, available, failed, aborted, pending, .. } = decision.tally;
        prop_assert!(available + failed + aborted + pending <= nodes);
    }

    /// A decision does not change once it is written.
    #[test]
    fn a_decision_is_stable(all in prop::collection::vec((any_node(), any_enactment()), 0..12), limit in 1..5_i32) {
        let policy = policy(json!({"maxUnavailable": limit}));
        let context = RolloutContext { policy: &policy, pools: None, now: NOW };
        let name = |number: usize| format!("n{number:02}");
        let nodes: BTreeMap<_, _> =
            all.iter().enumerate().map(|(number, (node, _))| (name(number), node.clone())).collect();
        let mut enactments: BTreeMap<_, _> = all.iter().enumerate()
            .filter_map(|(number, (_, enactment))| Some((name(number), enactment.clone()?))).collect();
        let first = decide(&context, &nodes, &enactments);
        enactments.retain(|name, _| first.permits.contains_key(name));
        for (name, permit) in &first.permits {
            let enactment = enactments.entry(name.clone()).or_default();
            let known = enactment.order.as_ref().filter(|order| order.is_current && order.permit == *permit);
            if known.is_none() {
                *enactment = ordered(*permit, NodeOutcome::Unfinished);
            }
        }
        prop_assert_eq!(decide(&context, &nodes, &enactments).permits, first.permits);
    }

    /// Every rollout ends if its nodes report results, whatever the initial state.
    #[test]
    fn a_rollout_ends(count in 1..12_usize, limit in 1..5_i32, bad in prop::collection::btree_set(0..12_usize, 0..4)) {
        let policy = policy(json!({"maxUnavailable": limit}));
        let context = RolloutContext { policy: &policy, pools: None, now: NOW };
        let nodes = nodes(count);
        let mut enactments = BTreeMap::new();
        for _ in 0..=count {
            let decision = decide(&context, &nodes, &enactments);
            enactments = decision.permits.iter().map(|(name, permit)| {
                let number: usize = name[1..].parse().unwrap();
                let enactment = match permit {
                    Permit::Apply if bad.contains(&number) => failed(),
                    Permit::Apply => done(),
                    permit => ordered(*permit, NodeOutcome::Unfinished),
                };
                (name.clone(), enactment)
            }).collect();
        }
        let end = decide(&context, &nodes, &enactments);
        prop_assert_eq!(end.tally.pending, 0);
        let summary = Summary::of(&end.tally);
        prop_assert!(!matches!(summary, Summary::Progressing(_)), "{summary:?}");
        let failures = bad.iter().filter(|number| **number < count).count();
        let limit = usize::try_from(limit).unwrap();
        prop_assert_eq!(end.tally.aborted > 0, end.tally.failed >= limit && end.tally.available + end.tally.failed < count);
        prop_assert!(end.tally.failed <= failures);
    }
}
