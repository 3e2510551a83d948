//! Direct changes on a simulated machine, with a paused clock.

use knmstate_simulated_host::{Fault, SimulatedHost, SimulatedMachine, Strikes};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::*;

const MINUTE: Duration = Duration::from_mins(1);

fn machine() -> SimulatedMachine {
    SimulatedMachine::builder("n1").nic("eth0").nic("eth1").build().unwrap()
}

fn mtu(mtu: u32) -> Value {
    json!({ "interfaces": [{ "name": "eth1", "type": "ethernet", "state": "up", "mtu": mtu }] })
}

async fn change(machine: &SimulatedMachine, document: &Value, conclusion: Conclusion) -> DirectChangeResult {
    let host = machine.host();
    let prober = Prober::new(host.clone(), None, "example.test");
    let stop = watch::Sender::new(false);
    let change = DirectChange {
        host: &host,
        prober: &prober,
        request: ChangeRequest::parse(&document.to_string()).unwrap(),
        timeout: MINUTE,
        probes: true,
        api: ApiAccess::None,
        conclusion,
        stop: stop.subscribe(),
    };
    change.run().await
}

async fn left_open(machine: &SimulatedMachine) -> Checkpoint {
    match change(machine, &mtu(1400), Conclusion::LeaveOpen(MINUTE)).await {
        DirectChangeResult::Changed { checkpoint, .. } => checkpoint,
        other => panic!("{other:?}"),
    }
}

fn mtu_of(machine: &SimulatedMachine) -> Value {
    machine.state().interface("eth1").unwrap()["mtu"].clone()
}

fn is_refused(settled: Result<SettleResult, HostError>, expected: &str) {
    match settled {
        Ok(SettleResult::Refused { why, .. }) => assert!(why.contains(expected), "{why}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_whole_change_is_committed_and_the_same_again_is_no_change() {
    let machine = machine();
    assert!(matches!(
        change(&machine, &mtu(1400), Conclusion::Commit).await,
        DirectChangeResult::Changed { .. }
    ));
    sleep(MINUTE * 2).await;
    assert_eq!(mtu_of(&machine), 1400);
    assert_eq!(
        change(&machine, &mtu(1400), Conclusion::Commit).await,
        DirectChangeResult::Unchanged { checkpoint: None }
    );
}

#[tokio::test(start_paused = true)]
async fn a_change_that_is_left_open_is_settled_once_by_name_or_without() {
    for named in [false, true] {
        let machine = machine();
        let host: SimulatedHost = machine.host();
        let checkpoint = left_open(&machine).await;
        let name = named.then(|| checkpoint.as_str());
        let committed = commit_open_change(&host, name).await;
        assert_eq!(committed, Ok(SettleResult::Committed { checkpoint: checkpoint.clone() }));
        is_refused(commit_open_change(&host, name).await, "the change is gone");
        is_refused(roll_back_open_change(&host, name).await, "the change is gone");
        assert_eq!(mtu_of(&machine), 1400);

        let again = machine.state();
        change(&machine, &mtu(1300), Conclusion::LeaveOpen(MINUTE)).await;
        is_refused(roll_back_open_change(&host, Some("/no/such")).await, "Another change is open");
        assert!(matches!(roll_back_open_change(&host, None).await, Ok(SettleResult::RolledBack { .. })));
        assert_eq!(machine.state(), again);
    }
}

#[tokio::test(start_paused = true)]
async fn while_a_change_is_open_another_is_refused_and_after_its_time_it_is_rolled_back() {
    let machine = machine();
    let before = machine.state();
    let checkpoint = left_open(&machine).await;
    match change(&machine, &mtu(1300), Conclusion::Commit).await {
        DirectChangeResult::Refused(HostError::Busy { checkpoint: other, .. }) => {
            assert_eq!(other, checkpoint);
        }
        other => panic!("{other:?}"),
    }
    sleep(MINUTE + Duration::from_secs(1)).await;
    assert_eq!(machine.state(), before);
    is_refused(commit_open_change(&machine.host(), None).await, "its time passed");
    is_refused(commit_open_change(&machine.host(), Some(checkpoint.as_str())).await, checkpoint.as_str());
}

#[tokio::test(start_paused = true)]
async fn a_change_that_network_manager_has_dropped_is_not_committed_but_rolled_back() {
    let machine = machine();
    let before = machine.state();
    left_open(&machine).await;
    machine.restart_service();
    match commit_open_change(&machine.host(), None).await {
        Ok(SettleResult::Lost { why, .. }) => assert!(why.contains("as it was before"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(machine.state(), before);
}

#[tokio::test(start_paused = true)]
async fn an_unfinished_change_is_not_committed_and_the_next_change_rolls_it_back_first() {
    let machine = machine();
    let host = machine.host();
    let half_done = NetworkState::parse(mtu(1400)).unwrap();
    host.begin(&half_done, MINUTE).await.unwrap();
    is_refused(commit_open_change(&host, None).await, "did not finish");
    let other = json!({ "interfaces": [{ "name": "eth0", "type": "ethernet", "state": "up", "mtu": 1300 }] });
    assert!(matches!(change(&machine, &other, Conclusion::Commit).await, DirectChangeResult::Changed { .. }));
    assert_eq!(mtu_of(&machine), 1500);
}

#[tokio::test(start_paused = true)]
async fn a_change_that_is_to_be_left_open_has_a_checkpoint_also_when_there_is_nothing_to_do() {
    let machine = machine();
    let Ok(checkpoint) = (match change(&machine, &json!({}), Conclusion::LeaveOpen(MINUTE)).await {
        DirectChangeResult::Unchanged { checkpoint: Some(checkpoint) } => Ok(checkpoint),
        other => Err(other),
    }) else {
        panic!("no checkpoint")
    };
    assert_eq!(commit_open_change(&machine.host(), None).await, Ok(SettleResult::Committed { checkpoint }));
}

#[tokio::test(start_paused = true)]
async fn the_state_is_unknown_only_if_the_service_does_not_come_back() {
    use knmstate_simulated_host::{ApplyFault, Strikes};
    for comes_back in [true, false] {
        let machine = machine();
        let before = machine.state();
        machine.arm_apply(Strikes::Once, ApplyFault::ServiceDies);
        let starter = machine.clone();
        if comes_back {
            tokio::spawn(async move {
                sleep(Duration::from_secs(10)).await;
                starter.start_service();
            });
        }
        match change(&machine, &mtu(1400), Conclusion::Commit).await {
            DirectChangeResult::Failed { as_before, why, .. } => assert_eq!(as_before, comes_back, "{why}"),
            other => panic!("{other:?}"),
        }
        if comes_back {
            assert_eq!(machine.state(), before);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_earlier_change_that_cannot_be_rolled_back_does_not_refuse_commands_for_ever() {
    let machine = machine();
    left_open(&machine).await;
    machine.restart_service();
    let error = HostError::invalid(knmstate_host::Place::interface("eth1"), "there is no such interface");
    machine.arm(knmstate_host::Operation::RollBack, Strikes::Always, Fault::Fail(error));
    for _ in 0..2 {
        let end = change(&machine, &mtu(1300), Conclusion::Commit).await;
        assert!(matches!(end, DirectChangeResult::Failed { as_before: false, .. }), "{end:?}");
    }
    let end = change(&machine, &mtu(1300), Conclusion::Commit).await;
    assert!(matches!(end, DirectChangeResult::Changed { .. }), "{end:?}");
    assert_eq!((mtu_of(&machine), machine.host().set_aside().await.len()), (json!(1300), 1));
}
