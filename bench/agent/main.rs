//! The CPU time, memory and requests of a handler, and its delays: a real API server, a real NetworkManager, ten
//! interfaces and one order that it applies.
//!
//! `cargo bench --package bench --bench agent -- --idle 300` measures the idle handler for five minutes instead of one;
//! `--program knmstate` measures that program instead of building one.

mod leaves;
mod traffic_recorder;

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

use self::{leaves::difference, traffic_recorder::TrafficRecorder};

const NODE: &str = "node1";
const IDLE: Duration = Duration::from_mins(1);
/// The handler and NetworkManager are idle again this long after a change. A new port of a bridge with spanning tree
/// changes its state for half a minute, and each change of state is reported.
const SETTLE_TIME: Duration = Duration::from_secs(40);
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
    let builder = lab.nm_node(NODE).nics(8);
    let (api, node) = tokio::try_join!(lab.api_server().start(), builder.start())?;
    node.settle().await?;
    api.install_product_objects(&Settings::default()).await?;
    api.add_ready_node(NODE).await?;
    let setup = HandlerSetup::new(&lab, &api, NODE, program).await?;
    let began = now();
    let mut handler = setup.start(&node)?;
    handler.until_ready().await?;
    println!("{:44}{:>8.0} ms", "from its start to ready", milliseconds(began.elapsed()));

    let bench = Bench { recorder: TrafficRecorder::start(&lab, &node)?, api, node, handler };
    bench.order().await?;
    bench.idle(idle).await?;
    bench.changes().await
}

struct Bench {
    // Fields drop in this order: the handler before its servers.
    handler: Handler,
    recorder: TrafficRecorder,
    node: NmNode,
    api: ApiServer,
}

/// Totals of the handler so far.
struct Totals {
    cpu: f64,
    writes: u64,
    calls: usize,
}

impl Bench {
    /// Orders a bridge, the tenth interface without the loopback.
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
        wait::until(LIMIT, "the order to be applied", async || {
            let status = enactments.get(&name).await?.status;
            ensure!(status.conditions.is_true("Available"), "{:?}", status.conditions);
            Ok(())
        })
        .await?;
        println!("{:44}{:>8.0} ms", "from an order to Available", milliseconds(began.elapsed()));
        self.wait_for_text("10.98.0.77").await
    }

    async fn idle(&self, time: Duration) -> Result<()> {
        tokio::time::sleep(SETTLE_TIME).await;
        let (before, mark, state) = (self.totals().await?, self.recorder.mark(), self.state().await?);
        tokio::time::sleep(time).await;
        let after = self.totals().await?;
        let cpu = after.cpu - before.cpu;
        println!("nothing happens for {} s:", time.as_secs());
        println!("{:44}{:>8.0} ms = {:.3} % of a core", "  CPU", cpu * 1e3, cpu / time.as_secs_f64() * 100.0);
        println!("{:44}{:>8}", "  writes to the API server", after.writes - before.writes);
        println!("{:44}{:>8}", "  calls of NetworkManager", after.calls - before.calls);
        for (title, kind) in [
            ("  resident memory", "VmRSS"),
            ("    its own", "RssAnon"),
            ("    of files, freed when memory is short", "RssFile"),
            ("  peak resident memory", "VmHWM"),
        ] {
            println!("{title:44}{:>8.1} MB", self.memory(kind)? / 1e3);
        }
        let notifications = self.recorder.since(mark);
        let differs = difference(&state, &self.state().await?);
        for (title, lines) in
            [("notifications in the node:", notifications), ("changed in the node state:", differs)]
        {
            if !lines.is_empty() {
                println!("  {title}\n    {}", lines.join("\n    "));
            }
        }
        Ok(())
    }

    /// Adds addresses by hand, one at a time, while nothing else happens on the node.
    async fn changes(&self) -> Result<()> {
        let before = self.totals().await?;
        let mut times = Vec::new();
        for number in 1..=CHANGES {
            let address = format!("10.97.0.{number}");
            let began = now();
            self.node
                .exec(["ip", "addr", "add", &format!("{address}/24"), "dev", "eth2"])
                .await?
                .success()?;
            self.wait_for_text(&format!("\"{address}\"")).await?;
            times.push(milliseconds(began.elapsed()));
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        let after = self.totals().await?;
        times.sort_by(f64::total_cmp);
        println!("ip addr add, {CHANGES} times:");
        println!("{:44}{:>8.0} ms", "  in the node state, median", times[CHANGES / 2]);
        println!("{:44}{:>8.0} ms", "  in the node state, slowest", times[CHANGES - 1]);
        println!("{:44}{:>8}", "  writes to the API server", after.writes - before.writes);
        ensure!(after.calls > before.calls, "no call of NetworkManager was counted");
        Ok(())
    }

    async fn state(&self) -> Result<Value> {
        let states: Api<NodeNetworkState> = Api::all(self.api.client());
        Ok(serde_json::to_value(states.get(NODE).await?.status)?)
    }

    async fn wait_for_text(&self, text: &str) -> Result<()> {
        wait::until(LIMIT, &format!("{text} in the node state"), async || {
            ensure!(self.state().await?.to_string().contains(text), "the node state does not have it");
            Ok(())
        })
        .await
    }

    async fn totals(&self) -> Result<Totals> {
        let writes = self.api.writes_of_handlers().await?;
        Ok(Totals { cpu: self.cpu()?, writes, calls: self.recorder.calls() })
    }

    /// CPU time in seconds, of all threads, including those that have ended.
    fn cpu(&self) -> Result<f64> {
        let stat = read_to_string(format!("/proc/{}/stat", self.handler.pid()?))?;
        // After the name, which can contain blanks, user and system time are fields 12 and 13, in hundredths of a
        // second.
        let (_, fields) = stat.rsplit_once(')').context("the stat file has no name")?;
        let hundredths = fields.split_whitespace().skip(11).take(2).map(str::parse::<u32>);
        Ok(f64::from(hundredths.sum::<Result<u32, _>>()?) / 100.0)
    }

    /// A line of the process's status file, in kB.
    fn memory(&self, kind: &str) -> Result<f64> {
        let status = read_to_string(format!("/proc/{}/status", self.handler.pid()?))?;
        let line =
            status.lines().find(|line| line.starts_with(kind)).with_context(|| format!("no {kind}"))?;
        Ok(line.split_whitespace().nth(1).unwrap_or_default().parse()?)
    }
}

/// The value of a command-line option.
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
