//! A disk that takes no writes for a while.

use std::fs;

use super::*;

impl Fixture {
    /// From now on nothing can be written. Not even root can create a file where no directory is.
    fn break_disk(&self) {
        let _ = fs::rename(self.ledger(), self.ledger().with_extension("aside"));
        fs::write(self.ledger(), "").unwrap();
    }

    fn mend_disk(&self) {
        fs::remove_file(self.ledger()).unwrap();
        let _ = fs::rename(self.ledger().with_extension("aside"), self.ledger());
    }

    /// Why the node is not ready.
    fn problem(&self) -> String {
        self.health.set_ready(true);
        self.health.not_ready().unwrap_or_default()
    }
}

#[tokio::test(start_paused = true)]
async fn an_order_that_arrives_while_the_disk_is_full_is_applied_once_it_takes_writes() {
    let fixture = Fixture::new();
    fixture.store.set_orders([]);
    let running = fixture.start().await;
    sleep(LONG).await;
    fixture.break_disk();
    fixture.store.set_orders([mtu("p", "eth1", 1400)]);
    sleep(LONG).await;
    assert_eq!(fixture.machine.checkpoints_made(), 0, "nothing begins that is not on disk");
    assert!(fixture.problem().contains("p.json"), "{}", fixture.problem());
    assert!(fixture.health.hung().is_empty(), "a restart would not help");
    let report = timeout(LONG, fixture.change_lock.lock()).await;
    assert!(report.is_ok(), "the network is reported meanwhile");
    drop(report);

    // One that arrives meanwhile waits, too.
    fixture.store.set_orders([mtu("p", "eth1", 1400), mtu("q", "eth2", 1300)]);
    sleep(LONG).await;
    assert_eq!((fixture.mtu("eth1"), fixture.mtu("eth2")), (1500, 1500));
    fixture.mend_disk();
    fixture.until("p", AVAILABLE).await;
    fixture.until("q", AVAILABLE).await;
    assert_eq!((fixture.mtu("eth1"), fixture.mtu("eth2")), (1400, 1300));
    assert_eq!(fixture.last("p").retry_count, [].into(), "what was not tried has not failed");
    assert!(is_kept(&fixture.ledger(), "p"));
    sleep(LONG).await;
    assert_eq!(fixture.problem(), "");

    fixture.store.set_orders([mtu("p", "eth1", 1300)]);
    while fixture.mtu("eth1") != 1300 || is_kept(&fixture.ledger(), "q") {
        sleep(Duration::from_millis(100)).await;
    }
    fixture.stop.send_replace(true);
    running.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn when_the_disk_fails_during_a_change_its_result_is_reported_and_written_later() {
    let fixture = Fixture::new();
    fixture.store.set_orders([with_probes(mtu("p", "eth1", 1400), failing_probe())]);
    let running = fixture.start().await;
    while fixture.mtu("eth1") != 1400 {
        sleep(Duration::from_millis(100)).await;
    }
    fixture.break_disk();
    fixture.until("p", FAILING).await;
    assert_eq!(fixture.mtu("eth1"), 1500, "it is rolled back");
    sleep(LONG).await;
    assert_eq!(fixture.machine.checkpoints_made(), 1, "no other attempt");
    fixture.mend_disk();
    while fixture.last("p").conditions.is_true(PROGRESSING) {
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(fixture.machine.checkpoints_made(), 5, "the attempts go on");
    let kept = Ledger::open(fixture.ledger()).unwrap().get("p").unwrap().clone();
    assert_eq!((kept.status, kept.attempting), (fixture.last("p"), false));
    fixture.stop.send_replace(true);
    running.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_single_run_fails_when_the_disk_does_and_touches_nothing() {
    let fixture = Fixture::new();
    let engine = fixture.engine().await;
    fixture.break_disk();
    fixture.store.set_orders([mtu("p", "eth1", 1400)]);
    let error = engine.run_once().await.unwrap_err().to_string();
    assert!(error.contains("cannot write") && error.contains("p.json"), "{error}");
    assert_eq!((fixture.mtu("eth1"), fixture.machine.checkpoints_made()), (1500, 0));
}
