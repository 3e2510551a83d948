//! The life of a change, on a clock that the tests move.

use knmstate_document::NetworkState;
use std::time::Duration;

use knmstate_host::{Guard, Host, HostError, OpenCheckpoint, Topic};
use knmstate_simulated_host::SimulatedMachine;
use serde_json::json;
use tokio::time::{Instant, advance, timeout};

use crate::common::{apply, at, machine, names, next, state};

const MINUTE: Duration = Duration::from_mins(1);

fn change() -> NetworkState {
    state(json!({ "interfaces": [
        { "name": "dummy0", "type": "dummy", "state": "up" },
        { "name": "eth0", "mtu": 9000, "ipv4": { "enabled": true, "address": [{ "ip": "192.0.2.99", "prefix-length": 24 }] } }
    ]}))
}

fn is_changed(machine: &SimulatedMachine) -> bool {
    names(machine).contains(&"dummy0".to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_committed_change_stays() {
    let machine = machine();
    let host = machine.host();
    let checkpoint = host.begin(&change(), MINUTE).await.expect("begins");
    host.commit(&checkpoint).await.expect("commits");
    advance(10 * MINUTE).await;
    assert!(is_changed(&machine));
    assert_eq!(at(&machine, "eth0", "/mtu"), json!(9000));
    let again = host.commit(&checkpoint).await;
    assert_eq!(again, Err(HostError::CheckpointGone { checkpoint: checkpoint.clone() }));
    assert_eq!(host.roll_back(&checkpoint).await, Err(HostError::CheckpointGone { checkpoint }));
    assert!(is_changed(&machine), "what is committed cannot be rolled back");
}

#[tokio::test(start_paused = true)]
async fn a_change_that_is_rolled_back_leaves_no_trace() {
    let machine = machine();
    let (host, before) = (machine.host(), machine.state());
    let checkpoint = host.begin(&change(), MINUTE).await.expect("begins");
    assert!(is_changed(&machine));
    host.roll_back(&checkpoint).await.expect("rolls back");
    assert_eq!(machine.state(), before);
    assert_eq!(host.open_checkpoints().await, Ok(vec![]));
}

#[tokio::test(start_paused = true)]
async fn the_machine_rolls_back_at_the_deadline_not_before_and_sends_events() {
    let machine = machine();
    let (host, before) = (machine.host(), machine.state());
    let started = Instant::now();
    let checkpoint = host.begin(&change(), MINUTE).await.expect("begins");
    let mut events = host.events();

    advance(MINUTE.checked_sub(Duration::from_millis(1)).expect("less than a minute")).await;
    assert!(is_changed(&machine));
    let changes = next(&mut events).await.expect("the machine is there");
    assert_eq!(started.elapsed(), MINUTE);
    assert_eq!(changes, [Topic::Link, Topic::Address].into_iter().collect());
    assert_eq!(machine.state(), before);
    assert_eq!(
        host.commit(&checkpoint).await,
        Err(HostError::CheckpointGone { checkpoint: checkpoint.clone() })
    );
    assert_eq!(host.roll_back(&checkpoint).await, Err(HostError::CheckpointGone { checkpoint }));
    assert_eq!(machine.state(), before);
}

#[tokio::test(start_paused = true)]
async fn a_crash_of_the_agent_leaves_the_change_to_the_timer() {
    let machine = machine();
    let before = machine.state();
    let agent = tokio::spawn({
        let host = machine.host();
        async move {
            let _checkpoint = host.begin(&change(), MINUTE).await.expect("begins");
            std::future::pending::<()>().await;
        }
    });
    tokio::task::yield_now().await;
    assert!(is_changed(&machine));
    agent.abort();
    assert!(agent.await.expect_err("aborted").is_cancelled());

    let restarted = machine.host();
    let mut events = restarted.events();
    let open = restarted.open_checkpoints().await.expect("the service answers");
    assert!(matches!(
        open.as_slice(),
        [OpenCheckpoint { ours: true, guard: Guard::RollsBackIn(left), .. }] if *left == MINUTE
    ));
    drop(restarted);
    next(&mut events).await.expect("the machine is there");
    assert_eq!(machine.state(), before);
}

#[test]
fn a_crash_that_takes_the_runtime_with_it_leaves_the_change_to_the_clock() {
    let machine = machine();
    let before = machine.state();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let moment = Duration::from_millis(20);
    let first = runtime();
    first.block_on(machine.host().begin(&change(), moment)).expect("begins");
    assert!(is_changed(&machine));
    drop(first);

    runtime().block_on(async {
        let limit = Duration::from_secs(10);
        let rolled_back = async {
            while machine.host().observe().await.expect("answers") != before {
                tokio::time::sleep(moment).await;
            }
        };
        timeout(limit, rolled_back).await.expect("rolled back although no timer could run");
    });
}

#[tokio::test(start_paused = true)]
async fn a_restarted_agent_finds_its_stale_change_and_rolls_it_back() {
    let machine = machine();
    let before = machine.state();
    drop(machine.host().begin(&change(), MINUTE).await.expect("begins"));

    advance(MINUTE / 4).await;
    let restarted = machine.host();
    let open = restarted.open_checkpoints().await.expect("the service answers");
    assert_eq!(open.len(), 1);
    assert_eq!(open[0].guard, Guard::RollsBackIn(MINUTE * 3 / 4));
    restarted.roll_back(&open[0].checkpoint).await.expect("rolls back");
    assert_eq!(machine.state(), before);
    assert_eq!(restarted.open_checkpoints().await, Ok(vec![]));
}

#[tokio::test(start_paused = true)]
async fn there_is_only_one_change_at_a_time() {
    let machine = machine();
    let host = machine.host();
    let first = host.begin(&change(), MINUTE).await.expect("begins");
    advance(MINUTE / 2).await;
    let second = host.clone().begin(&state(json!({ "hostname": { "config": "b" } })), MINUTE).await;
    assert_eq!(second, Err(HostError::Busy { checkpoint: first.clone(), rolls_back_in: Some(MINUTE / 2) }));

    host.commit(&first).await.expect("the first is not disturbed");
    apply(&host, json!({ "hostname": { "config": "b" } })).await.expect("and makes way");
    assert_eq!(machine.checkpoints_made(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_way_is_free_after_the_deadline() {
    let machine = machine();
    let host = machine.host();
    let first = host.begin(&change(), MINUTE).await.expect("begins");
    advance(MINUTE).await;
    let second = host.begin(&change(), MINUTE).await.expect("begins again");
    assert_ne!(first, second);
    assert_eq!(host.commit(&first).await, Err(HostError::CheckpointGone { checkpoint: first }));
    host.commit(&second).await.expect("commits");
    assert!(is_changed(&machine));
}

#[tokio::test(start_paused = true)]
async fn an_old_timer_does_not_touch_a_newer_change() {
    let machine = machine();
    let host = machine.host();
    let first = host.begin(&change(), MINUTE).await.expect("begins");
    host.roll_back(&first).await.expect("rolls back");
    advance(MINUTE / 2).await;
    let second = host.begin(&change(), MINUTE).await.expect("begins again");
    advance(MINUTE * 3 / 4).await;
    assert!(is_changed(&machine), "the first one's time has passed, the second one's has not");
    host.commit(&second).await.expect("commits");
}

#[tokio::test(start_paused = true)]
async fn a_machine_keeps_a_task_only_while_a_change_is_open() {
    let machine = machine();
    let host = machine.host();
    let tasks = tokio::runtime::Handle::current().metrics();
    for _ in 0..3 {
        assert_eq!(tasks.num_alive_tasks(), 0);
        let checkpoint = host.begin(&change(), MINUTE).await.expect("begins");
        tokio::task::yield_now().await;
        assert_eq!(tasks.num_alive_tasks(), 1);
        host.roll_back(&checkpoint).await.expect("rolls back");
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_others_have_open_is_in_the_way_and_not_ours_to_settle() {
    let machine = machine();
    let host = machine.host();
    let foreign = machine.open_foreign_checkpoint(MINUTE).expect("nothing is open");
    let open = host.open_checkpoints().await.expect("answers");
    assert_eq!(
        open,
        [OpenCheckpoint {
            checkpoint: foreign.clone(),
            ours: false,
            guard: Guard::RollsBackIn(MINUTE),
            left_open: None
        }]
    );
    assert!(matches!(host.begin(&change(), MINUTE).await, Err(HostError::Busy { .. })));
    let not_ours = Err(HostError::NotOurs { checkpoint: foreign.clone() });
    assert_eq!(host.commit(&foreign).await, not_ours);
    assert_eq!(host.roll_back(&foreign).await, not_ours);

    advance(MINUTE).await;
    let checkpoint = host.begin(&change(), MINUTE).await.expect("the other one's time has passed");
    host.commit(&checkpoint).await.expect("commits");
}

#[tokio::test(start_paused = true)]
async fn a_change_from_outside_wakes_and_is_undone_with_the_change_it_came_into() {
    let machine = machine();
    let (host, before) = (machine.host(), machine.state());
    let checkpoint = host.begin(&change(), MINUTE).await.expect("begins");
    let mut events = host.events();
    let pod = state(json!({ "interfaces": [{ "name": "veth7", "type": "veth", "state": "ignore" }] }));
    machine.change_behind_your_back(&pod).expect("a pod may come at any time");
    assert_eq!(next(&mut events).await, Some([Topic::Link].into_iter().collect()));
    assert_eq!(at(&machine, "veth7", "/state"), json!("ignore"));

    host.roll_back(&checkpoint).await.expect("rolls back");
    assert_eq!(machine.state(), before);
}

#[tokio::test(start_paused = true)]
async fn a_change_from_outside_after_a_rollback_is_not_taken_for_ours() {
    let machine = machine();
    let host = machine.host();
    host.begin(&change(), MINUTE).await.expect("begins");
    advance(MINUTE).await;
    let outside = state(json!({ "interfaces": [{ "name": "eth2", "mtu": 1400 }] }));
    machine.change_behind_your_back(&outside).expect("anybody may");
    assert_eq!(host.open_checkpoints().await, Ok(vec![]));
    let second = host.begin(&change(), MINUTE).await.expect("nothing is in the way");
    host.roll_back(&second).await.expect("rolls back");
    assert_eq!(at(&machine, "eth2", "/mtu"), json!(1400));
}

#[tokio::test(start_paused = true)]
async fn each_part_of_the_network_wakes_for_itself() {
    let machine = machine();
    let host = machine.host();
    for (document, topics) in [
        (json!({ "interfaces": [{ "name": "eth1", "mtu": 1400 }] }), &[Topic::Link][..]),
        (
            json!({ "interfaces": [{ "name": "eth1", "ipv4": { "enabled": true, "address": [{ "ip": "198.51.100.1", "prefix-length": 24 }] } }] }),
            &[Topic::Address, Topic::Route],
        ),
        (
            json!({ "routes": { "config": [{ "destination": "203.0.113.0/24", "next-hop-interface": "eth1" }] } }),
            &[Topic::Route],
        ),
        (
            json!({ "route-rules": { "config": [{ "ip-from": "198.51.100.0/24", "route-table": 100 }] } }),
            &[Topic::Rule],
        ),
        (json!({ "dns-resolver": { "config": { "search": [] } } }), &[Topic::Resolver]),
        (json!({ "hostname": { "config": "b" } }), &[Topic::Hostname]),
    ] {
        let mut events = host.events();
        apply(&host, document.clone()).await.expect("applies");
        assert_eq!(next(&mut events).await, Some(topics.iter().copied().collect()), "{document}");

        apply(&host, document.clone()).await.expect("applies again");
        let silence = timeout(MINUTE, events.next()).await;
        assert!(silence.is_err(), "{document} a second time gave {silence:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_stream_ends_with_the_machine() {
    let machine = machine();
    let mut events = machine.host().events();
    drop(machine);
    assert_eq!(next(&mut events).await, None);
}
