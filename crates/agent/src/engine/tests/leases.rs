//! Addresses that others lend: waited for, and never a reason to take a change back unless a probe says so.

use super::*;

const NO_LEASE: &str = "eth1: no DHCPv4 lease after 30 s; the interface is up and goes on asking";

fn dhcp(policy: &str) -> Order {
    order(
        policy,
        json!({ "interfaces": [
            { "name": "eth1", "type": "ethernet", "state": "up", "ipv4": { "enabled": true, "dhcp": true } },
        ] }),
    )
}

impl Trial {
    /// A server lends an address to eth1.
    fn lend(&self) {
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
async fn an_address_that_comes_in_time_is_waited_for() {
    let trial = Trial::new();
    trial.shelf.give([dhcp("p")]);
    let begun = Instant::now();
    let engine = trial.start().await;
    trial.until_committed().await;
    sleep(Duration::from_secs(7)).await;
    assert_eq!(trial.stages("p"), ["Progressing ConfigurationProgressing"]);
    trial.lend();
    let status = trial.until("p", AVAILABLE).await;
    assert!(begun.elapsed() < Duration::from_secs(12), "{:?}", begun.elapsed());
    assert_eq!(trial.message("p"), "successfully reconciled");
    assert!(status.notes.is_empty(), "{:?}", status.notes);
    let waited = status.timings.unwrap().lease_milliseconds.unwrap();
    assert!((6_000..9_000).contains(&waited), "{waited} ms");
    engine.abort();
}

#[tokio::test(start_paused = true)]
async fn one_that_does_not_come_is_missed_and_the_change_stays() {
    let trial = Trial::new();
    trial.shelf.give([dhcp("p"), mtu("q", "eth2", 1400)]);
    let engine = trial.start().await;
    trial.until("q", AVAILABLE).await;
    assert!(
        trial.machine.host().open_checkpoints().await.unwrap().is_empty(),
        "it is committed before the wait"
    );
    let _nobody_is_kept_from_looking = timeout(Duration::from_secs(1), trial.steady.hold()).await.unwrap();
    assert!(!trial.last("p").conditions.is_true(AVAILABLE), "others need not wait for it");
    let status = trial.until("p", AVAILABLE).await;
    assert_eq!(trial.message("p"), format!("successfully reconciled; {NO_LEASE}"));
    assert_eq!(status.notes, [NO_LEASE]);
    assert_eq!(trial.interface("eth1")["ipv4"]["dhcp"], true);

    let told = trial.shelf.told().len();
    trial.lend();
    sleep(LONG).await;
    assert_eq!(trial.shelf.told().len(), told, "what comes later is no news of the policy");
    engine.abort();
}

#[tokio::test(start_paused = true)]
async fn what_is_so_already_does_not_wait_nor_does_it_forget_what_was_missing() {
    let trial = Trial::new();
    trial.run_once([dhcp("p")]).await;
    let said = trial.last("p");
    assert_eq!(said.notes, [NO_LEASE]);
    let begun = Instant::now();
    assert_eq!(results(&trial.run_once([dhcp("p")]).await), [("p", "already")]);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(trial.last("p"), said);
    // The same order on a node that was so before it came.
    assert_eq!(results(&trial.run_once([dhcp("q")]).await), [("q", "already")]);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(trial.message("q"), "successfully reconciled");
}

#[tokio::test(start_paused = true)]
async fn whoever_is_stopped_while_it_waits_has_not_failed() {
    let trial = Trial::new();
    trial.shelf.give([dhcp("p")]);
    let engine = trial.start().await;
    trial.until_committed().await;
    sleep(Duration::from_secs(5)).await;
    let begun = Instant::now();
    trial.stop.send_replace(true);
    engine.await.unwrap().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());

    trial.stop.send_replace(false);
    let made = trial.machine.checkpoints_made();
    assert_eq!(results(&trial.run_once([dhcp("p")]).await), [("p", "already")]);
    assert_eq!(trial.machine.checkpoints_made(), made, "nothing was touched again");
    assert_eq!(
        trial.stages("p"),
        ["Progressing ConfigurationProgressing", "Available SuccessfullyConfigured"]
    );
    assert_eq!(trial.message("p"), format!("successfully reconciled; {NO_LEASE}"));
}

#[tokio::test(start_paused = true)]
async fn whoever_is_killed_while_it_waits_has_not_failed_either() {
    let trial = Trial::new();
    trial.shelf.give([dhcp("p")]);
    let engine = trial.start().await;
    trial.until_committed().await;
    sleep(Duration::from_secs(5)).await;
    engine.abort();
    let _ = engine.await;
    trial.lend();
    assert_eq!(results(&trial.run_once([dhcp("p")]).await), [("p", "already")]);
    assert_eq!(
        trial.stages("p"),
        ["Progressing ConfigurationProgressing", "Available SuccessfullyConfigured"]
    );
    assert_eq!(trial.message("p"), "successfully reconciled");
}

#[tokio::test(start_paused = true)]
async fn a_probe_takes_the_change_back_when_no_address_comes() {
    let trial = Trial::new();
    let probes =
        json!([{ "name": "lease", "timeout": "20s", "lease": { "interface": "eth1", "family": "ipv4" } }]);
    let outcomes = trial.run_once([with_probes(dhcp("p"), probes)]).await;
    let expected = "probe \"lease\" (IPv4 lease of eth1) failed: no address within 20 s; last: it is up and asks; \
                    rolled back: the network is as it was before";
    assert_eq!(results(&outcomes), [("p", expected)]);
    assert_ne!(trial.interface("eth1")["ipv4"]["dhcp"], true);
}

#[tokio::test(start_paused = true)]
async fn nobody_has_to_wait() {
    let trial = Trial::new();
    trial.shelf.give([dhcp("p")]);
    let mut engine = trial.engine().await;
    engine.settings.leases = Duration::ZERO;
    let begun = Instant::now();
    assert_eq!(results(&engine.run_once().await.unwrap()), [("p", "changed")]);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(trial.message("p"), "successfully reconciled");
}
