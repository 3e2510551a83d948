//! The permit protocol, checked in every state of small worlds: controllers that crash, hand over and lag behind,
//! requests that are lost, handlers that crash, nodes that come and go, and policies that change in between.
//!
//! The decisions are the real ones ([`knmstate_core::rollout`], [`knmstate_core::lease`]); what is modelled is everything
//! around them: the server, the wire, the caches and the nodes.

#![expect(clippy::expect_used, clippy::panic, reason = "a test fails by panicking, its helpers too")]

mod controller;
mod decisions;
mod handler;
mod leases;
mod promises;
mod protocol;
mod search;
mod world;

use crate::{
    promises::{SUPERSEDED, TAKEN_BACK, TOO_MANY_AT_WORK, TOO_MANY_PERMITTED},
    protocol::Protocol,
    search::{Found, Verdict, search},
    world::{Faults, Generation, Variation, World},
};

const FIRST: Generation = Generation { limit: 1, asks: 1, tolerated_failures: None };
const SECOND: Generation = Generation { asks: 2, ..FIRST };

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

const SMALL: World = World {
    name: "",
    nodes: 2,
    absent: 0,
    controllers: 1,
    generations: &[FIRST, SECOND],
    faults: QUIET,
    variations: &[],
};

fn look_at(world: World) -> Found {
    let found = search(&Protocol::new(world));
    println!("{}: {} states, {} steps", world.name, found.states, found.steps);
    found
}

#[track_caller]
fn holds(world: World) {
    let found = look_at(world);
    assert!(matches!(found.verdict, Verdict::Holds), "{}: {:#?}", world.name, found.verdict);
}

#[track_caller]
fn breaks(world: World, promise: &str) {
    let found = look_at(world);
    let Verdict::Broken { promise: broken, way } = found.verdict else {
        panic!("{}: nothing was found: {:#?}", world.name, found.verdict)
    };
    println!("{broken}: {way:#?}");
    assert_eq!(broken, promise, "{}", world.name);
}

const ONE_GENERATION: &[Generation] = &[FIRST];
const BOTH_AT_ONCE: &[Generation] = &[Generation { limit: 2, ..FIRST }, SECOND];
const SAME_AGAIN: &[Generation] = &[FIRST, FIRST];

const LEASED: World = World { controllers: 2, generations: ONE_GENERATION, ..SMALL };

#[test]
fn three_nodes_and_two_generations() {
    holds(World { name: "three nodes, two generations", nodes: 3, ..SMALL });
}

#[test]
fn controllers_and_handlers_crash_and_requests_are_lost() {
    let faults = Faults { controller_crashes: 1, losses: 1, handler_crashes: 1, ..QUIET };
    holds(World { name: "crashes and losses", faults, ..SMALL });
}

#[test]
fn nodes_fail_and_the_rest_is_aborted() {
    let faults = Faults { failures: 1, handler_crashes: 1, controller_crashes: 1, ..QUIET };
    holds(World { name: "failures", faults, ..SMALL });
    let faults = Faults { failures: 2, ..QUIET };
    let generations = &[Generation { limit: 2, ..FIRST }];
    holds(World { name: "failures of three nodes", nodes: 3, generations, faults, ..SMALL });
}

#[test]
fn more_failures_are_tolerated_than_there_are_slots() {
    let faults = Faults { failures: 2, controller_crashes: 1, ..QUIET };
    let generations = &[Generation { tolerated_failures: Some(2), ..FIRST }];
    holds(World { name: "tolerated failures", nodes: 3, generations, faults, ..SMALL });
}

#[test]
fn a_limit_shrinks() {
    let faults = Faults { handler_crashes: 1, ..QUIET };
    holds(World { name: "a limit that shrinks", generations: BOTH_AT_ONCE, faults, ..SMALL });
    holds(World { name: "the same once more", generations: SAME_AGAIN, faults, ..SMALL });
}

#[test]
fn nodes_go_away() {
    let faults = Faults { absences: 1, ..QUIET };
    holds(World { name: "absence", faults, ..SMALL });
    let faults = Faults { absences: 1, controller_crashes: 1, ..QUIET };
    holds(World { name: "absence and a crash", faults, generations: ONE_GENERATION, ..SMALL });
}

#[test]
fn nodes_come_and_go_for_ever() {
    let faults = Faults { additions: 1, removals: 1, controller_crashes: 1, ..QUIET };
    let generations = ONE_GENERATION;
    holds(World { name: "nodes added and removed", nodes: 3, absent: 1, generations, faults, ..SMALL });
}

#[test]
fn the_lease_changes_hands() {
    let faults = Faults { controller_crashes: 1, ..QUIET };
    holds(World { name: "a leader crashes", faults, ..LEASED });
    let faults = Faults { releases: 1, ..QUIET };
    holds(World { name: "a leader hands over", faults, ..LEASED });
    let faults = Faults { losses: 1, ..QUIET };
    holds(World { name: "a renewal is slow or lost", faults, ..LEASED });
}

#[test]
fn a_generation_outlives_its_leader() {
    let faults = Faults { controller_crashes: 1, ..QUIET };
    let generations = SMALL.generations;
    holds(World { name: "one node, two generations", nodes: 1, generations, faults, ..LEASED });
}

/// Each of these would be a mistake in the controller, its deployment or the API server's rules. That they are found
/// says that the others are not there.
#[test]
fn every_flaw_of_the_protocol_is_found() {
    let absent = Faults { absences: 1, ..QUIET };
    let crash = Faults { controller_crashes: 1, ..absent };
    let lost = Faults { losses: 1, ..QUIET };
    let flawed = |name, variations, faults| World { name, faults, variations, ..SMALL };
    let leased = |name, variations, faults| World { name, faults, variations, ..LEASED };
    for (world, promise) in [
        (flawed("own writes forgotten", &[Variation::ForgetsOwnWrites], absent), TAKEN_BACK),
        (
            flawed(
                "own writes forgotten, permits kept",
                &[Variation::ForgetsOwnWrites, Variation::ServerKeepsPermits],
                absent,
            ),
            TOO_MANY_AT_WORK,
        ),
        (
            flawed("new generation takes permits", &[Variation::NewGenerationTakesPermits], QUIET),
            TOO_MANY_AT_WORK,
        ),
        (
            leased(
                "taken over unlisted",
                &[Variation::TakesOverUnlisted, Variation::ServerKeepsPermits],
                absent,
            ),
            TOO_MANY_AT_WORK,
        ),
        (
            leased(
                "former leader lands late",
                &[Variation::FormerLeaderLandsLate, Variation::ServerKeepsPermits],
                absent,
            ),
            TOO_MANY_AT_WORK,
        ),
        (
            leased(
                "restarted under its name",
                &[Variation::KeepsItsName, Variation::ServerKeepsPermits],
                crash,
            ),
            TOO_MANY_AT_WORK,
        ),
        (flawed("own write lands late", &[Variation::OwnWriteLandsLate], lost), TAKEN_BACK),
        (
            flawed(
                "server goes back",
                &[Variation::OwnWriteLandsLate, Variation::ServerGoesBack, Variation::ServerKeepsPermits],
                lost,
            ),
            SUPERSEDED,
        ),
    ] {
        breaks(world, promise);
    }
}

/// With a rule that no permit is taken back, a write that lands late does no harm.
#[test]
fn a_server_that_keeps_permits_forgives_late_writes() {
    let variations = &[Variation::OwnWriteLandsLate, Variation::ServerKeepsPermits];
    let faults = Faults { losses: 1, ..QUIET };
    holds(World { name: "own write lands late, permits kept", faults, variations, ..SMALL });
}

/// What is not promised, with the shortest way to it. Whoever closes one of these gaps moves it to the others.
#[test]
fn these_gaps_are_known() {
    // A handler that restarts tries again what has failed for good, though the next generation lets others begin.
    let faults = Faults { failures: 1, handler_crashes: 1, ..QUIET };
    let variations = &[Variation::FailedStartsOver];
    breaks(World { name: "a failure starts over", faults, variations, ..SMALL }, TOO_MANY_AT_WORK);
    // A status that lands after a newer one makes a node seem to be at work again.
    let faults = Faults { late_statuses: 1, ..QUIET };
    breaks(World { name: "a status lands late", faults, ..SMALL }, TOO_MANY_AT_WORK);
    // A node that the policy selects no more holds no slot, though it may be in the middle of its work.
    let faults = Faults { deselections: 1, ..QUIET };
    breaks(
        World { name: "a node is deselected", faults, generations: ONE_GENERATION, ..SMALL },
        TOO_MANY_PERMITTED,
    );
    // What was carried out is permitted again at once when the same is asked, though the network may have drifted.
    let faults = Faults { drifts: 1, ..QUIET };
    let generations = SAME_AGAIN;
    breaks(World { name: "a network has drifted", generations, faults, ..SMALL }, TOO_MANY_AT_WORK);
}
