//! The engine on a simulated machine, with a paused clock.

mod disk;
mod given_up;
mod interruptions;
mod leases;
mod left_open;
mod liveness;
mod panics;

use std::{net::TcpListener, path::Path};

use knmstate_api::{
    NodeNetworkConfigurationEnactmentSpec, NodeNetworkConfigurationEnactmentStatus, Permit,
    reasons::enactment::{AVAILABLE, FAILING, PENDING, PROGRESSING},
};
use knmstate_host::{NetworkState, Operation};
use knmstate_simulated_host::{ApplyFault, Fault, SimulatedHost, SimulatedMachine, Strikes};
use serde_json::{Value, json};
use tokio::{task::JoinHandle, time::sleep};

use super::*;
use crate::{store::Order, stores::memory::MemoryStore};

const LONG: Duration = Duration::from_mins(5);

/// What a test does before an order is prepared.
pub(super) struct Hook(Box<dyn Fn(&str) + Send + Sync>);

impl Hook {
    fn new(call: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Box::new(call))
    }

    pub(super) fn call(&self, policy: &str) {
        (self.0)(policy);
    }
}

impl Default for Hook {
    fn default() -> Self {
        Self::new(|_| ())
    }
}

impl std::fmt::Debug for Hook {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Hook")
    }
}

struct Fixture {
    machine: SimulatedMachine,
    store: MemoryStore,
    change_lock: ChangeLock,
    directory: tempfile::TempDir,
    stop: watch::Sender<bool>,
    health: Health,
}

impl Fixture {
    fn new() -> Self {
        let machine = SimulatedMachine::builder("n1").nic("eth0").nic("eth1").nic("eth2").build().unwrap();
        Self {
            machine,
            store: MemoryStore::default(),
            change_lock: ChangeLock::default(),
            directory: tempfile::tempdir().unwrap(),
            stop: watch::Sender::new(false),
            health: Health::default(),
        }
    }

    async fn engine(&self) -> Engine<SimulatedHost, MemoryStore> {
        let host = self.machine.host();
        let prober = Prober::new(host.clone(), None, "example.test");
        let ledger = Ledger::open(self.ledger()).unwrap();
        let (store, settings) = (self.store.clone(), EngineSettings::new("n1"));
        let health = self.health.clone();
        let parts = AgentParts { host, store, prober, ledger, settings, health };
        Engine::new(parts, self.change_lock.clone(), self.stop.subscribe()).await
    }

    fn ledger(&self) -> std::path::PathBuf {
        self.directory.path().join("orders")
    }

    async fn start(&self) -> JoinHandle<io::Result<()>> {
        tokio::spawn(self.engine().await.run())
    }

    async fn run_once(&self, orders: impl IntoIterator<Item = Order>) -> Vec<OrderOutcome> {
        self.store.set_orders(orders);
        timeout(LONG, self.engine().await.run_once()).await.unwrap().unwrap()
    }

    fn interface(&self, name: &str) -> Value {
        self.machine.state().interface(name).cloned().map_or(Value::Null, Value::Object)
    }

    fn mtu(&self, name: &str) -> u64 {
        self.interface(name)["mtu"].as_u64().unwrap()
    }

    fn last(&self, policy: &str) -> NodeNetworkConfigurationEnactmentStatus {
        self.store.statuses().into_iter().rfind(|(other, _)| other == policy).unwrap().1
    }

    /// The statuses that were reported of an order, as `kubectl get` would have shown them.
    fn stages(&self, policy: &str) -> Vec<String> {
        let statuses = self.store.statuses().into_iter().filter(|(other, _)| other == policy);
        let mut stages: Vec<String> = statuses
            .filter_map(|(_, status)| {
                let shown = status.conditions.first_true()?;
                Some(format!("{} {}", shown.type_, shown.reason))
            })
            .collect();
        stages.dedup();
        stages
    }

    async fn until(&self, policy: &str, type_: &str) -> NodeNetworkConfigurationEnactmentStatus {
        let reported = async {
            loop {
                let status = self.store.statuses().into_iter().rfind(|(other, _)| other == policy);
                match status {
                    Some((_, status)) if status.conditions.is_true(type_) => return status,
                    _ => sleep(Duration::from_millis(10)).await,
                }
            }
        };
        timeout(LONG, reported)
            .await
            .unwrap_or_else(|_| panic!("{policy} is not {type_}: {:?}", self.stages(policy)))
    }
}

fn order(policy: &str, desired: Value) -> Order {
    let spec = NodeNetworkConfigurationEnactmentSpec {
        node_name: "n1".to_owned(),
        policy_name: policy.to_owned(),
        policy_generation: 1,
        permit: Permit::Apply,
        desired_state: serde_json::from_value(desired).unwrap(),
        ..NodeNetworkConfigurationEnactmentSpec::default()
    };
    Order { spec, status: None }
}

fn mtu(policy: &str, interface: &str, mtu: u32) -> Order {
    order(
        policy,
        json!({ "interfaces": [{ "name": interface, "type": "ethernet", "state": "up", "mtu": mtu }] }),
    )
}

fn with_probes(mut order: Order, probes: Value) -> Order {
    order.spec.probes = serde_json::from_value(probes).unwrap();
    order
}

/// A port of this machine on which no process listens.
fn closed_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A probe that fails, but could pass later.
fn failing_probe() -> Value {
    json!([{ "name": "web", "timeout": "20s", "tcp": { "host": "127.0.0.1", "port": closed_port() } }])
}

fn results(outcomes: &[OrderOutcome]) -> Vec<(&str, &str)> {
    outcomes
        .iter()
        .map(|outcome| {
            let result = match &outcome.result {
                Ok(OrderSuccess::Unchanged) => "unchanged",
                Ok(OrderSuccess::Changed { .. }) => "changed",
                Err(why) => why,
            };
            (&*outcome.policy, result)
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn an_order_is_applied_committed_and_reported() {
    let fixture = Fixture::new();
    assert_eq!(results(&fixture.run_once([mtu("p", "eth1", 1400)]).await), [("p", "changed")]);
    assert_eq!(fixture.mtu("eth1"), 1400);
    assert_eq!(
        fixture.stages("p"),
        ["Progressing ConfigurationProgressing", "Available SuccessfullyConfigured"]
    );
    sleep(LONG).await;
    assert_eq!(fixture.mtu("eth1"), 1400, "it is committed");
    let status = fixture.last("p");
    assert_eq!(status.policy_generation, 1);
    assert!(status.desired_state.is_some_and(|state| state.0.contains_key("interfaces")));
    assert!(status.timings.is_some_and(|timings| timings.apply_milliseconds.is_some()));
}

#[tokio::test(start_paused = true)]
async fn a_satisfied_order_is_reported_once_and_never_touched() {
    let fixture = Fixture::new();
    fixture.run_once([mtu("p", "eth1", 1400)]).await;
    let (made, reported) = (fixture.machine.checkpoints_made(), fixture.last("p"));
    for _ in 0..20 {
        assert_eq!(results(&fixture.run_once([mtu("p", "eth1", 1400)]).await), [("p", "unchanged")]);
        assert_eq!(fixture.last("p"), reported, "not even its times move");
    }
    assert_eq!(fixture.machine.checkpoints_made(), made);
}

#[tokio::test(start_paused = true)]
async fn a_failing_probe_rolls_the_change_back_until_the_retries_are_used_up() {
    let fixture = Fixture::new();
    let outcomes = fixture.run_once([with_probes(mtu("p", "eth1", 1400), failing_probe())]).await;
    let (_, why) = results(&outcomes)[0];
    assert!(
        why.contains("probe \"web\"") && why.ends_with("rolled back: the network is as it was before"),
        "{why}"
    );
    assert_eq!(fixture.mtu("eth1"), 1500);
    assert_eq!(fixture.machine.checkpoints_made(), 5);
    let status = fixture.last("p");
    assert_eq!(status.retry_count, [("1".to_owned(), 5)].into());
    assert!(status.conditions.is_true(FAILING) && !status.conditions.is_true(PROGRESSING));
    assert_eq!(status.probes.iter().filter(|probe| probe.name == "web").count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_can_never_pass_is_not_retried() {
    let fixture = Fixture::new();
    let gateway = json!([{ "name": "way-out", "policy": "Required", "builtIn": "DefaultGateway" }]);
    let began = Instant::now();
    let outcomes = fixture.run_once([with_probes(mtu("p", "eth1", 1400), gateway)]).await;
    assert!(results(&outcomes)[0].1.contains("no default route"), "{outcomes:?}");
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    assert_eq!((fixture.mtu("eth1"), fixture.machine.checkpoints_made()), (1500, 1));
}

#[tokio::test(start_paused = true)]
async fn an_invalid_order_fails_at_once_and_touches_nothing() {
    let fixture = Fixture::new();
    let outcomes = fixture
        .run_once([
            order("a", json!({ "interfaces": [{ "name": "eth1", "state": "up", "mtu": 7 }] })),
            mtu("b", "eth2", 1400),
        ])
        .await;
    let found = results(&outcomes);
    assert!(found[0].1.contains("mtu"), "{found:?}");
    assert_eq!(found[1], ("b", "changed"), "the others are applied all the same");
    assert_eq!((fixture.mtu("eth1"), fixture.mtu("eth2")), (1500, 1400));
}

#[tokio::test(start_paused = true)]
async fn several_orders_are_one_change() {
    let fixture = Fixture::new();
    let orders = [mtu("a", "eth1", 1400), mtu("b", "eth2", 1400), mtu("c", "eth0", 1400)];
    let outcomes = fixture.run_once(orders).await;
    assert_eq!(results(&outcomes), [("a", "changed"), ("b", "changed"), ("c", "changed")]);
    assert_eq!(fixture.machine.checkpoints_made(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_satisfied_order_is_not_part_of_the_change_of_others() {
    let fixture = Fixture::new();
    let orders = || [mtu("a", "eth1", 1400), mtu("b", "eth2", 1400)];
    fixture.run_once(orders()).await;
    let reported = fixture.last("a");
    let outcomes = fixture.run_once(orders().into_iter().chain([mtu("c", "eth0", 1400)])).await;
    assert_eq!(results(&outcomes), [("a", "unchanged"), ("b", "unchanged"), ("c", "changed")]);
    assert_eq!(fixture.last("a"), reported);
    assert_eq!(fixture.machine.checkpoints_made(), 2);
    let outcomes = fixture.run_once(orders()).await;
    assert_eq!(results(&outcomes), [("a", "unchanged"), ("b", "unchanged")]);
    assert_eq!(fixture.machine.checkpoints_made(), 2);
}

#[tokio::test(start_paused = true)]
async fn orders_that_fail_together_are_tried_alone_and_only_the_wrong_one_fails() {
    let fixture = Fixture::new();
    let gateway = json!([{ "name": "way-out", "policy": "Required", "builtIn": "DefaultGateway" }]);
    let outcomes =
        fixture.run_once([mtu("a", "eth1", 1400), with_probes(mtu("b", "eth2", 1400), gateway)]).await;
    let found = results(&outcomes);
    assert_eq!(found[0], ("a", "changed"));
    assert!(found[1].1.contains("way-out"), "{found:?}");
    assert_eq!((fixture.mtu("eth1"), fixture.mtu("eth2")), (1400, 1500));
}

#[tokio::test(start_paused = true)]
async fn a_capture_of_what_another_order_creates_is_resolved_once_it_exists() {
    let fixture = Fixture::new();
    let mut above = order(
        "a",
        json!({ "interfaces": [
        { "name": "{{ capture.bridge.interfaces.0.name }}", "type": "linux-bridge", "state": "up", "mtu": 1400 }
    ] }),
    );
    above.spec.capture = [("bridge".to_owned(), "interfaces.name==\"br1\"".to_owned())].into();
    let bridge = json!({ "name": "br1", "type": "linux-bridge", "state": "up", "bridge": { "port": [] } });
    let below = order("b", json!({ "interfaces": [bridge] }));
    let outcomes = fixture.run_once([above.clone(), below]).await;
    assert_eq!(results(&outcomes), [("a", "changed"), ("b", "changed")]);
    assert_eq!(fixture.mtu("br1"), 1400);

    let alone = Fixture::new().run_once([above]).await;
    assert!(results(&alone)[0].1.contains("bridge"), "without it the capture fails: {alone:?}");
}

#[tokio::test(start_paused = true)]
async fn orders_that_contradict_each_other_are_tried_one_by_one() {
    let fixture = Fixture::new();
    let outcomes = fixture.run_once([mtu("a", "eth1", 1400), mtu("b", "eth1", 1300)]).await;
    assert_eq!(results(&outcomes), [("a", "changed"), ("b", "changed")]);
    assert_eq!(fixture.mtu("eth1"), 1300, "the last one is in effect");
}

#[tokio::test(start_paused = true)]
async fn an_order_without_permit_waits_and_a_removed_one_leaves_the_ledger() {
    let fixture = Fixture::new();
    let mut waiting = mtu("p", "eth1", 1400);
    waiting.spec.permit = Permit::Wait;
    fixture.store.set_orders([waiting]);
    let running = fixture.start().await;
    fixture.until("p", PENDING).await;
    assert_eq!(fixture.mtu("eth1"), 1500);
    fixture.store.set_orders([mtu("p", "eth1", 1400)]);
    fixture.until("p", AVAILABLE).await;
    assert!(is_kept(&fixture.ledger(), "p"));
    fixture.store.set_orders([]);
    while is_kept(&fixture.ledger(), "p") {
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(fixture.mtu("eth1"), 1400, "the change stays");
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn an_order_that_cannot_be_read_leaves_the_one_before_in_force() {
    let fixture = Fixture::new();
    fixture.run_once([mtu("p", "eth1", 1400), mtu("q", "eth2", 1400)]).await;
    fixture.store.add_unreadable("p");
    // A new one for a policy without a kept order changes nothing.
    fixture.store.add_unreadable("r");
    let outcomes = fixture.run_once([]).await;
    assert_eq!(results(&outcomes), [("p", "unchanged")]);
    assert!(is_kept(&fixture.ledger(), "p") && !is_kept(&fixture.ledger(), "q"));
}

fn is_kept(ledger: &Path, policy: &str) -> bool {
    ledger.join(format!("{policy}.json")).exists()
}

#[tokio::test(start_paused = true)]
async fn secrets_stay_on_the_nodes_disk() {
    let fixture = Fixture::new();
    let desired = json!({ "interfaces": [
        { "name": "eth1", "type": "ethernet", "state": "up", "mtu": 7, "802.1x": { "password": "hush" } }
    ] });
    let outcomes = fixture.run_once([order("p", desired)]).await;
    let reported =
        serde_json::to_string(&fixture.store.statuses().iter().map(|(_, status)| status).collect::<Vec<_>>());
    assert!(!reported.unwrap().contains("hush") && !format!("{outcomes:?}").contains("hush"));
}
