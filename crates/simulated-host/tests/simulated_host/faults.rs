//! Things that go wrong, and what is left of the network afterwards.

use knmstate_document::{NetworkState, Place};
use std::time::Duration;

use knmstate_host::{Abilities, Guard, Host, HostError, Operation, Topic, Versions};
use knmstate_simulated_host::{ApplyFault, Fault, SimulatedMachine, Strikes};
use serde_json::json;
use tokio::time::{Instant, advance, timeout};

use crate::common::{DEADLINE, at, machine, next, state};

const SECOND: Duration = Duration::from_secs(1);

fn new_address() -> NetworkState {
    state(json!({ "interfaces": [{
        "name": "eth0", "ipv4": { "enabled": true, "address": [{ "ip": "192.0.2.99", "prefix-length": 24 }] }
    }]}))
}

fn failure() -> HostError {
    HostError::Failed { place: Place::interface("eth0"), why: "no carrier".to_owned() }
}

#[tokio::test(start_paused = true)]
async fn a_failure_strikes_once_or_always() {
    let machine = machine();
    let (host, before) = (machine.host(), machine.state());
    machine.arm(Operation::Begin, Strikes::Once, Fault::Fail(failure()));
    assert_eq!(host.begin(&new_address(), DEADLINE).await, Err(failure()));
    assert_eq!(machine.state(), before);
    let checkpoint = host.begin(&new_address(), DEADLINE).await.expect("it struck once");

    machine.arm(Operation::Commit, Strikes::Always, Fault::Fail(failure()));
    machine.arm(Operation::Observe, Strikes::Always, Fault::Fail(failure()));
    machine.arm(Operation::RollBack, Strikes::Once, Fault::Fail(failure()));
    for _ in 0..3 {
        assert_eq!(host.commit(&checkpoint).await, Err(failure()));
        assert_eq!(host.observe().await, Err(failure()));
    }
    assert_eq!(host.roll_back(&checkpoint).await, Err(failure()));
    host.roll_back(&checkpoint).await.expect("it struck once");
    machine.clear_faults();
    assert_eq!(host.observe().await, Ok(before));
}

#[tokio::test(start_paused = true)]
async fn planning_can_fail_like_anything_else() {
    let machine = machine();
    let (host, before) = (machine.host(), machine.state());
    machine.arm(Operation::Plan, Strikes::Once, Fault::Fail(failure()));
    assert_eq!(host.plan(&new_address()).await, Err(failure()));
    assert!(host.plan(&new_address()).await.is_ok_and(|plan| !plan.is_empty()));
    machine.stop_service();
    assert!(matches!(host.plan(&new_address()).await, Err(HostError::Unavailable { .. })));
    assert_eq!(machine.state(), before);
}

#[tokio::test]
async fn a_machine_can_be_without_an_ability() {
    assert!(machine().host().abilities().await.bridge_vlan_filtering);
    let less = Abilities { bridge_vlan_filtering: false };
    let machine = SimulatedMachine::builder("old").able_to(less).build().expect("the machine boots");
    assert_eq!(machine.host().abilities().await, less);
}

#[tokio::test(start_paused = true)]
async fn a_delay_holds_up_the_answer() {
    let machine = machine();
    let host = machine.host();
    machine.arm(Operation::Observe, Strikes::Once, Fault::Delay(3 * SECOND));
    let asked = Instant::now();
    host.observe().await.expect("reads in the end");
    assert_eq!(asked.elapsed(), 3 * SECOND);

    machine.arm(Operation::Begin, Strikes::Once, Fault::Delay(7 * SECOND));
    let asked = Instant::now();
    let checkpoint = host.begin(&new_address(), 10 * SECOND).await.expect("begins in the end");
    assert_eq!(asked.elapsed(), 7 * SECOND);
    advance(9 * SECOND).await;
    host.commit(&checkpoint).await.expect("the time to decide starts when applying is over");
}

#[tokio::test(start_paused = true)]
async fn applying_for_too_long_is_given_up_and_undone() {
    for fault in [Fault::Hang, Fault::Delay(11 * SECOND)] {
        let machine = machine();
        let (host, before) = (machine.host(), machine.state());
        machine.arm(Operation::Begin, Strikes::Once, fault);
        let asked = Instant::now();
        let error = host.begin(&new_address(), 10 * SECOND).await.expect_err("takes too long");
        assert_eq!(error, HostError::Timeout { operation: Operation::Begin, after: 10 * SECOND });
        assert_eq!(asked.elapsed(), 10 * SECOND);
        assert_eq!(machine.state(), before);
        assert_eq!(host.open_checkpoints().await, Ok(vec![]));
    }
}

#[tokio::test(start_paused = true)]
async fn who_does_not_wait_for_a_hanging_apply_finds_its_change_and_can_undo_it() {
    let machine = machine();
    let (host, before) = (machine.host(), machine.state());
    machine.arm(Operation::Begin, Strikes::Once, Fault::Hang);
    timeout(SECOND, host.begin(&new_address(), 10 * SECOND)).await.expect_err("hangs");
    assert_ne!(machine.state(), before);
    let open = host.open_checkpoints().await.expect("answers");
    assert_eq!(open[0].guard, Guard::RollsBackIn(9 * SECOND));
    host.roll_back(&open[0].checkpoint).await.expect("rolls back");
    assert_eq!(machine.state(), before);
}

#[tokio::test(start_paused = true)]
async fn a_hanging_read_can_be_left() {
    let machine = machine();
    let host = machine.host();
    machine.arm(Operation::Observe, Strikes::Once, Fault::Hang);
    timeout(SECOND, host.observe()).await.expect_err("hangs");
    host.observe().await.expect("and does no harm");
}

#[tokio::test(start_paused = true)]
async fn a_restarted_service_silently_keeps_an_open_change_and_only_a_rollback_undoes_it() {
    let machine = machine();
    let (host, before) = (machine.host(), machine.state());
    let checkpoint = host.begin(&new_address(), 10 * SECOND).await.expect("begins");
    let changed = machine.state();
    let mut events = host.events();
    machine.restart_service();
    assert_eq!(next(&mut events).await, Some([Topic::ServiceGone, Topic::ServiceBack].into_iter().collect()));

    assert_eq!(
        host.commit(&checkpoint).await,
        Err(HostError::CheckpointGone { checkpoint: checkpoint.clone() })
    );
    advance(60 * SECOND).await;
    assert_eq!(machine.state(), changed, "nothing guards it any more");

    // Nothing new is begun on top of it, and a restarted agent can still find it.
    let busy = Err(HostError::Busy { checkpoint: checkpoint.clone(), rolls_back_in: None });
    assert_eq!(host.begin(&new_address(), DEADLINE).await, busy);
    let open = machine.host().open_checkpoints().await.expect("answers");
    assert_eq!((open.len(), open[0].ours, open[0].guard), (1, true, Guard::Lost));

    host.roll_back(&open[0].checkpoint).await.expect("what was before is noted on disk");
    assert_eq!(machine.state(), before);
    assert_eq!(host.open_checkpoints().await, Ok(vec![]));
    assert_eq!(host.roll_back(&checkpoint).await, Err(HostError::CheckpointGone { checkpoint }));
}

#[tokio::test(start_paused = true)]
async fn a_service_that_dies_half_way_leaves_pieces_that_a_rollback_clears_away() {
    let machine = machine();
    let (host, before) = (machine.host(), machine.state());
    machine.arm_apply(Strikes::Once, ApplyFault::ServiceDies);
    let both = state(json!({
        "interfaces": [{ "name": "eth0", "ipv4": { "enabled": true, "address": [{ "ip": "192.0.2.99", "prefix-length": 24 }] } }],
        "dns-resolver": { "config": {} }
    }));
    let error = host.begin(&both, DEADLINE).await.expect_err("the service is gone");
    assert!(error.is_retryable());
    assert_eq!(
        at(&machine, "eth0", "/ipv4/address"),
        json!([{ "ip": "192.0.2.99", "prefix-length": 24 }, { "ip": "192.0.2.10", "prefix-length": 24 }])
    );
    assert_eq!(machine.state().resolver_config(), before.resolver_config(), "that was not begun");

    assert!(matches!(host.open_checkpoints().await, Err(HostError::Unavailable { .. })));
    machine.start_service();
    let open = host.open_checkpoints().await.expect("answers again");
    assert_eq!((open.len(), open[0].ours, open[0].guard), (1, true, Guard::Lost));
    host.roll_back(&open[0].checkpoint).await.expect("clears away");
    assert_eq!(machine.state(), before);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_answered_while_the_service_is_down() {
    let machine = machine();
    let host = machine.host();
    let simulated = Some("simulated".to_owned());
    assert_eq!(
        host.versions().await,
        Versions { nmstate: "simulated".to_owned(), network_manager: simulated }
    );
    let checkpoint = host.begin(&new_address(), DEADLINE).await.expect("begins");
    machine.stop_service();
    assert!(matches!(host.observe().await, Err(HostError::Unavailable { .. })));
    assert!(matches!(host.begin(&new_address(), DEADLINE).await, Err(HostError::Unavailable { .. })));
    assert!(matches!(host.commit(&checkpoint).await, Err(HostError::Unavailable { .. })));
    assert!(matches!(host.roll_back(&checkpoint).await, Err(HostError::Unavailable { .. })));
    assert_eq!(host.versions().await.network_manager, None);
}

#[tokio::test(start_paused = true)]
async fn an_address_can_be_lost_after_all_was_found_good() {
    let machine = machine();
    let host = machine.host();
    let after = Duration::from_millis(300);
    let lose = ApplyFault::LoseAddress {
        interface: "eth0".to_owned(),
        address: "192.0.2.99".parse().expect("an address"),
        after,
    };
    machine.arm_apply(Strikes::Once, lose);
    let checkpoint = host.begin(&new_address(), DEADLINE).await.expect("begins, and all is well");
    assert_eq!(new_address().first_unmet_in(&machine.state()), None);

    let mut events = host.events();
    let began = Instant::now();
    let changes = next(&mut events).await.expect("the machine is there");
    assert_eq!((began.elapsed(), changes), (after, [Topic::Address, Topic::Route].into_iter().collect()));
    let unmet = new_address().first_unmet_in(&machine.state()).expect("the address is gone");
    assert_eq!(unmet.place.to_string(), "interfaces[eth0].ipv4.address[0]");
    host.commit(&checkpoint).await.expect("the machine does not mind");
}

#[tokio::test(start_paused = true)]
async fn a_value_that_the_driver_disregards_fails_the_verification_and_is_undone() {
    let machine = machine();
    let (host, before) = (machine.host(), machine.state());
    machine.arm_apply(
        Strikes::Always,
        ApplyFault::Disregard { interface: "eth1".to_owned(), key: "mtu".to_owned() },
    );
    let jumbo =
        state(json!({ "interfaces": [{ "name": "eth1", "mtu": 9000 }, { "name": "d", "type": "dummy" }] }));
    let error = host.begin(&jumbo, DEADLINE).await.expect_err("the driver does not listen");
    assert_eq!(
        error,
        HostError::VerificationFailed {
            place: Place::interface("eth1").below("mtu"),
            wanted: "9000".to_owned(),
            found: "1500".to_owned(),
        }
    );
    assert_eq!(machine.state(), before);
    assert_eq!(host.open_checkpoints().await, Ok(vec![]));
}

#[tokio::test(start_paused = true)]
async fn secrets_do_not_show_in_errors() {
    let machine = machine();
    machine.arm_apply(
        Strikes::Once,
        ApplyFault::Disregard { interface: "eth1".to_owned(), key: "802.1x".to_owned() },
    );
    let desired = state(
        json!({ "interfaces": [{ "name": "eth1", "802.1x": { "identity": "n", "password": "hush" } }] }),
    );
    let error = machine.host().begin(&desired, DEADLINE).await.expect_err("the driver does not listen");
    assert!(!format!("{error} {error:?} {desired:?}").contains("hush"), "{error:?}");
    assert_eq!(error.place().map(ToString::to_string), Some("interfaces[eth1].802.1x".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_rolled_back_is_given_up_after_some_attempts() {
    let machine = machine();
    let host = machine.host();
    let checkpoint = host.begin(&new_address(), DEADLINE).await.expect("begun");
    machine.restart_service();
    let down = HostError::Unavailable { why: "it is being restarted".to_owned() };
    for error in [down, failure()] {
        machine.clear_faults();
        machine.arm(Operation::RollBack, Strikes::Always, Fault::Fail(error.clone()));
        for _ in 0..5 {
            assert_eq!(host.roll_back(&checkpoint).await, Err(error.clone()));
        }
    }
    assert!(host.set_aside().await.is_empty());
    let Err(HostError::SetAside(aside)) = host.roll_back(&checkpoint).await else { panic!("not given up") };
    assert_eq!((&*aside.interfaces, aside.why.as_str()), (&["eth0".to_owned()][..], &*failure().to_string()));
    assert_eq!(host.set_aside().await, [aside]);
    assert_eq!(host.open_checkpoints().await, Ok(vec![]));
    machine.clear_faults();
    assert!(matches!(host.roll_back(&checkpoint).await, Err(HostError::CheckpointGone { .. })));
}

#[tokio::test(start_paused = true)]
async fn dispatch_scripts_are_refused() {
    let machine = machine();
    let script = state(json!({ "interfaces": [{ "name": "eth0", "dispatch": { "post-activation": "x" } }] }));
    let begun = machine.host().begin(&script, DEADLINE).await.map(drop);
    assert!(matches!(begun, Err(HostError::NotAllowed { .. })), "{begun:?}");
    assert_eq!(machine.host().plan(&script).await.map(drop), begun);
}
