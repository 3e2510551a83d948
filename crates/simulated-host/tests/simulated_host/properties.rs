//! What holds for every document on every state that documents can lead to.

use knmstate_document::NetworkState;
use std::time::Duration;

use knmstate_host::{Checkpoint, Host, HostError, Plan};
use knmstate_simulated_host::SimulatedMachine;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};
use serde_json::Value;
use tokio::time::{advance, timeout};

use crate::common::{DEADLINE, apply, machine, state};
use crate::desires::document;

fn in_no_time<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(future)
}

/// A machine with a past: each document that can be applied has been.
async fn machine_after(past: &[Value]) -> SimulatedMachine {
    let machine = machine();
    for document in past {
        // Some cannot; that they change nothing then is a property of its own.
        let _ = apply(&machine.host(), document.clone()).await;
    }
    machine
}

fn past() -> impl Strategy<Value = Vec<Value>> {
    prop::collection::vec(document(), 0..4)
}

/// Every port has its controller, every VLAN its base; and both sides say the same.
fn assert_coherent(state: &NetworkState) {
    let ports = |interface: &serde_json::Map<String, Value>| -> Vec<String> {
        ["/link-aggregation/port", "/bridge/port", "/vrf/port"]
            .iter()
            .filter_map(|pointer| Value::Object(interface.clone()).pointer(pointer)?.as_array().cloned())
            .flatten()
            .filter_map(|port| port.get("name").unwrap_or(&port).as_str().map(str::to_owned))
            .collect()
    };
    for interface in state.interfaces() {
        let name = interface["name"].as_str().expect("a name");
        if let Some(controller) = interface.get("controller").and_then(Value::as_str) {
            let controller = state.interface(controller).expect("the controller is there");
            assert!(
                ports(controller).contains(&name.to_owned()),
                "{name} is not among the ports of its controller"
            );
        }
        for port in ports(interface) {
            let port = state.interface(&port).expect("the port is there");
            assert_eq!(port.get("controller").and_then(Value::as_str), Some(name));
        }
        for pointer in ["/vlan/base-iface", "/vxlan/base-iface", "/veth/peer"] {
            if let Some(below) = Value::Object(interface.clone()).pointer(pointer).and_then(Value::as_str) {
                assert!(state.interface(below).is_some(), "{name} refers to {below}, which does not exist");
            }
        }
    }
    for route in state.routes(knmstate_document::RouteList::Running) {
        if let Some(over) = route.get("next-hop-interface").and_then(Value::as_str) {
            assert!(state.interface(over).is_some(), "a route over {over}, which is not there");
        }
    }
}

/// Begins, and checks what is promised when that fails.
async fn begin(machine: &SimulatedMachine, desired: &NetworkState) -> Option<Checkpoint> {
    let before = machine.state();
    match machine.host().begin(desired, DEADLINE).await {
        Ok(checkpoint) => {
            assert_coherent(&machine.state());
            assert_eq!(desired.first_unmet_in(&machine.state()), None);
            Some(checkpoint)
        }
        Err(error) => {
            assert!(matches!(error, HostError::Invalid { .. } | HostError::Unsupported { .. }), "{error}");
            assert_eq!(machine.state(), before);
            assert_eq!(machine.host().open_checkpoints().await, Ok(vec![]));
            None
        }
    }
}

proptest! {
    #![proptest_config(Config { cases: 256, failure_persistence: None, ..Config::default() })]

    #[test]
    fn rolling_back_restores_exactly(past in past(), desired in document()) {
        in_no_time(async {
            let machine = machine_after(&past).await;
            let before = machine.state();
            if let Some(checkpoint) = begin(&machine, &state(desired)).await {
                machine.host().roll_back(&checkpoint).await.expect("rolls back");
            }
            assert_eq!(machine.state(), before);
        });
    }

    #[test]
    fn the_deadline_restores_exactly(past in past(), desired in document()) {
        in_no_time(async {
            let machine = machine_after(&past).await;
            let before = machine.state();
            if let Some(checkpoint) = begin(&machine, &state(desired)).await {
                advance(DEADLINE).await;
                assert_eq!(machine.state(), before);
                assert_eq!(machine.host().commit(&checkpoint).await, Err(HostError::CheckpointGone { checkpoint }));
            }
        });
    }

    #[test]
    fn a_rollback_after_the_service_was_restarted_restores_exactly(past in past(), desired in document()) {
        in_no_time(async {
            let machine = machine_after(&past).await;
            let before = machine.state();
            let Some(checkpoint) = begin(&machine, &state(desired)).await else { return };
            let changed = machine.state();
            machine.restart_service();
            advance(2 * DEADLINE).await;
            assert_eq!(machine.state(), changed);
            match machine.host().roll_back(&checkpoint).await {
                Ok(()) => assert_ne!(changed, before),
                // Nothing had changed, so nothing is left to put back.
                Err(error) => assert_eq!((error, &changed), (HostError::CheckpointGone { checkpoint }, &before)),
            }
            assert_eq!(machine.state(), before);
        });
    }

    #[test]
    fn a_committed_document_is_fulfilled_and_applying_it_again_touches_nothing(past in past(), desired in document()) {
        in_no_time(async {
            let machine = machine_after(&past).await;
            let desired = state(desired);
            let Some(checkpoint) = begin(&machine, &desired).await else { return };
            machine.host().commit(&checkpoint).await.expect("commits");
            let kept = machine.state();
            assert_eq!(desired.first_unmet_in(&kept), None);

            let mut events = machine.host().events();
            let again = begin(&machine, &desired).await.expect("what was accepted is accepted again");
            machine.host().commit(&again).await.expect("commits again");
            assert_eq!(machine.state(), kept);
            let silence = timeout(Duration::from_secs(1), events.next()).await;
            assert!(silence.is_err(), "woken by {silence:?}");
        });
    }

    #[test]
    fn a_plan_says_what_begin_would_do_and_touches_nothing(past in past(), desired in document()) {
        in_no_time(async {
            let machine = machine_after(&past).await;
            let (host, before, desired) = (machine.host(), machine.state(), state(desired));
            let mut events = host.events();
            let plan = host.plan(&desired).await;
            assert_eq!(machine.state(), before);
            assert!(timeout(Duration::from_secs(1), events.next()).await.is_err(), "planning sends no event");
            match (host.begin(&desired, DEADLINE).await, plan) {
                (Err(refusal), plan) => assert_eq!(plan, Err(refusal)),
                (Ok(checkpoint), Ok(plan)) => {
                    assert_eq!(plan.is_empty(), machine.state() == before, "{plan:?}");
                    // The change is open, and that is no reason not to plan.
                    assert_eq!(host.plan(&desired).await, Ok(Plan::default()));
                    host.commit(&checkpoint).await.expect("commits");
                }
                (Ok(_), Err(error)) => panic!("what can be begun cannot be planned: {error}"),
            }
        });
    }

    #[test]
    fn what_is_wanted_absent_is_not_there(past in past(), which in 0..8_usize) {
        in_no_time(async {
            let name = ["bond0", "br0", "br1", "dummy0", "dummy1", "vlan0", "vrf0", "veth0"][which];
            let machine = machine_after(&past).await;
            let absent = serde_json::json!({ "interfaces": [{ "name": name, "state": "absent" }] });
            apply(&machine.host(), absent).await.expect("anything may be absent");
            assert!(machine.state().interface(name).is_none());
            assert_coherent(&machine.state());
        });
    }

    #[test]
    fn a_state_that_was_read_can_be_applied_and_changes_nothing(past in past()) {
        in_no_time(async {
            let machine = machine_after(&past).await;
            let before = machine.state();
            let checkpoint = begin(&machine, &before).await.expect("what is there can be applied");
            machine.host().commit(&checkpoint).await.expect("commits");
            assert_eq!(machine.state(), before);
        });
    }
}

/// The properties above say little if hardly any document gets through.
#[test]
fn a_good_part_of_the_documents_can_be_applied() {
    let mut runner = TestRunner::deterministic();
    let (mut tried, mut accepted, mut changed) = (0, 0, 0);
    for _ in 0..500 {
        let past = past().new_tree(&mut runner).expect("a past").current();
        let desired = document().new_tree(&mut runner).expect("a document").current();
        in_no_time(async {
            let machine = machine_after(&past).await;
            let before = machine.state();
            tried += 1;
            if begin(&machine, &state(desired)).await.is_some() {
                accepted += 1;
                changed += u32::from(machine.state() != before);
            }
        });
    }
    assert!(accepted * 2 > tried, "{accepted} of {tried} were accepted");
    assert!(changed * 3 > tried, "{changed} of {tried} changed something");
}
