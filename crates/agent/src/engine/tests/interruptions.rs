//! Processes and services that end or hang during a change.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_change_that_an_earlier_process_left_open_is_rolled_back_before_it_is_reported() {
    let fixture = Fixture::new();
    let desired =
        NetworkState::parse(json!({ "interfaces": [{ "name": "eth1", "state": "up", "mtu": 1300 }] }));
    fixture.machine.host().begin(&desired.unwrap(), LONG).await.unwrap();
    fixture.store.set_orders([]);
    let running = fixture.start().await;
    let guard = timeout(LONG, fixture.change_lock.lock()).await.unwrap();
    assert_eq!(fixture.mtu("eth1"), 1500, "the first reading has the network as before");
    drop(guard);
    fixture.stop.send_replace(true);
    running.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_service_that_dies_during_the_change_is_waited_for_and_then_the_order_is_applied() {
    let fixture = Fixture::new();
    fixture.machine.arm_apply(Strikes::Once, ApplyFault::ServiceDies);
    fixture.store.set_orders([mtu("p", "eth1", 1400)]);
    let running = fixture.start().await;
    let status = fixture.until("p", FAILING).await;
    assert!(status.conditions.is_true(PROGRESSING), "it will be retried");
    let mut report = std::pin::pin!(fixture.change_lock.lock());
    assert!(
        timeout(Duration::from_mins(1), &mut report).await.is_err(),
        "a half-applied change is not reported"
    );
    fixture.machine.start_service();
    let guard = timeout(LONG, report).await.unwrap();
    drop(guard);
    fixture.until("p", AVAILABLE).await;
    assert_eq!(fixture.mtu("eth1"), 1400);
    fixture.stop.send_replace(true);
    running.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_service_that_restarts_while_probes_run_gets_no_silent_commit() {
    let fixture = Fixture::new();
    let port = closed_port();
    let slow = json!([{ "name": "web", "timeout": "60s", "tcp": { "host": "127.0.0.1", "port": port } }]);
    fixture.store.set_orders([with_probes(mtu("p", "eth1", 1400), slow)]);
    let running = fixture.start().await;
    while fixture.mtu("eth1") != 1400 {
        sleep(Duration::from_millis(100)).await;
    }
    fixture.machine.restart_service();
    // From now on the probe can pass, but the checkpoint is gone.
    let _listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
    fixture.until("p", AVAILABLE).await;
    let failures = fixture
        .store
        .statuses()
        .into_iter()
        .filter_map(|(_, status)| status.conditions.get(FAILING).cloned());
    let messages: Vec<String> = failures.map(|condition| condition.message).collect();
    assert!(messages.iter().any(|message| message.contains("could not be made permanent")), "{messages:?}");
    assert_eq!(fixture.mtu("eth1"), 1400, "the next attempt starts from the beginning");
    fixture.stop.send_replace(true);
    running.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_apply_that_hangs_times_out_and_is_rolled_back() {
    let fixture = Fixture::new();
    fixture.machine.arm(Operation::Begin, Strikes::Always, Fault::Hang);
    let outcomes = timeout(Duration::from_hours(1), async {
        fixture.store.set_orders([mtu("p", "eth1", 1400)]);
        fixture.engine().await.run_once().await.unwrap()
    })
    .await
    .unwrap();
    assert!(results(&outcomes)[0].1.contains("not finished after"), "{outcomes:?}");
    assert_eq!(fixture.mtu("eth1"), 1500);
}

#[tokio::test(start_paused = true)]
async fn when_stopped_during_a_change_it_rolls_back_and_the_next_process_retries() {
    let fixture = Fixture::new();
    fixture.store.set_orders([with_probes(mtu("p", "eth1", 1400), failing_probe())]);
    let running = fixture.start().await;
    while fixture.mtu("eth1") != 1400 {
        sleep(Duration::from_millis(100)).await;
    }
    fixture.stop.send_replace(true);
    timeout(Duration::from_secs(5), running).await.unwrap().unwrap().unwrap();
    assert_eq!(fixture.mtu("eth1"), 1500);

    fixture.stop.send_replace(false);
    let running = fixture.start().await;
    let status = fixture.until("p", FAILING).await;
    let message = status.conditions.get(FAILING).unwrap().message.clone();
    assert!(message.contains("in the middle of the change"), "{message}");
    assert_eq!(status.retry_count, [("1".to_owned(), 1)].into(), "it counts as an attempt");
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn while_the_store_has_no_orders_those_on_disk_are_applied() {
    let fixture = Fixture::new();
    fixture.run_once([mtu("p", "eth1", 1400)]).await;
    // A reboot: the network is as at the start, and the API server does not respond.
    let rebooted = Fixture { machine: Fixture::new().machine, store: MemoryStore::default(), ..fixture };
    assert_eq!(rebooted.mtu("eth1"), 1500);
    let running = rebooted.start().await;
    rebooted.until("p", AVAILABLE).await;
    while rebooted.mtu("eth1") != 1400 {
        sleep(Duration::from_millis(100)).await;
    }
    running.abort();
}
