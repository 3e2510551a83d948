//! The reporter on a machine in memory, under a clock that moves only when everybody waits.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use knmstate_core::pace::{BUCKET, PERCENT};
use knmstate_host::simulated::{Fault, SimulatedMachine, Strikes};
use serde_json::{Value, json};
use tokio::{sync::oneshot, task::JoinHandle, time::sleep};

use super::*;
use crate::stores::shelf::Shelf;

/// Long enough for whatever should happen at once.
const SOON: Duration = Duration::from_millis(200);

/// A running reporter and everything around it.
struct Trial {
    machine: SimulatedMachine,
    shelf: Shelf,
    steady: Steady,
    observed: Observed,
    readings: Arc<AtomicU32>,
    stop: Option<oneshot::Sender<()>>,
    running: JoinHandle<()>,
}

impl Trial {
    /// Started, each reading costing `cost`.
    fn with_cost(cost: Duration) -> Self {
        let machine = SimulatedMachine::builder("node-1").nic("eth0").nic("eth1").build().unwrap();
        Self::on(machine, cost)
    }

    fn on(machine: SimulatedMachine, cost: Duration) -> Self {
        let (shelf, steady) = (Shelf::default(), Steady::default());
        let looks = Arc::new(AtomicU32::new(0));
        // It is looked at before and after each reading.
        let clock = Arc::clone(&looks);
        let cpu_time = move || cost * clock.fetch_add(1, Ordering::Relaxed);
        let reporter = Reporter::new(machine.host(), shelf.clone(), steady.clone()).with_cpu_time(cpu_time);
        let observed = reporter.observed();
        let (stop, stopped) = oneshot::channel::<()>();
        let running = tokio::spawn(reporter.run(async {
            let _ = stopped.await;
        }));
        Self { machine, shelf, steady, observed, readings: looks, stop: Some(stop), running }
    }

    /// Started, and done with the first reading.
    async fn new() -> Self {
        let trial = Self::with_cost(Duration::from_millis(10));
        sleep(SOON).await;
        assert_eq!(trial.published(), 1, "the network is reported at the start");
        trial
    }

    fn change(&self, document: Value) {
        self.machine.change_behind_your_back(&NetworkState::parse(document).unwrap()).unwrap();
    }

    fn add_address(&self, last: u8) {
        let address = json!({ "ip": format!("192.0.2.{last}"), "prefix-length": 24 });
        self.change(json!({ "interfaces": [
            { "name": "eth0", "ipv4": { "enabled": true, "address": [address] } }
        ]}));
    }

    fn set_mtu(&self, mtu: u32) {
        self.change(json!({ "interfaces": [{ "name": "eth1", "mtu": mtu }] }));
    }

    fn published(&self) -> usize {
        self.shelf.published().len()
    }

    fn readings(&self) -> u32 {
        self.readings.load(Ordering::Relaxed) / 2
    }

    fn last(&self) -> (Instant, ReportedNetwork) {
        self.shelf.published().last().cloned().unwrap()
    }

    fn assert_shows_the_machine(&self) {
        assert_eq!(self.last().1.state.0, shown(self.machine.state().sections()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_is_published_once_and_soon() {
    let trial = Trial::new().await;
    let began = Instant::now();
    trial.add_address(7);
    sleep(Duration::from_secs(5)).await;
    assert_eq!((trial.published(), trial.readings()), (2, 2));
    let (when, network) = trial.last();
    assert!(when - began <= SOON, "{:?}", when - began);
    assert!(json!(network.state).to_string().contains("192.0.2.7"));
    assert_eq!((&*network.nmstate_version, &*network.network_manager_version), ("simulated", "simulated"));
    trial.assert_shows_the_machine();
    assert_eq!(trial.observed.borrow().as_deref(), Some(&trial.machine.state()), "others hear of it, too");
}

#[tokio::test(start_paused = true)]
async fn where_nothing_happens_nothing_is_read_or_published() {
    let trial = Trial::new().await;
    sleep(RESYNC.saturating_sub(Duration::from_secs(1))).await;
    assert_eq!((trial.published(), trial.readings()), (1, 1));
    sleep(Duration::from_secs(2)).await;
    assert_eq!((trial.published(), trial.readings()), (1, 2), "the slow resync reads, and finds nothing new");
}

#[tokio::test(start_paused = true)]
async fn what_is_not_shown_is_read_and_not_published() {
    let trial = Trial::new().await;
    trial.change(json!({ "interfaces": [
        { "name": "v0", "type": "veth", "state": "ignore", "veth": { "peer": "v1" } },
        { "name": "v1", "type": "veth", "state": "ignore", "veth": { "peer": "v0" } }
    ]}));
    sleep(Duration::from_secs(5)).await;
    assert_eq!((trial.published(), trial.readings()), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn what_moves_by_itself_is_read_and_not_published() {
    let trial = Trial::new().await;
    let bridge = |timer: u32| {
        json!({ "interfaces": [
            { "name": "br0", "type": "linux-bridge", "bridge": { "options": { "gc-timer": timer }, "port": [] } }
        ]})
    };
    trial.change(bridge(1));
    sleep(Duration::from_secs(5)).await;
    assert_eq!((trial.published(), trial.readings()), (2, 2));
    for timer in 2..6 {
        trial.change(bridge(timer));
        sleep(Duration::from_secs(5)).await;
    }
    assert_eq!((trial.published(), trial.readings()), (2, 6));
    let known = trial.observed.borrow().as_deref().cloned().unwrap();
    assert_eq!(known.interface("br0").unwrap()["bridge"]["options"]["gc-timer"], 5);
}

#[tokio::test(start_paused = true)]
async fn a_storm_is_read_at_its_pace_and_ends_with_the_right_state() {
    let cost = Duration::from_secs(1);
    let trial = Trial::with_cost(cost);
    sleep(SOON).await;
    let began = Instant::now();
    for number in 0..10_000 {
        trial.set_mtu(1280 + number % 7000);
        sleep(Duration::from_millis(6)).await;
    }
    let storm = began.elapsed();
    // The one at the start included.
    let most = (BUCKET + storm * PERCENT / 100).as_secs_f64() / cost.as_secs_f64() + 1.0;
    let readings = trial.readings();
    assert!((2.0..=most).contains(&f64::from(readings)), "{readings} readings, at most {most}");
    sleep(cost * 100 / PERCENT).await;
    trial.assert_shows_the_machine();
    assert!(trial.published() <= usize::try_from(trial.readings()).unwrap());
}

#[tokio::test(start_paused = true)]
async fn cheap_readings_follow_a_storm_closely() {
    let trial = Trial::with_cost(Duration::from_millis(10));
    sleep(SOON).await;
    for number in 0..3_000 {
        trial.set_mtu(1280 + number);
        sleep(Duration::from_millis(20)).await;
        if let Some(known) = trial.observed.borrow().as_deref() {
            let mtu = known.interface("eth1").unwrap()["mtu"].as_u64().unwrap();
            let behind = u64::from(1280 + number).saturating_sub(mtu);
            assert!(number < 5 || behind <= 50, "a second behind or more: {behind} changes");
        }
    }
    assert!(trial.readings() < 300, "{}", trial.readings());
}

#[tokio::test(start_paused = true)]
async fn a_lost_cable_is_told_while_a_reading_has_to_wait() {
    let trial = Trial::with_cost(Duration::from_secs(10));
    trial.change(
        json!({ "interfaces": [{ "name": "eth0", "state": "up" }, { "name": "eth1", "state": "up" }] }),
    );
    sleep(SOON).await;
    trial.steady.settled();
    sleep(SOON).await;
    let (published, readings) = (trial.published(), trial.readings());
    let without_carrier = |names: &[&str]| -> Vec<LinkState> {
        let lost = |name: &&str| LinkState { name: (*name).to_owned(), carrier: false, active_port: None };
        names.iter().map(lost).collect()
    };
    trial.machine.unplug("eth0");
    sleep(SOON).await;
    assert_eq!(trial.last().1.links, without_carrier(&["eth0"]));
    // The next ones, too, though not each at once; and what is as told is not told again.
    trial.machine.unplug("eth1");
    sleep(LOOK_AGAIN + SOON).await;
    assert_eq!(trial.last().1.links, without_carrier(&["eth0", "eth1"]));
    trial.set_mtu(1400);
    sleep(LOOK_AGAIN + SOON).await;
    assert_eq!((trial.published(), trial.readings()), (published + 2, readings));

    // In the middle of a change nothing is told, and at its end everything.
    let guard = trial.steady.hold().await;
    trial.machine.plug_in("eth0");
    sleep(Duration::from_mins(1)).await;
    assert_eq!(trial.published(), published + 2);
    drop(guard);
    trial.steady.settled();
    sleep(SOON).await;
    assert_eq!((trial.published(), trial.readings()), (published + 3, readings + 1));
    assert_eq!(trial.last().1.links, without_carrier(&["eth1"]));
    trial.assert_shows_the_machine();
}

#[tokio::test(start_paused = true)]
async fn while_a_change_is_under_way_nothing_is_published_and_right_after_it_is() {
    let trial = Trial::new().await;
    let guard = trial.steady.hold().await;
    trial.add_address(7);
    sleep(Duration::from_mins(2)).await;
    assert_eq!((trial.published(), trial.readings()), (1, 1), "a half-applied state was read");
    trial.add_address(8);
    let released = Instant::now();
    drop(guard);
    trial.steady.settled();
    sleep(SOON).await;
    assert_eq!(trial.published(), 2, "only the end of it is shown");
    assert!(trial.last().0 - released < Duration::from_millis(10), "{:?}", trial.last().0 - released);
    trial.assert_shows_the_machine();
}

#[tokio::test(start_paused = true)]
async fn a_settled_change_does_not_wait_for_its_turn() {
    let trial = Trial::with_cost(Duration::from_secs(10));
    sleep(SOON).await;
    trial.add_address(7);
    sleep(Duration::from_secs(3)).await;
    assert_eq!(trial.published(), 1, "a dear reading has to wait");
    trial.steady.settled();
    sleep(Duration::from_millis(1)).await;
    assert_eq!(trial.published(), 2);
    trial.assert_shows_the_machine();
}

#[tokio::test(start_paused = true)]
async fn a_report_that_is_asked_for_is_made_even_if_nothing_changed() {
    let trial = Trial::with_cost(Duration::from_secs(10));
    sleep(SOON).await;
    for times in 2..5 {
        trial.shelf.ask_for_refresh();
        sleep(Duration::from_millis(1)).await;
        assert_eq!(trial.published(), times);
    }
    // While the turn of a change is waited for, too.
    trial.set_mtu(1400);
    sleep(Duration::from_secs(1)).await;
    trial.shelf.ask_for_refresh();
    sleep(Duration::from_millis(1)).await;
    assert_eq!(trial.published(), 5);
    trial.assert_shows_the_machine();
}

#[tokio::test(start_paused = true)]
async fn a_change_during_a_reading_leads_to_another_one() {
    let trial = Trial::new().await;
    trial.machine.arm(Operation::Observe, Strikes::Once, Fault::Delay(Duration::from_secs(5)));
    trial.add_address(7);
    sleep(Duration::from_secs(1)).await;
    trial.add_address(8);
    sleep(Duration::from_secs(30)).await;
    assert_eq!(trial.readings(), 3);
    trial.assert_shows_the_machine();
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_cannot_be_read_is_asked_ever_more_rarely_until_it_is_back() {
    let trial = Trial::new().await;
    trial.machine.stop_service();
    trial.add_address(7);
    // At 0.05, then after 1, 2, 4, 8, 16, 30, 30 … seconds.
    sleep(Duration::from_secs(100)).await;
    let readings = trial.readings();
    assert!((7..=9).contains(&readings), "{readings} attempts");
    // Changes meanwhile are no reason to try more often.
    for mtu in 1400..1500 {
        trial.set_mtu(mtu);
        sleep(Duration::from_millis(100)).await;
    }
    assert!(trial.readings() <= readings + 1);
    assert_eq!(trial.published(), 1, "what is known stays");
    let back = Instant::now();
    trial.machine.start_service();
    sleep(SOON).await;
    assert_eq!(trial.published(), 2);
    assert!(trial.last().0 - back < SOON);
    trial.assert_shows_the_machine();
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_unreadable_at_the_start_is_reported_as_soon_as_it_can_be() {
    let machine = SimulatedMachine::builder("node-1").nic("eth0").build().unwrap();
    machine.stop_service();
    let trial = Trial::on(machine, Duration::from_millis(10));
    // Asking changes nothing about it, and is not forgotten either.
    sleep(Duration::from_secs(40)).await;
    trial.shelf.ask_for_refresh();
    sleep(SOON).await;
    assert_eq!(trial.published(), 0);
    trial.machine.start_service();
    sleep(SOON).await;
    assert_eq!(trial.published(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_does_not_answer_holds_up_nobody_for_long() {
    let trial = Trial::new().await;
    trial.machine.arm(Operation::Observe, Strikes::Once, Fault::Hang);
    trial.add_address(7);
    sleep(SOON).await;
    let began = Instant::now();
    drop(trial.steady.hold().await);
    assert!(began.elapsed() <= READING_LIMIT);
    sleep(FIRST_RETRY + SOON).await;
    trial.assert_shows_the_machine();
}

#[tokio::test(start_paused = true)]
async fn it_ends_when_told_to() {
    let mut trial = Trial::new().await;
    drop(trial.stop.take());
    timeout(SOON, &mut trial.running).await.unwrap().unwrap();
}
