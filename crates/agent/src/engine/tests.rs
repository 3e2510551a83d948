//! The engine on a machine in memory, under a clock that moves only when everybody waits.

mod leases;
mod left_open;

use std::{net::TcpListener, path::Path};

use knmstate_api::{
    NodeNetworkConfigurationEnactmentSpec, NodeNetworkConfigurationEnactmentStatus, Permit,
    reasons::enactment::{AVAILABLE, FAILING, PENDING, PROGRESSING},
};
use knmstate_host::{
    NetworkState, Operation,
    simulated::{ApplyFault, Fault, SimulatedHost, SimulatedMachine, Strikes},
};
use serde_json::{Value, json};
use tokio::{task::JoinHandle, time::sleep};

use super::*;
use crate::{store::Order, stores::shelf::Shelf};

const LONG: Duration = Duration::from_mins(5);

struct Trial {
    machine: SimulatedMachine,
    shelf: Shelf,
    steady: Steady,
    folder: tempfile::TempDir,
    stop: watch::Sender<bool>,
}

impl Trial {
    fn new() -> Self {
        let machine = SimulatedMachine::builder("n1").nic("eth0").nic("eth1").nic("eth2").build().unwrap();
        Self {
            machine,
            shelf: Shelf::default(),
            steady: Steady::default(),
            folder: tempfile::tempdir().unwrap(),
            stop: watch::Sender::new(false),
        }
    }

    async fn engine(&self) -> Engine<SimulatedHost, Shelf> {
        let host = self.machine.host();
        let prober = Prober::new(host.clone(), None, "example.test");
        let ledger = Ledger::open(self.ledger()).unwrap();
        let (store, settings, health) = (self.shelf.clone(), Settings::new("n1"), Health::default());
        let parts = Parts { host, store, prober, ledger, settings, health };
        Engine::new(parts, self.steady.clone(), self.stop.subscribe()).await
    }

    fn ledger(&self) -> std::path::PathBuf {
        self.folder.path().join("orders")
    }

    async fn start(&self) -> JoinHandle<io::Result<()>> {
        tokio::spawn(self.engine().await.run())
    }

    async fn run_once(&self, orders: impl IntoIterator<Item = Order>) -> Vec<Outcome> {
        self.shelf.give(orders);
        timeout(LONG, self.engine().await.run_once()).await.unwrap().unwrap()
    }

    fn interface(&self, name: &str) -> Value {
        self.machine.state().interface(name).cloned().map_or(Value::Null, Value::Object)
    }

    fn mtu(&self, name: &str) -> u64 {
        self.interface(name)["mtu"].as_u64().unwrap()
    }

    fn last(&self, policy: &str) -> NodeNetworkConfigurationEnactmentStatus {
        self.shelf.told().into_iter().rfind(|(told, _)| told == policy).unwrap().1
    }

    /// What was told of an order, as the words that `kubectl get` would have shown.
    fn stages(&self, policy: &str) -> Vec<String> {
        let told = self.shelf.told().into_iter().filter(|(told, _)| told == policy);
        let mut stages: Vec<String> = told
            .filter_map(|(_, status)| {
                let shown = status.conditions.first_true()?;
                Some(format!("{} {}", shown.type_, shown.reason))
            })
            .collect();
        stages.dedup();
        stages
    }

    async fn until(&self, policy: &str, type_: &str) -> NodeNetworkConfigurationEnactmentStatus {
        let told = async {
            loop {
                let told = self.shelf.told().into_iter().rfind(|(told, _)| told == policy);
                match told {
                    Some((_, status)) if status.conditions.is_true(type_) => return status,
                    _ => sleep(Duration::from_millis(10)).await,
                }
            }
        };
        timeout(LONG, told)
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

/// A port of this machine that nobody listens on.
fn closed_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// One that keeps failing, and may pass later.
fn failing_probe() -> Value {
    json!([{ "name": "web", "timeout": "20s", "tcp": { "host": "127.0.0.1", "port": closed_port() } }])
}

fn results(outcomes: &[Outcome]) -> Vec<(&str, &str)> {
    outcomes
        .iter()
        .map(|outcome| {
            let result = match &outcome.result {
                Ok(Achieved::Already) => "already",
                Ok(Achieved::Changed { .. }) => "changed",
                Err(why) => why,
            };
            (&*outcome.policy, result)
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn an_order_is_carried_out_committed_and_told() {
    let trial = Trial::new();
    assert_eq!(results(&trial.run_once([mtu("p", "eth1", 1400)]).await), [("p", "changed")]);
    assert_eq!(trial.mtu("eth1"), 1400);
    assert_eq!(
        trial.stages("p"),
        ["Progressing ConfigurationProgressing", "Available SuccessfullyConfigured"]
    );
    sleep(LONG).await;
    assert_eq!(trial.mtu("eth1"), 1400, "it is committed");
    let status = trial.last("p");
    assert_eq!(status.policy_generation, 1);
    assert!(status.desired_state.is_some_and(|state| state.0.contains_key("interfaces")));
    assert!(status.timings.is_some_and(|timings| timings.apply_milliseconds.is_some()));
}

#[tokio::test(start_paused = true)]
async fn what_is_so_already_is_told_once_and_never_touched() {
    let trial = Trial::new();
    trial.run_once([mtu("p", "eth1", 1400)]).await;
    let (made, said) = (trial.machine.checkpoints_made(), trial.last("p"));
    for _ in 0..20 {
        assert_eq!(results(&trial.run_once([mtu("p", "eth1", 1400)]).await), [("p", "already")]);
        assert_eq!(trial.last("p"), said, "not even its times move");
    }
    assert_eq!(trial.machine.checkpoints_made(), made);
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_fails_takes_the_change_back_and_it_is_tried_again_until_the_end() {
    let trial = Trial::new();
    let outcomes = trial.run_once([with_probes(mtu("p", "eth1", 1400), failing_probe())]).await;
    let (_, why) = results(&outcomes)[0];
    assert!(
        why.contains("probe \"web\"") && why.ends_with("rolled back: the network is as it was before"),
        "{why}"
    );
    assert_eq!(trial.mtu("eth1"), 1500);
    assert_eq!(trial.machine.checkpoints_made(), 5);
    let status = trial.last("p");
    assert_eq!(status.retry_count, [("1".to_owned(), 5)].into());
    assert!(status.conditions.is_true(FAILING) && !status.conditions.is_true(PROGRESSING));
    assert_eq!(status.probes.iter().filter(|probe| probe.name == "web").count(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_can_never_pass_is_not_tried_again() {
    let trial = Trial::new();
    let gateway = json!([{ "name": "way-out", "policy": "Required", "builtIn": "DefaultGateway" }]);
    let began = Instant::now();
    let outcomes = trial.run_once([with_probes(mtu("p", "eth1", 1400), gateway)]).await;
    assert!(results(&outcomes)[0].1.contains("no default route"), "{outcomes:?}");
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    assert_eq!((trial.mtu("eth1"), trial.machine.checkpoints_made()), (1500, 1));
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_is_said_at_once_and_touches_nothing() {
    let trial = Trial::new();
    let outcomes = trial
        .run_once([
            order("a", json!({ "interfaces": [{ "name": "eth1", "state": "up", "mtu": 7 }] })),
            mtu("b", "eth2", 1400),
        ])
        .await;
    let found = results(&outcomes);
    assert!(found[0].1.contains("mtu"), "{found:?}");
    assert_eq!(found[1], ("b", "changed"), "the others are carried out all the same");
    assert_eq!((trial.mtu("eth1"), trial.mtu("eth2")), (1500, 1400));
}

#[tokio::test(start_paused = true)]
async fn several_orders_are_one_change() {
    let trial = Trial::new();
    let orders = [mtu("a", "eth1", 1400), mtu("b", "eth2", 1400), mtu("c", "eth0", 1400)];
    let outcomes = trial.run_once(orders).await;
    assert_eq!(results(&outcomes), [("a", "changed"), ("b", "changed"), ("c", "changed")]);
    assert_eq!(trial.machine.checkpoints_made(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_as_ordered_has_no_part_in_the_change_of_others() {
    let trial = Trial::new();
    let orders = || [mtu("a", "eth1", 1400), mtu("b", "eth2", 1400)];
    trial.run_once(orders()).await;
    let said = trial.last("a");
    let outcomes = trial.run_once(orders().into_iter().chain([mtu("c", "eth0", 1400)])).await;
    assert_eq!(results(&outcomes), [("a", "already"), ("b", "already"), ("c", "changed")]);
    assert_eq!(trial.last("a"), said);
    assert_eq!(trial.machine.checkpoints_made(), 2);
    let outcomes = trial.run_once(orders()).await;
    assert_eq!(results(&outcomes), [("a", "already"), ("b", "already")]);
    assert_eq!(trial.machine.checkpoints_made(), 2);
}

#[tokio::test(start_paused = true)]
async fn together_they_fail_and_blame_falls_on_the_right_one() {
    let trial = Trial::new();
    let gateway = json!([{ "name": "way-out", "policy": "Required", "builtIn": "DefaultGateway" }]);
    let outcomes =
        trial.run_once([mtu("a", "eth1", 1400), with_probes(mtu("b", "eth2", 1400), gateway)]).await;
    let found = results(&outcomes);
    assert_eq!(found[0], ("a", "changed"));
    assert!(found[1].1.contains("way-out"), "{found:?}");
    assert_eq!((trial.mtu("eth1"), trial.mtu("eth2")), (1400, 1500));
}

#[tokio::test(start_paused = true)]
async fn a_capture_of_what_another_order_makes_is_resolved_once_it_is_there() {
    let trial = Trial::new();
    let mut above = order(
        "a",
        json!({ "interfaces": [
        { "name": "{{ capture.bridge.interfaces.0.name }}", "type": "linux-bridge", "state": "up", "mtu": 1400 }
    ] }),
    );
    above.spec.capture = [("bridge".to_owned(), "interfaces.name==\"br1\"".to_owned())].into();
    let bridge = json!({ "name": "br1", "type": "linux-bridge", "state": "up", "bridge": { "port": [] } });
    let below = order("b", json!({ "interfaces": [bridge] }));
    let outcomes = trial.run_once([above.clone(), below]).await;
    assert_eq!(results(&outcomes), [("a", "changed"), ("b", "changed")]);
    assert_eq!(trial.mtu("br1"), 1400);

    let alone = Trial::new().run_once([above]).await;
    assert!(results(&alone)[0].1.contains("bridge"), "without it, the capture is to blame: {alone:?}");
}

#[tokio::test(start_paused = true)]
async fn orders_that_contradict_each_other_are_tried_one_by_one() {
    let trial = Trial::new();
    let outcomes = trial.run_once([mtu("a", "eth1", 1400), mtu("b", "eth1", 1300)]).await;
    assert_eq!(results(&outcomes), [("a", "changed"), ("b", "changed")]);
    assert_eq!(
        trial.mtu("eth1"),
        1300,
        "the last one has its way, as with any two who contradict each other"
    );
}

#[tokio::test(start_paused = true)]
async fn a_change_that_an_earlier_life_left_open_is_rolled_back_before_anybody_reports_it() {
    let trial = Trial::new();
    let desired =
        NetworkState::parse(json!({ "interfaces": [{ "name": "eth1", "state": "up", "mtu": 1300 }] }));
    trial.machine.host().begin(&desired.unwrap(), LONG).await.unwrap();
    trial.shelf.give([]);
    let running = trial.start().await;
    let held = timeout(LONG, trial.steady.hold()).await.unwrap();
    assert_eq!(trial.mtu("eth1"), 1500, "whoever gets to look sees the network as before");
    drop(held);
    trial.stop.send_replace(true);
    running.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_service_that_dies_half_way_is_waited_for_and_then_the_order_is_carried_out() {
    let trial = Trial::new();
    trial.machine.arm_apply(Strikes::Once, ApplyFault::ServiceDies);
    trial.shelf.give([mtu("p", "eth1", 1400)]);
    let running = trial.start().await;
    let status = trial.until("p", FAILING).await;
    assert!(status.conditions.is_true(PROGRESSING), "it will be tried again");
    let mut report = std::pin::pin!(trial.steady.hold());
    assert!(
        timeout(Duration::from_mins(1), &mut report).await.is_err(),
        "nobody reports a half-applied change"
    );
    trial.machine.start_service();
    let held = timeout(LONG, report).await.unwrap();
    drop(held);
    trial.until("p", AVAILABLE).await;
    assert_eq!(trial.mtu("eth1"), 1400);
    trial.stop.send_replace(true);
    running.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_service_that_restarts_while_probes_run_gets_no_silent_commit() {
    let trial = Trial::new();
    let port = closed_port();
    let slow = json!([{ "name": "web", "timeout": "60s", "tcp": { "host": "127.0.0.1", "port": port } }]);
    trial.shelf.give([with_probes(mtu("p", "eth1", 1400), slow)]);
    let running = trial.start().await;
    while trial.mtu("eth1") != 1400 {
        sleep(Duration::from_millis(100)).await;
    }
    trial.machine.restart_service();
    // From now on the probe can pass; the change was forgotten all the same.
    let _listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
    trial.until("p", AVAILABLE).await;
    let said =
        trial.shelf.told().into_iter().filter_map(|(_, status)| status.conditions.get(FAILING).cloned());
    let said: Vec<String> = said.map(|condition| condition.message).collect();
    assert!(said.iter().any(|message| message.contains("could not be made permanent")), "{said:?}");
    assert_eq!(trial.mtu("eth1"), 1400, "the next attempt is a whole one");
    trial.stop.send_replace(true);
    running.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_apply_that_hangs_is_bounded_and_as_before() {
    let trial = Trial::new();
    trial.machine.arm(Operation::Begin, Strikes::Always, Fault::Hang);
    let outcomes = timeout(Duration::from_hours(1), async {
        trial.shelf.give([mtu("p", "eth1", 1400)]);
        trial.engine().await.run_once().await.unwrap()
    })
    .await
    .unwrap();
    assert!(results(&outcomes)[0].1.contains("not finished after"), "{outcomes:?}");
    assert_eq!(trial.mtu("eth1"), 1500);
}

#[tokio::test(start_paused = true)]
async fn told_to_stop_in_the_middle_it_rolls_back_and_tries_again_in_its_next_life() {
    let trial = Trial::new();
    trial.shelf.give([with_probes(mtu("p", "eth1", 1400), failing_probe())]);
    let running = trial.start().await;
    while trial.mtu("eth1") != 1400 {
        sleep(Duration::from_millis(100)).await;
    }
    trial.stop.send_replace(true);
    timeout(Duration::from_secs(5), running).await.unwrap().unwrap().unwrap();
    assert_eq!(trial.mtu("eth1"), 1500);

    trial.stop.send_replace(false);
    let running = trial.start().await;
    let status = trial.until("p", FAILING).await;
    let message = status.conditions.get(FAILING).unwrap().message.clone();
    assert!(message.contains("in the middle of the change"), "{message}");
    assert_eq!(status.retry_count, [("1".to_owned(), 1)].into(), "it counts as an attempt");
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn without_anybody_to_give_orders_those_on_disk_are_carried_out() {
    let trial = Trial::new();
    trial.run_once([mtu("p", "eth1", 1400)]).await;
    // A reboot: the network is as the machine has it by itself, and the API server is not there.
    let rebooted = Trial { machine: Trial::new().machine, shelf: Shelf::default(), ..trial };
    assert_eq!(rebooted.mtu("eth1"), 1500);
    let running = rebooted.start().await;
    rebooted.until("p", AVAILABLE).await;
    while rebooted.mtu("eth1") != 1400 {
        sleep(Duration::from_millis(100)).await;
    }
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn an_order_without_permit_waits_and_one_that_is_gone_is_forgotten() {
    let trial = Trial::new();
    let mut waiting = mtu("p", "eth1", 1400);
    waiting.spec.permit = Permit::Wait;
    trial.shelf.give([waiting]);
    let running = trial.start().await;
    trial.until("p", PENDING).await;
    assert_eq!(trial.mtu("eth1"), 1500);
    trial.shelf.give([mtu("p", "eth1", 1400)]);
    trial.until("p", AVAILABLE).await;
    assert!(is_kept(&trial.ledger(), "p"));
    trial.shelf.give([]);
    while is_kept(&trial.ledger(), "p") {
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(trial.mtu("eth1"), 1400, "what it made stays");
    running.abort();
}

fn is_kept(ledger: &Path, policy: &str) -> bool {
    ledger.join(format!("{policy}.json")).exists()
}

#[tokio::test(start_paused = true)]
async fn secrets_stay_on_the_nodes_disk() {
    let trial = Trial::new();
    let desired = json!({ "interfaces": [
        { "name": "eth1", "type": "ethernet", "state": "up", "mtu": 7, "802.1x": { "password": "hush" } }
    ] });
    let outcomes = trial.run_once([order("p", desired)]).await;
    let told =
        serde_json::to_string(&trial.shelf.told().iter().map(|(_, status)| status).collect::<Vec<_>>());
    assert!(!told.unwrap().contains("hush") && !format!("{outcomes:?}").contains("hush"));
}
