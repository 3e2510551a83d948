//! Changes that cannot be rolled back.

use super::*;

impl Fixture {
    /// An earlier process has left a change of eth1 open, the service has dropped its checkpoint, and rolling back fails.
    async fn with_change_that_stays(error: HostError) -> Self {
        let fixture = Self::new();
        let desired = json!({ "interfaces": [{ "name": "eth1", "state": "up", "mtu": 1300 }] });
        fixture.machine.host().begin(&NetworkState::parse(desired).unwrap(), LONG).await.unwrap();
        fixture.machine.restart_service();
        fixture.machine.arm(Operation::RollBack, Strikes::Always, Fault::Fail(error));
        fixture
    }
}

fn refused() -> HostError {
    HostError::invalid(knmstate_host::Place::interface("eth1"), "there is no such interface")
}

fn failed() -> HostError {
    HostError::Failed { place: knmstate_host::Place::interface("eth1"), why: "no carrier".to_owned() }
}

#[tokio::test(start_paused = true)]
async fn a_change_that_cannot_be_rolled_back_is_given_up_and_orders_are_applied() {
    for (error, limit) in [(refused(), Duration::from_secs(30)), (failed(), LONG)] {
        let fixture = Fixture::with_change_that_stays(error.clone()).await;
        fixture.store.set_orders([mtu("p", "eth1", 1400)]);
        let running = fixture.start().await;
        let began = Instant::now();
        fixture.until("p", AVAILABLE).await;
        assert!(began.elapsed() <= limit, "{error}: {:?}", began.elapsed());
        assert_eq!(fixture.mtu("eth1"), 1400);
        let aside = fixture.machine.host().set_aside().await;
        assert_eq!((aside.len(), &*aside[0].interfaces), (1, &["eth1".to_owned()][..]), "{aside:?}");
        assert_eq!(aside[0].why, error.to_string());
        // Nothing is left of it for the next process.
        fixture.stop.send_replace(true);
        running.await.unwrap().unwrap();
        fixture.stop.send_replace(false);
        assert_eq!(results(&fixture.run_once([mtu("p", "eth1", 1400)]).await)[0].1, "unchanged");
        assert_eq!(fixture.machine.host().set_aside().await.len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn the_network_is_reported_between_the_attempts() {
    let fixture = Fixture::with_change_that_stays(failed()).await;
    fixture.store.set_orders([]);
    let running = fixture.start().await;
    let mut report = std::pin::pin!(fixture.change_lock.lock());
    // The first attempt may have failed for a reason that passes.
    assert!(timeout(Duration::from_secs(4), &mut report).await.is_err());
    let guard = timeout(Duration::from_secs(4), report).await.unwrap();
    assert!(fixture.machine.host().set_aside().await.is_empty(), "it is not given up yet");
    // No attempt is made while the network is read.
    fixture.machine.clear_faults();
    sleep(LONG).await;
    assert_eq!(fixture.mtu("eth1"), 1300);
    drop(guard);
    sleep(LONG).await;
    assert_eq!(fixture.mtu("eth1"), 1500);
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn time_without_the_service_does_not_count() {
    let fixture = Fixture::with_change_that_stays(failed()).await;
    fixture.machine.clear_faults();
    fixture.machine.stop_service();
    fixture.store.set_orders([]);
    let running = fixture.start().await;
    sleep(Duration::from_hours(5)).await;
    fixture.machine.start_service();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(fixture.mtu("eth1"), 1500);
    assert!(fixture.machine.host().set_aside().await.is_empty());
    running.abort();
}

#[test]
fn pauses_grow_up_to_minutes() {
    let pauses: Vec<u64> = (0..9).map(|failed| roll_back_pause(failed).as_secs()).collect();
    assert_eq!(pauses, [5, 5, 10, 20, 40, 80, 160, 160, 160]);
}
