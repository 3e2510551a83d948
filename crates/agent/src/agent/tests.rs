//! The agent as a whole, when a part of it ends.

use std::sync::{Arc, Mutex};

use knmstate_api::{NodeNetworkConfigurationEnactmentSpec, Permit};
use knmstate_host::{
    Abilities, Announcer, Changes, Checkpoint, Events, HostError, NetworkState, OpenCheckpoint, Plan, Topic,
    Versions,
};
use knmstate_simulated_host::{SimulatedHost, SimulatedMachine};
use serde_json::json;
use tokio::time::sleep;

use super::*;
use crate::{
    engine::EngineSettings, health::Health, ledger::Ledger, probes::Prober, store::Order,
    stores::memory::MemoryStore,
};

const LONG: Duration = Duration::from_mins(5);

/// A simulated host whose events can end.
#[derive(Clone)]
struct MortalHost {
    host: SimulatedHost,
    announcer: Arc<Mutex<Option<Announcer>>>,
}

impl Host for MortalHost {
    async fn observe(&self) -> Result<NetworkState, HostError> {
        self.host.observe().await
    }

    fn events(&self) -> Events {
        match &*self.announcer.lock().unwrap() {
            Some(announcer) => announcer.subscribe(),
            None => Announcer::new().subscribe(),
        }
    }

    async fn plan(&self, desired: &NetworkState) -> Result<Plan, HostError> {
        self.host.plan(desired).await
    }

    async fn begin(&self, desired: &NetworkState, deadline: Duration) -> Result<Checkpoint, HostError> {
        self.host.begin(desired, deadline).await
    }

    async fn leave_open(&self, checkpoint: &Checkpoint, deadline: Duration) -> Result<(), HostError> {
        self.host.leave_open(checkpoint, deadline).await
    }

    async fn commit(&self, checkpoint: &Checkpoint) -> Result<(), HostError> {
        self.host.commit(checkpoint).await
    }

    async fn roll_back(&self, checkpoint: &Checkpoint) -> Result<(), HostError> {
        self.host.roll_back(checkpoint).await
    }

    async fn open_checkpoints(&self) -> Result<Vec<OpenCheckpoint>, HostError> {
        self.host.open_checkpoints().await
    }

    async fn versions(&self) -> Versions {
        self.host.versions().await
    }

    async fn abilities(&self) -> Abilities {
        self.host.abilities().await
    }
}

struct Fixture {
    machine: SimulatedMachine,
    announcer: Arc<Mutex<Option<Announcer>>>,
    store: MemoryStore,
    health: Health,
    directory: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        Self {
            machine: SimulatedMachine::builder("n1").nic("eth1").build().unwrap(),
            announcer: Arc::new(Mutex::new(Some(Announcer::new()))),
            store: MemoryStore::default(),
            health: Health::default(),
            directory: tempfile::tempdir().unwrap(),
        }
    }

    async fn agent(&self) -> Agent<MortalHost, MemoryStore> {
        let host = MortalHost { host: self.machine.host(), announcer: self.announcer.clone() };
        Agent::new(AgentParts {
            prober: Prober::new(host.clone(), None, "example.test"),
            host,
            store: self.store.clone(),
            ledger: Ledger::open(self.directory.path()).unwrap(),
            settings: EngineSettings::new("n1"),
            health: self.health.clone(),
        })
        .await
    }

    fn mtu(&self) -> u64 {
        self.machine.state().interface("eth1").unwrap()["mtu"].as_u64().unwrap()
    }
}

/// An order whose probe keeps the change open for a while.
fn slow_order() -> Order {
    // A port on which no process listens.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let desired =
        json!({ "interfaces": [{ "name": "eth1", "type": "ethernet", "state": "up", "mtu": 1400 }] });
    let probes = json!([{ "name": "web", "timeout": "100s", "tcp": { "host": "127.0.0.1", "port": port } }]);
    let spec = NodeNetworkConfigurationEnactmentSpec {
        node_name: "n1".to_owned(),
        policy_name: "p".to_owned(),
        policy_generation: 1,
        permit: Permit::Apply,
        desired_state: serde_json::from_value(desired).unwrap(),
        probes: serde_json::from_value(probes).unwrap(),
        ..NodeNetworkConfigurationEnactmentSpec::default()
    };
    Order { spec, status: None }
}

#[tokio::test(start_paused = true)]
async fn when_asked_to_stop_it_ends_without_an_error() {
    let fixture = Fixture::new();
    fixture.store.set_orders([]);
    timeout(LONG, fixture.agent().await.run(sleep(Duration::from_mins(1)))).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn when_changes_are_no_longer_noticed_it_ends_with_an_error() {
    let fixture = Fixture::new();
    fixture.store.set_orders([]);
    let running = tokio::spawn(fixture.agent().await.run(std::future::pending()));
    fixture.announcer.lock().unwrap().as_ref().unwrap().announce(Changes::default().with(Topic::Link));
    sleep(Duration::from_mins(1)).await;
    assert!(!running.is_finished());
    drop(fixture.announcer.lock().unwrap().take());
    let error = timeout(LONG, running).await.unwrap().unwrap().unwrap_err().to_string();
    assert!(error.contains("changes of the network are no longer noticed"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn when_a_part_ends_during_a_change_the_change_is_rolled_back_first() {
    let fixture = Fixture::new();
    fixture.store.set_orders([slow_order()]);
    let running = tokio::spawn(fixture.agent().await.run(std::future::pending()));
    while fixture.mtu() != 1400 {
        sleep(Duration::from_millis(100)).await;
    }
    fixture.store.end("the writer of the results has panicked");
    let error = timeout(LAST_STEPS, running).await.unwrap().unwrap().unwrap_err().to_string();
    assert!(error.contains("the writer of the results has panicked"), "{error}");
    assert_eq!(fixture.mtu(), 1500);
}
