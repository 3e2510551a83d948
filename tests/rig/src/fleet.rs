//! Many nodes in one process: the real agent on simulated hosts, with a real API server.

use std::{collections::BTreeMap, fs, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use knmstate_agent::{
    Agent, AgentParts, EngineSettings, Health, KubeApiEndpoint, KubernetesStore, KubernetesStoreOptions,
    Ledger, PROBE_DNS_HOST, Prober,
};
use knmstate_host::Operation;
use knmstate_simulated_host::{Fault, SimulatedMachine, Strikes};
use kube::Config;
use tokio::{sync::oneshot, task::JoinHandle};

use crate::{
    ApiServer, Lab,
    concurrent_changes::{ConcurrentChanges, CountedHost},
};

/// How many nodes are created at the same time.
const CONCURRENT_NODES: usize = 16;

/// The size of a fleet, and how fast its hosts are.
#[derive(Clone, Copy, Debug)]
pub struct FleetOptions {
    /// The number of nodes.
    pub nodes: usize,
    /// The time that each host takes to apply a change.
    pub apply_time: Duration,
}

/// Simulated nodes with their handlers. Dropping it ends the handlers.
#[derive(Debug)]
pub struct Fleet {
    /// By name.
    pub nodes: BTreeMap<String, FleetNode>,
    /// Counts the machines that are changed at the same time.
    pub concurrent_changes: ConcurrentChanges,
}

/// A simulated node and its handler, which [`FleetNode::start`] starts.
#[derive(Debug)]
pub struct FleetNode {
    /// The simulated host.
    pub machine: SimulatedMachine,
    name: String,
    concurrent_changes: ConcurrentChanges,
    config: Config,
    directory: PathBuf,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    task: JoinHandle<()>,
    stop: Option<oneshot::Sender<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Fleet {
    /// Creates nodes `node000`, `node001` … that are Ready. Each has a pod of its handler in the API and a token that
    /// is bound to that pod. It does not start the handlers.
    pub async fn new(lab: &Lab, api: &ApiServer, options: FleetOptions) -> Result<Self> {
        let names = (0..options.nodes).map(|number| format!("node{number:03}"));
        Self::with_names(lab, api, names, options.apply_time).await
    }

    /// The same with these names.
    pub async fn with_names(
        lab: &Lab,
        api: &ApiServer,
        names: impl IntoIterator<Item = String>,
        apply_time: Duration,
    ) -> Result<Self> {
        let concurrent_changes = ConcurrentChanges::default();
        let nodes = stream::iter(
            names.into_iter().map(|name| FleetNode::new(lab, api, name, apply_time, &concurrent_changes)),
        )
        .buffer_unordered(CONCURRENT_NODES)
        .try_collect::<Vec<_>>()
        .await?;
        let nodes = nodes.into_iter().map(|node| (node.name.clone(), node)).collect();
        Ok(Self { nodes, concurrent_changes })
    }

    /// Starts all handlers.
    pub async fn start(&mut self) -> Result<()> {
        for node in self.nodes.values_mut() {
            node.start().await?;
        }
        Ok(())
    }

    /// Stops all handlers, and waits until they have ended.
    pub async fn stop(&mut self) {
        futures::future::join_all(self.nodes.values_mut().map(FleetNode::stop)).await;
    }
}

impl FleetNode {
    async fn new(
        lab: &Lab,
        api: &ApiServer,
        name: String,
        apply_time: Duration,
        concurrent_changes: &ConcurrentChanges,
    ) -> Result<Self> {
        api.add_ready_node(&name).await?;
        let token = api.handler_token(&name).await?;
        let config = api.config_with_token(&token).await?;
        let directory = lab.directory().join(format!("fleet/{name}"));
        fs::create_dir_all(&directory)?;
        let machine = SimulatedMachine::builder(&name).nic("eth1").nic("eth2").build()?;
        if !apply_time.is_zero() {
            machine.arm(Operation::Begin, Strikes::Always, Fault::Delay(apply_time));
        }
        Ok(Self {
            machine,
            name,
            concurrent_changes: concurrent_changes.clone(),
            config,
            directory,
            running: None,
        })
    }

    /// Starts the handler, with the files that an earlier one has left on disk. Fails if one is running.
    pub async fn start(&mut self) -> Result<()> {
        ensure!(self.running.is_none(), "the handler of {} is running", self.name);
        let host = CountedHost::new(self.machine.host(), &self.name, &self.concurrent_changes);
        let api = Arc::new(KubeApiEndpoint::new(self.config.clone(), self.name.clone()));
        let store = KubernetesStore::start(KubernetesStoreOptions {
            config: self.config.clone(),
            node: self.name.clone(),
            relationship_labels: BTreeMap::new(),
            now,
        })?;
        let agent = Agent::new(AgentParts {
            prober: Prober::new(host.clone(), Some(api), PROBE_DNS_HOST),
            host,
            store,
            ledger: Ledger::open(self.directory.join("orders"))?,
            settings: EngineSettings::new(&*self.name),
            health: Health::default(),
        })
        .await;
        let (stop, stopped) = oneshot::channel::<()>();
        let name = self.name.clone();
        let task = tokio::spawn(async move {
            let stopped = async {
                let _ = stopped.await;
            };
            if let Err(error) = agent.run(stopped).await {
                eprintln!("the handler of {name} ended: {:#}", anyhow::Error::from(error));
            }
        });
        self.running = Some(Running { task, stop: Some(stop) });
        Ok(())
    }

    /// Ends the handler at once, at any point of its work, and waits until its task has ended. The simulated host stays
    /// as it is.
    pub async fn kill(&mut self) {
        if let Some(mut running) = self.running.take() {
            running.task.abort();
            let _ = (&mut running.task).await;
        }
    }

    async fn stop(&mut self) {
        if let Some(mut running) = self.running.take() {
            let _ = running.stop.take().map(|stop| stop.send(()));
            let _ = (&mut running.task).await;
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "tests read the clock")]
fn now() -> Timestamp {
    Timestamp::now()
}
