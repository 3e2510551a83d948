//! Many nodes in one process: the real agent on simulated machines, against a real API server.

use std::{collections::BTreeMap, fs, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use knmstate_agent::{
    agent::Agent,
    engine::{Parts, Settings},
    health::Health,
    ledger::Ledger,
    probes::{DNS_HOST, KubeDoor, Prober},
    stores::kubernetes::{KubernetesStore, Options},
};
use knmstate_host::{
    Operation,
    simulated::{Fault, SimulatedMachine, Strikes},
};
use kube::Config;
use tokio::{sync::oneshot, task::JoinHandle};

use crate::{
    ApiServer, Lab,
    overlap::{CountedHost, Overlap},
};

/// How many nodes are set up at once.
const AT_ONCE: usize = 16;

/// How the nodes of a fleet are made.
#[derive(Clone, Copy, Debug)]
pub struct Making {
    pub nodes: usize,
    /// How long it takes to apply a change, besides the microseconds of a simulation.
    pub apply: Duration,
}

/// Simulated nodes with their handlers; the handlers end when dropped.
#[derive(Debug)]
pub struct Fleet {
    pub members: BTreeMap<String, Member>,
    /// How many of the machines are changed at the same time.
    pub overlap: Overlap,
}

/// One node.
#[derive(Debug)]
pub struct Member {
    pub machine: SimulatedMachine,
    name: String,
    overlap: Overlap,
    config: Config,
    folder: PathBuf,
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
    /// Nodes `node000`, `node001` … that are Ready, with a pod each for their handler, whose token they have. Handlers
    /// are not started.
    pub async fn new(lab: &Lab, api: &ApiServer, making: Making) -> Result<Self> {
        let overlap = Overlap::default();
        let numbers = 0..making.nodes;
        let members = stream::iter(numbers.map(|number| Member::new(lab, api, number, making, &overlap)))
            .buffer_unordered(AT_ONCE)
            .try_collect::<Vec<_>>()
            .await?;
        let members = members.into_iter().map(|member| (member.name.clone(), member)).collect();
        Ok(Self { members, overlap })
    }

    pub async fn start(&mut self) -> Result<()> {
        for member in self.members.values_mut() {
            member.start().await?;
        }
        Ok(())
    }

    /// Asks all handlers to stop, and waits until they have.
    pub async fn stop(&mut self) {
        futures::future::join_all(self.members.values_mut().map(Member::stop)).await;
    }
}

impl Member {
    async fn new(
        lab: &Lab,
        api: &ApiServer,
        number: usize,
        making: Making,
        overlap: &Overlap,
    ) -> Result<Self> {
        let name = format!("node{number:03}");
        api.add_ready_node(&name).await?;
        let token = api.handler_token(&name).await?;
        let config = api.config_with_token(&token).await?;
        let folder = lab.folder().join(format!("fleet/{name}"));
        fs::create_dir_all(&folder)?;
        let machine = SimulatedMachine::builder(&name).nic("eth1").nic("eth2").build()?;
        if !making.apply.is_zero() {
            machine.arm(Operation::Begin, Strikes::Always, Fault::Delay(making.apply));
        }
        Ok(Self { machine, name, overlap: overlap.clone(), config, folder, running: None })
    }

    /// Starts the handler, with what an earlier one has left on disk.
    pub async fn start(&mut self) -> Result<()> {
        ensure!(self.running.is_none(), "{} runs", self.name);
        let host = CountedHost::new(self.machine.host(), &self.name, &self.overlap);
        let door = Arc::new(KubeDoor::new(self.config.clone(), self.name.clone()));
        let store = KubernetesStore::start(Options {
            config: self.config.clone(),
            node: self.name.clone(),
            relationship_labels: BTreeMap::new(),
            now,
        })?;
        let agent = Agent::new(Parts {
            prober: Prober::new(host.clone(), Some(door), DNS_HOST),
            host,
            store,
            ledger: Ledger::open(self.folder.join("orders"))?,
            settings: Settings::new(&*self.name),
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
                eprintln!("the handler of {name} ended: {error}");
            }
        });
        self.running = Some(Running { task, stop: Some(stop) });
        Ok(())
    }

    /// Ends the handler at once, wherever it is; its machine goes on. When this returns nothing of it is left that could
    /// get in the way of its next life.
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
