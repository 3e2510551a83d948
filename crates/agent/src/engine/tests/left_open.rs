//! Changes that a command has left open for another program.

use super::*;

const MINUTE: Duration = Duration::from_mins(1);

impl Fixture {
    async fn left_open(&self) -> knmstate_host::Checkpoint {
        let host = self.machine.host();
        let desired = json!({ "interfaces": [{ "name": "eth2", "state": "up", "mtu": 1300 }] });
        let checkpoint = host.begin(&NetworkState::parse(desired).unwrap(), MINUTE).await.unwrap();
        host.leave_open(&checkpoint, MINUTE).await.unwrap();
        checkpoint
    }
}

#[tokio::test(start_paused = true)]
async fn it_is_not_rolled_back_before_its_time_and_orders_wait_for_it() {
    let fixture = Fixture::new();
    fixture.left_open().await;
    fixture.store.set_orders([mtu("p", "eth1", 1400)]);
    let engine = fixture.start().await;
    sleep(Duration::from_secs(59)).await;
    assert_eq!((fixture.mtu("eth2"), fixture.mtu("eth1")), (1300, 1500));
    fixture.until("p", AVAILABLE).await;
    assert_eq!(
        (fixture.mtu("eth2"), fixture.mtu("eth1")),
        (1500, 1400),
        "the machine has rolled the other one back"
    );
    engine.abort();
}

#[tokio::test(start_paused = true)]
async fn a_committed_change_stays_and_orders_are_applied() {
    let fixture = Fixture::new();
    let checkpoint = fixture.left_open().await;
    fixture.store.set_orders([mtu("p", "eth1", 1400)]);
    let engine = fixture.start().await;
    sleep(Duration::from_secs(5)).await;
    fixture.machine.host().commit(&checkpoint).await.unwrap();
    fixture.until("p", AVAILABLE).await;
    assert_eq!((fixture.mtu("eth2"), fixture.mtu("eth1")), (1300, 1400));
    engine.abort();
}

#[tokio::test(start_paused = true)]
async fn an_idle_engine_rolls_back_a_change_whose_checkpoint_the_service_has_dropped() {
    let fixture = Fixture::new();
    fixture.store.set_orders([]);
    let engine = fixture.start().await;
    sleep(Duration::from_secs(1)).await;
    fixture.left_open().await;
    fixture.machine.restart_service();
    sleep(Duration::from_secs(5)).await;
    assert_eq!(fixture.mtu("eth2"), 1500);
    engine.abort();
}
