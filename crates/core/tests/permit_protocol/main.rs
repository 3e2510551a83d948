//! The permit protocol, checked in every reachable state of small models: controllers crash, hand over and lag behind;
//! requests are lost; handlers crash; nodes are added and removed; policies change in between.
//!
//! The decisions are the real ones ([`knmstate_core::rollout`], [`knmstate_core::lease`]). The model is everything
//! around them: the API server, the network, the caches and the nodes.

#![expect(clippy::expect_used, clippy::panic, reason = "a test fails by panicking, its helpers too")]

mod controller;
mod decisions;
mod handler;
mod invariants;
mod leases;
mod protocol;
mod search;
mod world;

use crate::{
    invariants::{REVOKED, SUPERSEDED, TOO_MANY_AT_WORK, TOO_MANY_PERMITTED},
    protocol::Protocol,
    search::{SearchResult, Verdict, search},
    world::{Faults, Generation, Scenario, Variation},
};

const FIRST: Generation = Generation { limit: 1, network: 1, tolerated_failures: None };
const SECOND: Generation = Generation { network: 2, ..FIRST };

const QUIET: Faults = Faults {
    controller_crashes: 0,
    releases: 0,
    losses: 0,
    handler_crashes: 0,
    late_statuses: 0,
    failures: 0,
    absences: 0,
    additions: 0,
    removals: 0,
    deselections: 0,
    drifts: 0,
};

const SMALL: Scenario = Scenario {
    name: "",
    nodes: 2,
    absent: 0,
    controllers: 1,
    generations: &[FIRST, SECOND],
    faults: QUIET,
    variations: &[],
};

fn explore(scenario: Scenario) -> SearchResult {
    let result = search(&Protocol::new(scenario));
    println!("{}: {} states, {} steps", scenario.name, result.states, result.steps);
    result
}

#[track_caller]
fn holds(scenario: Scenario) {
    let result = explore(scenario);
    assert!(matches!(result.verdict, Verdict::Holds), "{}: {:#?}", scenario.name, result.verdict);
}

#[track_caller]
fn violates(scenario: Scenario, invariant: &str) {
    let result = explore(scenario);
    let Verdict::Violated { invariant: violated, trace } = result.verdict else {
        panic!("{}: no violation was found: {:#?}", scenario.name, result.verdict)
    };
    println!("{violated}: {trace:#?}");
    assert_eq!(violated, invariant, "{}", scenario.name);
}

const ONE_GENERATION: &[Generation] = &[FIRST];
const BOTH_AT_ONCE: &[Generation] = &[Generation { limit: 2, ..FIRST }, SECOND];
const SAME_AGAIN: &[Generation] = &[FIRST, FIRST];

const LEASED: Scenario = Scenario { controllers: 2, generations: ONE_GENERATION, ..SMALL };

#[test]
fn three_nodes_and_two_generations() {
    holds(Scenario { name: "three nodes, two generations", nodes: 3, ..SMALL });
}

#[test]
fn controllers_and_handlers_crash_and_requests_are_lost() {
    let faults = Faults { controller_crashes: 1, losses: 1, handler_crashes: 1, ..QUIET };
    holds(Scenario { name: "crashes and losses", faults, ..SMALL });
}

#[test]
fn nodes_fail_and_the_rest_is_aborted() {
    let faults = Faults { failures: 1, handler_crashes: 1, controller_crashes: 1, ..QUIET };
    holds(Scenario { name: "failures", faults, ..SMALL });
    let faults = Faults { failures: 2, ..QUIET };
    let generations = &[Generation { limit: 2, ..FIRST }];
    holds(Scenario { name: "failures of three nodes", nodes: 3, generations, faults, ..SMALL });
}

#[test]
fn more_failures_are_tolerated_than_there_are_slots() {
    let faults = Faults { failures: 2, controller_crashes: 1, ..QUIET };
    let generations = &[Generation { tolerated_failures: Some(2), ..FIRST }];
    holds(Scenario { name: "tolerated failures", nodes: 3, generations, faults, ..SMALL });
}

#[test]
fn a_limit_shrinks() {
    let faults = Faults { handler_crashes: 1, ..QUIET };
    holds(Scenario { name: "a limit that shrinks", generations: BOTH_AT_ONCE, faults, ..SMALL });
    holds(Scenario { name: "the same once more", generations: SAME_AGAIN, faults, ..SMALL });
}

#[test]
fn nodes_become_unhealthy() {
    let faults = Faults { absences: 1, ..QUIET };
    holds(Scenario { name: "an unhealthy node", faults, ..SMALL });
    let faults = Faults { absences: 1, controller_crashes: 1, ..QUIET };
    holds(Scenario { name: "an unhealthy node and a crash", faults, generations: ONE_GENERATION, ..SMALL });
}

#[test]
fn nodes_are_added_and_removed() {
    let faults = Faults { additions: 1, removals: 1, controller_crashes: 1, ..QUIET };
    let generations = ONE_GENERATION;
    holds(Scenario { name: "nodes added and removed", nodes: 3, absent: 1, generations, faults, ..SMALL });
}

#[test]
fn the_lease_changes_hands() {
    let faults = Faults { controller_crashes: 1, ..QUIET };
    holds(Scenario { name: "a leader crashes", faults, ..LEASED });
    let faults = Faults { releases: 1, ..QUIET };
    holds(Scenario { name: "a leader hands over", faults, ..LEASED });
    let faults = Faults { losses: 1, ..QUIET };
    holds(Scenario { name: "a renewal is slow or lost", faults, ..LEASED });
}

#[test]
fn a_rollout_continues_after_its_leader_crashes() {
    let faults = Faults { controller_crashes: 1, ..QUIET };
    let generations = SMALL.generations;
    holds(Scenario { name: "one node, two generations", nodes: 1, generations, faults, ..LEASED });
}

/// Each of these would be a bug in the controller, its deployment or the API server's rules. The search finds them, so it
/// would find others, too.
#[test]
fn every_injected_bug_is_found() {
    let absent = Faults { absences: 1, ..QUIET };
    let crash = Faults { controller_crashes: 1, ..absent };
    let lost = Faults { losses: 1, ..QUIET };
    let flawed = |name, variations, faults| Scenario { name, faults, variations, ..SMALL };
    let leased = |name, variations, faults| Scenario { name, faults, variations, ..LEASED };
    for (scenario, invariant) in [
        (flawed("own writes forgotten", &[Variation::ForgetsOwnWrites], absent), REVOKED),
        (
            flawed(
                "own writes forgotten, permits kept",
                &[Variation::ForgetsOwnWrites, Variation::ServerKeepsPermits],
                absent,
            ),
            TOO_MANY_AT_WORK,
        ),
        (
            flawed("new generation revokes permits", &[Variation::NewGenerationRevokesPermits], QUIET),
            TOO_MANY_AT_WORK,
        ),
        (
            leased(
                "taken over without a list",
                &[Variation::TakesOverUnlisted, Variation::ServerKeepsPermits],
                absent,
            ),
            TOO_MANY_AT_WORK,
        ),
        (
            leased(
                "write of a former leader arrives late",
                &[Variation::FormerLeaderArrivesLate, Variation::ServerKeepsPermits],
                absent,
            ),
            TOO_MANY_AT_WORK,
        ),
        (
            leased(
                "restarted with the same identity",
                &[Variation::KeepsItsIdentity, Variation::ServerKeepsPermits],
                crash,
            ),
            TOO_MANY_AT_WORK,
        ),
        (flawed("own write arrives late", &[Variation::OwnWriteArrivesLate], lost), REVOKED),
        (
            flawed(
                "server accepts an older generation",
                &[
                    Variation::OwnWriteArrivesLate,
                    Variation::ServerAcceptsOlder,
                    Variation::ServerKeepsPermits,
                ],
                lost,
            ),
            SUPERSEDED,
        ),
    ] {
        violates(scenario, invariant);
    }
}

/// With a rule of the API server that no permit is revoked, a late write does no harm.
#[test]
fn late_writes_do_no_harm_if_the_server_keeps_permits() {
    let variations = &[Variation::OwnWriteArrivesLate, Variation::ServerKeepsPermits];
    let faults = Faults { losses: 1, ..QUIET };
    holds(Scenario { name: "own write arrives late, permits kept", faults, variations, ..SMALL });
}

/// Known gaps of the protocol, with the shortest trace to each. A gap that is closed moves to the tests above.
#[test]
fn known_gaps() {
    // A handler that restarts retries an order that had finally failed, although the next generation lets others begin.
    let faults = Faults { failures: 1, handler_crashes: 1, ..QUIET };
    let variations = &[Variation::FailedStartsOver];
    violates(Scenario { name: "a failure starts over", faults, variations, ..SMALL }, TOO_MANY_AT_WORK);
    // A status that arrives after a newer one makes a node look as if it were at work again.
    let faults = Faults { late_statuses: 1, ..QUIET };
    violates(Scenario { name: "a status arrives late", faults, ..SMALL }, TOO_MANY_AT_WORK);
    // A node that the policy no longer selects holds no slot, although it may be at work.
    let faults = Faults { deselections: 1, ..QUIET };
    violates(
        Scenario { name: "a node is deselected", faults, generations: ONE_GENERATION, ..SMALL },
        TOO_MANY_PERMITTED,
    );
    // A node that has applied an order gets a permit for the same one at once, although its network may have drifted.
    let faults = Faults { drifts: 1, ..QUIET };
    let generations = SAME_AGAIN;
    violates(Scenario { name: "a network has drifted", generations, faults, ..SMALL }, TOO_MANY_AT_WORK);
}
