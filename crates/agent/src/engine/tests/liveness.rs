//! What counts as hung, and what only takes long.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_change_within_its_own_deadlines_is_not_hung() {
    let fixture = Fixture::new();
    let mut long = mtu("p", "eth1", 1400);
    long.spec.deadlines = serde_json::from_value(json!({ "transaction": "60m" })).unwrap();
    fixture.machine.arm(Operation::Begin, Strikes::Once, Fault::Delay(Duration::from_mins(50)));
    fixture.store.set_orders([long]);
    let running = fixture.start().await;
    sleep(Duration::from_mins(49)).await;
    assert_eq!((fixture.mtu("eth1"), fixture.health.hung()), (1400, vec![]));
    fixture.until("p", AVAILABLE).await;
    sleep(Duration::from_hours(5)).await;
    assert!(fixture.health.hung().is_empty(), "nor is a wait for orders");
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_another_program_is_not_hung() {
    let fixture = Fixture::new();
    fixture.store.set_orders([]);
    let running = fixture.start().await;
    let other = fixture.change_lock.lock().await;
    fixture.store.set_orders([mtu("p", "eth1", 1400)]);
    sleep(Duration::from_hours(5)).await;
    assert_eq!((fixture.mtu("eth1"), fixture.health.hung()), (1500, vec![]));
    drop(other);
    fixture.until("p", AVAILABLE).await;
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn a_host_that_never_answers_is_hung() {
    for operation in [Operation::Observe, Operation::Plan, Operation::Commit] {
        let fixture = Fixture::new();
        fixture.machine.arm(operation, Strikes::Once, Fault::Hang);
        fixture.store.set_orders([mtu("p", "eth1", 1400)]);
        let running = fixture.start().await;
        sleep(Duration::from_mins(30)).await;
        assert_eq!(fixture.health.hung(), ["engine"], "{operation}");
        running.abort();
    }
}
