//! What the handler of a node costs, and how soon it reports: a real API server, a real NetworkManager, ten interfaces
//! and one order that is carried out.
//!
//! `cargo bench --package bench --bench agent -- --idle 300` looks for five minutes at a handler with nothing to do
//! instead of one; `--program knmstate` measures that one instead of building it.

mod ears;
mod leaves;

use std::{
    fs::read_to_string,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use knmstate_api::{NodeNetworkConfigurationEnactment as Enactment, NodeNetworkState, names};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use rig::{
    ApiServer, Lab, NmNode, Settings, binaries,
    handler::{Handler, HandlerSetup},
    wait,
};
use serde_json::{Value, json};

use self::{ears::Ears, leaves::difference};

const NODE: &str = "node1";
const IDLE: Duration = Duration::from_mins(1);
/// How long after a change the handler and NetworkManager have surely nothing left to do: the spanning tree of a bridge
/// listens and learns for half a minute before it lets a new port work, which is news, too.
const REST: Duration = Duration::from_secs(40);
const CHANGES: usize = 20;
const LIMIT: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> Result<()> {
    let idle = option("--idle").map(|seconds| seconds.parse()).transpose();
    let idle = idle.context("--idle takes a number of seconds")?.map_or(IDLE, Duration::from_secs);
    let program = match option("--program") {
        Some(program) => PathBuf::from(&program).canonicalize().context(program)?,
        None => binaries::knmstate_as_released().await?,
    };
    let lab = Lab::new().await?;
    lab.dns().on().await?;
    let cards = lab.nm_node(NODE).nics(8);
    let (api, node) = tokio::try_join!(lab.api_server().start(), cards.start())?;
    node.come_to_rest().await?;
    api.admit_product(&Settings::default()).await?;
    api.add_ready_node(NODE).await?;
    let setup = HandlerSetup::new(&lab, &api, NODE, program).await?;
    let began = now();
    let mut handler = setup.start(&node)?;
    handler.until_ready().await?;
    println!("{:44}{:>8.0} ms", "from its start to ready", milliseconds(began.elapsed()));

    let bench = Bench { ears: Ears::open(&lab, &node)?, api, node, handler };
    bench.order().await?;
    bench.idle(idle).await?;
    bench.changes().await
}

struct Bench {
    // Dropped in this order: the handler before what it talks to.
    handler: Handler,
    ears: Ears,
    node: NmNode,
    api: ApiServer,
}

/// What the handler has done so far.
struct Done {
    cpu: f64,
    writes: u64,
    calls: usize,
}

impl Bench {
    /// A bridge, which is the tenth interface besides the loopback.
    async fn order(&self) -> Result<()> {
        let enactments: Api<Enactment> = Api::all(self.api.client());
        let name = names::enactment_name(NODE, "bridge");
        let order = json!({
            "apiVersion": "nmstate.io/v1beta1",
            "kind": "NodeNetworkConfigurationEnactment",
            "metadata": {"name": name, "labels": {names::NODE_LABEL: NODE, names::POLICY_LABEL: "bridge"}},
            "spec": {"nodeName": NODE, "policyName": "bridge", "policyGeneration": 1, "permit": "Apply",
                "desiredState": {"interfaces": [{
                    "name": "br1", "type": "linux-bridge", "state": "up", "bridge": {"port": [{"name": "eth1"}]},
                    "ipv4": {"enabled": true, "dhcp": false, "address": [{"ip": "10.98.0.77", "prefix-length": 24}]},
                }]}},
        });
        let began = now();
        enactments.patch(&name, &PatchParams::apply("bench"), &Patch::Apply(order)).await?;
        wait::until(LIMIT, "the order to be carried out", async || {
            let status = enactments.get(&name).await?.status;
            ensure!(status.conditions.is_true("Available"), "{:?}", status.conditions);
            Ok(())
        })
        .await?;
        println!("{:44}{:>8.0} ms", "from an order to Available", milliseconds(began.elapsed()));
        self.shows("10.98.0.77").await
    }

    async fn idle(&self, time: Duration) -> Result<()> {
        tokio::time::sleep(REST).await;
        let (before, mark, state) = (self.done().await?, self.ears.mark(), self.state().await?);
        tokio::time::sleep(time).await;
        let after = self.done().await?;
        let cpu = after.cpu - before.cpu;
        println!("nothing happens for {} s:", time.as_secs());
        println!("{:44}{:>8.0} ms = {:.3} % of a core", "  CPU", cpu * 1e3, cpu / time.as_secs_f64() * 100.0);
        println!("{:44}{:>8}", "  writes to the API server", after.writes - before.writes);
        println!("{:44}{:>8}", "  calls of NetworkManager", after.calls - before.calls);
        for (title, kind) in [
            ("  resident memory", "VmRSS"),
            ("    its own", "RssAnon"),
            ("    of files, given back when memory is short", "RssFile"),
            ("  the most that it ever was", "VmHWM"),
        ] {
            println!("{title:44}{:>8.1} MB", self.memory(kind)? / 1e3);
        }
        let told = self.ears.since(mark);
        let differs = difference(&state, &self.state().await?);
        for (title, lines) in [("told in the node:", told), ("different in the node state:", differs)] {
            if !lines.is_empty() {
                println!("  {title}\n    {}", lines.join("\n    "));
            }
        }
        Ok(())
    }

    /// Addresses that come by hand, each on a node where nothing else happens.
    async fn changes(&self) -> Result<()> {
        let before = self.done().await?;
        let mut times = Vec::new();
        for number in 1..=CHANGES {
            let address = format!("10.97.0.{number}");
            let began = now();
            self.node
                .exec(["ip", "addr", "add", &format!("{address}/24"), "dev", "eth2"])
                .await?
                .success()?;
            self.shows(&format!("\"{address}\"")).await?;
            times.push(milliseconds(began.elapsed()));
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        let after = self.done().await?;
        times.sort_by(f64::total_cmp);
        println!("ip addr add, {CHANGES} times:");
        println!("{:44}{:>8.0} ms", "  in the node state, median", times[CHANGES / 2]);
        println!("{:44}{:>8.0} ms", "  in the node state, slowest", times[CHANGES - 1]);
        println!("{:44}{:>8}", "  writes to the API server", after.writes - before.writes);
        ensure!(after.calls > before.calls, "nobody asked NetworkManager: they cannot have been counted");
        Ok(())
    }

    async fn state(&self) -> Result<Value> {
        let states: Api<NodeNetworkState> = Api::all(self.api.client());
        Ok(serde_json::to_value(states.get(NODE).await?.status)?)
    }

    async fn shows(&self, text: &str) -> Result<()> {
        wait::until(LIMIT, &format!("{text} in the node state"), async || {
            ensure!(self.state().await?.to_string().contains(text), "it is not there");
            Ok(())
        })
        .await
    }

    async fn done(&self) -> Result<Done> {
        let writes = self.api.writes_of_handlers().await?;
        Ok(Done { cpu: self.cpu()?, writes, calls: self.ears.calls() })
    }

    /// Seconds of CPU time so far, of all threads there are and were.
    fn cpu(&self) -> Result<f64> {
        let stat = read_to_string(format!("/proc/{}/stat", self.handler.pid()?))?;
        // After the name, which may contain blanks: user and system time are the 12th and 13th, in hundredths.
        let (_, fields) = stat.rsplit_once(')').context("no name")?;
        let hundredths = fields.split_whitespace().skip(11).take(2).map(str::parse::<u32>);
        Ok(f64::from(hundredths.sum::<Result<u32, _>>()?) / 100.0)
    }

    /// In kB.
    fn memory(&self, kind: &str) -> Result<f64> {
        let status = read_to_string(format!("/proc/{}/status", self.handler.pid()?))?;
        let line =
            status.lines().find(|line| line.starts_with(kind)).with_context(|| format!("no {kind}"))?;
        Ok(line.split_whitespace().nth(1).unwrap_or_default().parse()?)
    }
}

/// What is typed behind a word.
fn option(name: &str) -> Option<String> {
    std::env::args().skip_while(|argument| argument != name).nth(1)
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
fn now() -> Instant {
    Instant::now()
}
