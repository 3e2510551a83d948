//! Dynamic addresses: the engine waits for them, and rolls back only if a probe fails.

use super::*;

const NO_LEASE: &str = "eth1: no DHCPv4 lease after 30 s; the interface is up and keeps requesting one";

fn dhcp(policy: &str) -> Order {
    order(
        policy,
        json!({ "interfaces": [
            { "name": "eth1", "type": "ethernet", "state": "up", "ipv4": { "enabled": true, "dhcp": true } },
        ] }),
    )
}

impl Fixture {
    /// A DHCP server assigns an address to eth1.
    fn assign_address(&self) {
        let address = json!([{ "ip": "10.0.0.7", "prefix-length": 24 }]);
        let ipv4 = json!({ "enabled": true, "dhcp": true, "address": address });
        let eth1 = json!({ "name": "eth1", "type": "ethernet", "state": "up", "ipv4": ipv4 });
        let change = NetworkState::parse(json!({ "interfaces": [eth1] })).unwrap();
        self.machine.change_behind_your_back(&change).unwrap();
    }

    fn message(&self, policy: &str) -> String {
        self.last(policy).conditions.first_true().unwrap().message.clone()
    }

    /// Waits until a change is committed.
    async fn until_committed(&self) {
        let committed = async {
            while self.machine.checkpoints_made() == 0
                || !self.machine.host().open_checkpoints().await.unwrap().is_empty()
            {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(LONG, committed).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn the_engine_waits_for_an_address_that_arrives_in_time() {
    let fixture = Fixture::new();
    fixture.store.set_orders([dhcp("p")]);
    let begun = Instant::now();
    let engine = fixture.start().await;
    fixture.until_committed().await;
    sleep(Duration::from_secs(7)).await;
    assert_eq!(fixture.stages("p"), ["Progressing ConfigurationProgressing"]);
    fixture.assign_address();
    let status = fixture.until("p", AVAILABLE).await;
    assert!(begun.elapsed() < Duration::from_secs(12), "{:?}", begun.elapsed());
    assert_eq!(fixture.message("p"), "successfully reconciled");
    assert!(status.notes.is_empty(), "{:?}", status.notes);
    let waited = status.timings.unwrap().lease_milliseconds.unwrap();
    assert!((6_000..9_000).contains(&waited), "{waited} ms");
    engine.abort();
}

#[tokio::test(start_paused = true)]
async fn a_missing_address_is_reported_and_the_change_stays() {
    let fixture = Fixture::new();
    fixture.store.set_orders([dhcp("p"), mtu("q", "eth2", 1400)]);
    let engine = fixture.start().await;
    fixture.until("q", AVAILABLE).await;
    assert!(
        fixture.machine.host().open_checkpoints().await.unwrap().is_empty(),
        "it is committed before the wait"
    );
    let _readings_are_possible = timeout(Duration::from_secs(1), fixture.change_lock.lock()).await.unwrap();
    assert!(!fixture.last("p").conditions.is_true(AVAILABLE), "the other order does not wait for it");
    let status = fixture.until("p", AVAILABLE).await;
    assert_eq!(fixture.message("p"), format!("successfully reconciled; {NO_LEASE}"));
    assert_eq!(status.notes, [NO_LEASE]);
    assert_eq!(fixture.interface("eth1")["ipv4"]["dhcp"], true);

    let reported = fixture.store.statuses().len();
    fixture.assign_address();
    sleep(LONG).await;
    assert_eq!(fixture.store.statuses().len(), reported, "a later address changes no status");
    engine.abort();
}

#[tokio::test(start_paused = true)]
async fn a_satisfied_order_does_not_wait_and_keeps_what_was_missing() {
    let fixture = Fixture::new();
    fixture.run_once([dhcp("p")]).await;
    let reported = fixture.last("p");
    assert_eq!(reported.notes, [NO_LEASE]);
    let begun = Instant::now();
    assert_eq!(results(&fixture.run_once([dhcp("p")]).await), [("p", "unchanged")]);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(fixture.last("p"), reported);
    // Another policy with the same state, which is satisfied from the start.
    assert_eq!(results(&fixture.run_once([dhcp("q")]).await), [("q", "unchanged")]);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(fixture.message("q"), "successfully reconciled");
}

#[tokio::test(start_paused = true)]
async fn a_process_that_is_stopped_while_it_waits_has_not_failed() {
    let fixture = Fixture::new();
    fixture.store.set_orders([dhcp("p")]);
    let engine = fixture.start().await;
    fixture.until_committed().await;
    sleep(Duration::from_secs(5)).await;
    let begun = Instant::now();
    fixture.stop.send_replace(true);
    engine.await.unwrap().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());

    fixture.stop.send_replace(false);
    let made = fixture.machine.checkpoints_made();
    assert_eq!(results(&fixture.run_once([dhcp("p")]).await), [("p", "unchanged")]);
    assert_eq!(fixture.machine.checkpoints_made(), made, "nothing was touched again");
    assert_eq!(
        fixture.stages("p"),
        ["Progressing ConfigurationProgressing", "Available SuccessfullyConfigured"]
    );
    assert_eq!(fixture.message("p"), format!("successfully reconciled; {NO_LEASE}"));
}

#[tokio::test(start_paused = true)]
async fn a_process_that_is_killed_while_it_waits_has_not_failed() {
    let fixture = Fixture::new();
    fixture.store.set_orders([dhcp("p")]);
    let engine = fixture.start().await;
    fixture.until_committed().await;
    sleep(Duration::from_secs(5)).await;
    engine.abort();
    let _ = engine.await;
    fixture.assign_address();
    assert_eq!(results(&fixture.run_once([dhcp("p")]).await), [("p", "unchanged")]);
    assert_eq!(
        fixture.stages("p"),
        ["Progressing ConfigurationProgressing", "Available SuccessfullyConfigured"]
    );
    assert_eq!(fixture.message("p"), "successfully reconciled");
}

#[tokio::test(start_paused = true)]
async fn a_probe_rolls_the_change_back_when_no_address_arrives() {
    let fixture = Fixture::new();
    let probes =
        json!([{ "name": "lease", "timeout": "20s", "lease": { "interface": "eth1", "family": "ipv4" } }]);
    let outcomes = fixture.run_once([with_probes(dhcp("p"), probes)]).await;
    let expected = "probe \"lease\" (IPv4 lease of eth1) failed: no address within 20 s; last: still requesting an address; \
                    rolled back: the network is as it was before";
    assert_eq!(results(&outcomes), [("p", expected)]);
    assert_ne!(fixture.interface("eth1")["ipv4"]["dhcp"], true);
}

#[tokio::test(start_paused = true)]
async fn with_no_lease_wait_the_order_succeeds_at_once() {
    let fixture = Fixture::new();
    fixture.store.set_orders([dhcp("p")]);
    let mut engine = fixture.engine().await;
    engine.settings.leases = Duration::ZERO;
    let begun = Instant::now();
    assert_eq!(results(&engine.run_once().await.unwrap()), [("p", "changed")]);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(fixture.message("p"), "successfully reconciled");
}
