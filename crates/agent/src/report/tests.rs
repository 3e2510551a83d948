//! The reporter on a simulated machine, with a paused clock.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use knmstate_core::pace::{BUCKET, PERCENT};
use knmstate_simulated_host::{Fault, SimulatedMachine, Strikes};
use serde_json::{Value, json};
use tokio::{sync::oneshot, task::JoinHandle, time::sleep};

use super::*;
use crate::stores::memory::MemoryStore;

/// Long enough for all that should happen at once.
const SOON: Duration = Duration::from_millis(200);

/// A running reporter, its host and its store.
struct Fixture {
    machine: SimulatedMachine,
    store: MemoryStore,
    change_lock: ChangeLock,
    observed: ObservedNetwork,
    clock_readings: Arc<AtomicU32>,
    stop: Option<oneshot::Sender<()>>,
    running: JoinHandle<Result<(), HostGone>>,
}

impl Fixture {
    /// Started; each reading costs this CPU time.
    fn with_cost(cost: Duration) -> Self {
        let machine = SimulatedMachine::builder("node-1").nic("eth0").nic("eth1").build().unwrap();
        Self::on(machine, cost)
    }

    fn on(machine: SimulatedMachine, cost: Duration) -> Self {
        let (store, change_lock) = (MemoryStore::default(), ChangeLock::default());
        let clock_readings = Arc::new(AtomicU32::new(0));
        // The clock is read before and after each reading of the network.
        let clock = Arc::clone(&clock_readings);
        let cpu_time = move || cost * clock.fetch_add(1, Ordering::Relaxed);
        let reporter =
            Reporter::new(machine.host(), store.clone(), change_lock.clone()).with_cpu_time(cpu_time);
        let observed = reporter.observed();
        let (stop, stopped) = oneshot::channel::<()>();
        let running = tokio::spawn(reporter.run(async {
            let _ = stopped.await;
        }));
        Self { machine, store, change_lock, observed, clock_readings, stop: Some(stop), running }
    }

    /// Started, and done with the first reading.
    async fn new() -> Self {
        let fixture = Self::with_cost(Duration::from_millis(10));
        sleep(SOON).await;
        assert_eq!(fixture.published(), 1, "the network is reported at the start");
        fixture
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
        self.store.published().len()
    }

    fn readings(&self) -> u32 {
        self.clock_readings.load(Ordering::Relaxed) / 2
    }

    fn last(&self) -> (Instant, ReportedNetwork) {
        self.store.published().last().cloned().unwrap()
    }

    fn assert_shows_the_machine(&self) {
        assert_eq!(self.last().1.state.0, shown(self.machine.state().sections()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_is_published_once_and_soon() {
    let fixture = Fixture::new().await;
    let began = Instant::now();
    fixture.add_address(7);
    sleep(Duration::from_secs(5)).await;
    assert_eq!((fixture.published(), fixture.readings()), (2, 2));
    let (when, network) = fixture.last();
    assert!(when - began <= SOON, "{:?}", when - began);
    assert!(json!(network.state).to_string().contains("192.0.2.7"));
    assert_eq!((&*network.nmstate_version, &*network.network_manager_version), ("simulated", "simulated"));
    fixture.assert_shows_the_machine();
    assert_eq!(
        fixture.observed.borrow().as_deref(),
        Some(&fixture.machine.state()),
        "other parts of the process get it, too"
    );
}

#[tokio::test(start_paused = true)]
async fn without_events_nothing_is_read_or_published() {
    let fixture = Fixture::new().await;
    sleep(RESYNC.saturating_sub(Duration::from_secs(1))).await;
    assert_eq!((fixture.published(), fixture.readings()), (1, 1));
    sleep(Duration::from_secs(2)).await;
    assert_eq!(
        (fixture.published(), fixture.readings()),
        (1, 2),
        "the slow resync reads, and finds no change"
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_not_shown_is_read_and_not_published() {
    let fixture = Fixture::new().await;
    fixture.change(json!({ "interfaces": [
        { "name": "v0", "type": "veth", "state": "ignore", "veth": { "peer": "v1" } },
        { "name": "v1", "type": "veth", "state": "ignore", "veth": { "peer": "v0" } }
    ]}));
    sleep(Duration::from_secs(5)).await;
    assert_eq!((fixture.published(), fixture.readings()), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn what_moves_by_itself_is_read_and_not_published() {
    let fixture = Fixture::new().await;
    let bridge = |timer: u32| {
        json!({ "interfaces": [
            { "name": "br0", "type": "linux-bridge", "bridge": { "options": { "gc-timer": timer }, "port": [] } }
        ]})
    };
    fixture.change(bridge(1));
    sleep(Duration::from_secs(5)).await;
    assert_eq!((fixture.published(), fixture.readings()), (2, 2));
    for timer in 2..6 {
        fixture.change(bridge(timer));
        sleep(Duration::from_secs(5)).await;
    }
    assert_eq!((fixture.published(), fixture.readings()), (2, 6));
    let known = fixture.observed.borrow().as_deref().cloned().unwrap();
    assert_eq!(known.interface("br0").unwrap()["bridge"]["options"]["gc-timer"], 5);
}

#[tokio::test(start_paused = true)]
async fn a_storm_is_read_within_the_budget_and_ends_with_the_right_state() {
    let cost = Duration::from_secs(1);
    let fixture = Fixture::with_cost(cost);
    sleep(SOON).await;
    let began = Instant::now();
    for number in 0..10_000 {
        fixture.set_mtu(1280 + number % 7000);
        sleep(Duration::from_millis(6)).await;
    }
    let storm = began.elapsed();
    // Including the one at the start.
    let most = (BUCKET + storm * PERCENT / 100).as_secs_f64() / cost.as_secs_f64() + 1.0;
    let readings = fixture.readings();
    assert!((2.0..=most).contains(&f64::from(readings)), "{readings} readings, at most {most}");
    sleep(cost * 100 / PERCENT).await;
    fixture.assert_shows_the_machine();
    assert!(fixture.published() <= usize::try_from(fixture.readings()).unwrap());
}

#[tokio::test(start_paused = true)]
async fn cheap_readings_follow_a_storm_closely() {
    let fixture = Fixture::with_cost(Duration::from_millis(10));
    sleep(SOON).await;
    for number in 0..3_000 {
        fixture.set_mtu(1280 + number);
        sleep(Duration::from_millis(20)).await;
        if let Some(known) = fixture.observed.borrow().as_deref() {
            let mtu = known.interface("eth1").unwrap()["mtu"].as_u64().unwrap();
            let behind = u64::from(1280 + number).saturating_sub(mtu);
            assert!(number < 5 || behind <= 50, "a second behind or more: {behind} changes");
        }
    }
    assert!(fixture.readings() < 300, "{}", fixture.readings());
}

#[tokio::test(start_paused = true)]
async fn a_lost_carrier_is_reported_while_a_reading_has_to_wait() {
    let fixture = Fixture::with_cost(Duration::from_secs(10));
    fixture.change(
        json!({ "interfaces": [{ "name": "eth0", "state": "up" }, { "name": "eth1", "state": "up" }] }),
    );
    sleep(SOON).await;
    fixture.change_lock.notify_settled();
    sleep(SOON).await;
    let (published, readings) = (fixture.published(), fixture.readings());
    let without_carrier = |names: &[&str]| -> Vec<LinkState> {
        let lost = |name: &&str| LinkState { name: (*name).to_owned(), carrier: false, active_port: None };
        names.iter().map(lost).collect()
    };
    fixture.machine.unplug("eth0");
    sleep(SOON).await;
    assert_eq!(fixture.last().1.links, without_carrier(&["eth0"]));
    // The next ones, too, though not each at once; what was reported already is not reported again.
    fixture.machine.unplug("eth1");
    sleep(LINKS_PAUSE + SOON).await;
    assert_eq!(fixture.last().1.links, without_carrier(&["eth0", "eth1"]));
    fixture.set_mtu(1400);
    sleep(LINKS_PAUSE + SOON).await;
    assert_eq!((fixture.published(), fixture.readings()), (published + 2, readings));

    // During a change of the engine nothing is reported, and at its end everything.
    let guard = fixture.change_lock.lock().await;
    fixture.machine.plug_in("eth0");
    sleep(Duration::from_mins(1)).await;
    assert_eq!(fixture.published(), published + 2);
    drop(guard);
    fixture.change_lock.notify_settled();
    sleep(SOON).await;
    assert_eq!((fixture.published(), fixture.readings()), (published + 3, readings + 1));
    assert_eq!(fixture.last().1.links, without_carrier(&["eth1"]));
    fixture.assert_shows_the_machine();
}

#[tokio::test(start_paused = true)]
async fn nothing_is_published_during_a_change_and_its_result_at_once() {
    let fixture = Fixture::new().await;
    let guard = fixture.change_lock.lock().await;
    fixture.add_address(7);
    sleep(Duration::from_mins(2)).await;
    assert_eq!((fixture.published(), fixture.readings()), (1, 1), "a half-applied state was read");
    fixture.add_address(8);
    let released = Instant::now();
    drop(guard);
    fixture.change_lock.notify_settled();
    sleep(SOON).await;
    assert_eq!(fixture.published(), 2, "only its result is reported");
    assert!(fixture.last().0 - released < Duration::from_millis(10), "{:?}", fixture.last().0 - released);
    fixture.assert_shows_the_machine();
}

#[tokio::test(start_paused = true)]
async fn a_settled_change_does_not_wait_for_the_budget() {
    let fixture = Fixture::with_cost(Duration::from_secs(10));
    sleep(SOON).await;
    fixture.add_address(7);
    sleep(Duration::from_secs(3)).await;
    assert_eq!(fixture.published(), 1, "an expensive reading has to wait");
    fixture.change_lock.notify_settled();
    sleep(Duration::from_millis(1)).await;
    assert_eq!(fixture.published(), 2);
    fixture.assert_shows_the_machine();
}

#[tokio::test(start_paused = true)]
async fn a_requested_report_is_published_even_if_nothing_changed() {
    let fixture = Fixture::with_cost(Duration::from_secs(10));
    sleep(SOON).await;
    for times in 2..5 {
        fixture.store.request_refresh();
        sleep(Duration::from_millis(1)).await;
        assert_eq!(fixture.published(), times);
    }
    // Also while the reading of a change waits for the budget.
    fixture.set_mtu(1400);
    sleep(Duration::from_secs(1)).await;
    fixture.store.request_refresh();
    sleep(Duration::from_millis(1)).await;
    assert_eq!(fixture.published(), 5);
    fixture.assert_shows_the_machine();
}

#[tokio::test(start_paused = true)]
async fn a_change_during_a_reading_leads_to_another_one() {
    let fixture = Fixture::new().await;
    fixture.machine.arm(Operation::Observe, Strikes::Once, Fault::Delay(Duration::from_secs(5)));
    fixture.add_address(7);
    sleep(Duration::from_secs(1)).await;
    fixture.add_address(8);
    sleep(Duration::from_secs(30)).await;
    assert_eq!(fixture.readings(), 3);
    fixture.assert_shows_the_machine();
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_cannot_be_read_is_tried_with_growing_delays_until_it_is_back() {
    let fixture = Fixture::new().await;
    fixture.machine.stop_service();
    fixture.add_address(7);
    // At 0.05 s, then after 1, 2, 4, 8, 15, 15 … seconds, each with a jitter of up to as much again.
    sleep(Duration::from_secs(100)).await;
    let readings = fixture.readings();
    assert!((8..=11).contains(&readings), "{readings} attempts");
    // Changes are no reason to try more often.
    for mtu in 1400..1500 {
        fixture.set_mtu(mtu);
        sleep(Duration::from_millis(100)).await;
    }
    assert!(fixture.readings() <= readings + 1);
    assert_eq!(fixture.published(), 1, "the last report stays");
    let back = Instant::now();
    fixture.machine.start_service();
    sleep(SOON).await;
    assert_eq!(fixture.published(), 2);
    assert!(fixture.last().0 - back < SOON);
    fixture.assert_shows_the_machine();
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_unreadable_at_the_start_is_reported_as_soon_as_it_can_be() {
    let machine = SimulatedMachine::builder("node-1").nic("eth0").build().unwrap();
    machine.stop_service();
    let fixture = Fixture::on(machine, Duration::from_millis(10));
    // A request does not help, but is answered once the machine can be read.
    sleep(Duration::from_secs(40)).await;
    fixture.store.request_refresh();
    sleep(SOON).await;
    assert_eq!(fixture.published(), 0);
    fixture.machine.start_service();
    sleep(SOON).await;
    assert_eq!(fixture.published(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_hangs_does_not_block_changes_for_long() {
    let fixture = Fixture::new().await;
    fixture.machine.arm(Operation::Observe, Strikes::Once, Fault::Hang);
    fixture.add_address(7);
    sleep(SOON).await;
    let began = Instant::now();
    drop(fixture.change_lock.lock().await);
    assert!(began.elapsed() <= READING_LIMIT);
    // The first delay with its jitter.
    sleep(Duration::from_secs(2) + SOON).await;
    fixture.assert_shows_the_machine();
}

#[tokio::test(start_paused = true)]
async fn it_ends_at_the_request_to_stop() {
    let mut fixture = Fixture::new().await;
    drop(fixture.stop.take());
    timeout(SOON, &mut fixture.running).await.unwrap().unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_change_that_was_given_up_is_reported() {
    let fixture = Fixture::new().await;
    assert!(fixture.last().1.set_aside.is_empty());
    let host = fixture.machine.host();
    let desired = json!({ "interfaces": [{ "name": "eth1", "mtu": 1400 }] });
    let checkpoint =
        host.begin(&NetworkState::parse(desired).unwrap(), Duration::from_mins(1)).await.unwrap();
    let error = HostError::invalid(knmstate_host::Place::interface("eth1"), "there is no such interface");
    fixture.machine.arm(Operation::RollBack, Strikes::Always, Fault::Fail(error.clone()));
    while !matches!(host.roll_back(&checkpoint).await, Err(HostError::SetAside(_))) {}
    fixture.change_lock.notify_settled();
    sleep(SOON).await;
    let aside = fixture.last().1.set_aside;
    assert_eq!((&*aside[0].reason, &*aside[0].interfaces), (&*error.to_string(), &["eth1".to_owned()][..]));
}
