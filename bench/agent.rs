//! What the handler of a node costs, and how soon it reports: a real API server, a real NetworkManager, ten interfaces
//! and one order that is carried out.
//!
//! `cargo bench --package bench --bench agent -- --idle 300` looks for five minutes at a handler with nothing to do
//! instead of one.

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
    ApiServer, Lab, NmNode, Settings,
    handler::{Handler, HandlerSetup},
    process::{Invocation, Process},
    wait,
};
use serde_json::json;

const NODE: &str = "node1";
const IDLE: Duration = Duration::from_mins(1);
/// How long after a change the handler and NetworkManager have surely nothing left to do.
const REST: Duration = Duration::from_secs(20);
const CHANGES: usize = 20;
const LIMIT: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> Result<()> {
    let idle = idle_time()?;
    let program = build().await?;
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

    let bench = Bench { bus: listen_to_network_manager(&lab, &node)?, api, node, handler };
    bench.order().await?;
    bench.idle(idle).await?;
    bench.changes().await
}

struct Bench {
    // Dropped in this order: the handler before what it talks to.
    handler: Handler,
    bus: Process,
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
        // So long, too, a bridge tells news of a new port.
        tokio::time::sleep(REST).await;
        let before = self.done().await?;
        tokio::time::sleep(time).await;
        let after = self.done().await?;
        let cpu = after.cpu - before.cpu;
        println!("nothing happens for {} s:", time.as_secs());
        println!("{:44}{:>8.0} ms = {:.3} % of a core", "  CPU", cpu * 1e3, cpu / time.as_secs_f64() * 100.0);
        println!("{:44}{:>8}", "  writes to the API server", after.writes - before.writes);
        println!("{:44}{:>8}", "  calls of NetworkManager", after.calls - before.calls);
        println!("{:44}{:>8.1} MB", "  resident memory", self.memory("VmRSS")? / 1e3);
        println!("{:44}{:>8.1} MB", "  the most that it ever was", self.memory("VmHWM")? / 1e3);
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

    async fn shows(&self, text: &str) -> Result<()> {
        let states: Api<NodeNetworkState> = Api::all(self.api.client());
        wait::until(LIMIT, &format!("{text} in the node state"), async || {
            let status = serde_json::to_string(&states.get(NODE).await?.status)?;
            ensure!(status.contains(text), "it is not there");
            Ok(())
        })
        .await
    }

    async fn done(&self) -> Result<Done> {
        let heard = self.bus.log_tail(usize::MAX);
        let calls = heard.lines().filter(|line| line.starts_with("method call")).count();
        Ok(Done { cpu: self.cpu()?, writes: self.api.writes_of_handlers().await?, calls })
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

/// Every question to NetworkManager is a line: each reading asks some.
fn listen_to_network_manager(lab: &Lab, node: &NmNode) -> Result<Process> {
    let calls = "type='method_call',destination='org.freedesktop.NetworkManager'";
    let monitor = Invocation::new(["dbus-monitor", "--system", calls]);
    node.enter(monitor).start("dbus-monitor", &lab.folder().join("bus.log"))
}

/// The product with its optimisations; the rig builds what it uses without them.
async fn build() -> Result<PathBuf> {
    let output = Invocation::new(["cargo", "build", "--quiet", "--release", "--message-format=json"])
        .args(["--package=knmstate", "--bin=knmstate"])
        .arg(concat!("--manifest-path=", env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml"))
        .run(Duration::from_mins(30))
        .await?
        .success()
        .context("build the product")?;
    let messages = output.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let mut programs = messages.filter_map(|message| message["executable"].as_str().map(PathBuf::from));
    programs.next_back().context("cargo built no program")
}

fn idle_time() -> Result<Duration> {
    let mut arguments = std::env::args().skip_while(|argument| argument != "--idle").skip(1);
    let seconds = arguments.next().map(|seconds| seconds.parse()).transpose();
    Ok(seconds.context("--idle takes a number of seconds")?.map_or(IDLE, Duration::from_secs))
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
fn now() -> Instant {
    Instant::now()
}
