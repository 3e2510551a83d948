//! Changes that a command has left open for another program.

use super::*;

const MINUTE: Duration = Duration::from_mins(1);

impl Trial {
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
    let trial = Trial::new();
    trial.left_open().await;
    trial.shelf.give([mtu("p", "eth1", 1400)]);
    let engine = trial.start().await;
    sleep(Duration::from_secs(59)).await;
    assert_eq!((trial.mtu("eth2"), trial.mtu("eth1")), (1300, 1500));
    trial.until("p", AVAILABLE).await;
    assert_eq!(
        (trial.mtu("eth2"), trial.mtu("eth1")),
        (1500, 1400),
        "the machine has taken the other one back"
    );
    engine.abort();
}

#[tokio::test(start_paused = true)]
async fn what_is_committed_stays_and_orders_go_on() {
    let trial = Trial::new();
    let checkpoint = trial.left_open().await;
    trial.shelf.give([mtu("p", "eth1", 1400)]);
    let engine = trial.start().await;
    sleep(Duration::from_secs(5)).await;
    trial.machine.host().commit(&checkpoint).await.unwrap();
    trial.until("p", AVAILABLE).await;
    assert_eq!((trial.mtu("eth2"), trial.mtu("eth1")), (1300, 1400));
    engine.abort();
}

#[tokio::test(start_paused = true)]
async fn what_the_service_has_forgotten_is_put_back_by_an_engine_that_has_nothing_else_to_do() {
    let trial = Trial::new();
    trial.shelf.give([]);
    let engine = trial.start().await;
    sleep(Duration::from_secs(1)).await;
    trial.left_open().await;
    trial.machine.restart_service();
    sleep(Duration::from_secs(5)).await;
    assert_eq!(trial.mtu("eth2"), 1500);
    engine.abort();
}
