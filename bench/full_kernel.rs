//! The time of a bond with a VLAN from `kubectl apply` to Available and its parts, and the delay until a node reports
//! that the active port of a bond has lost its carrier: a real API server, a controller, and a node with its own
//! kernel.
//!
//! `cargo bench --package bench --bench full_kernel -- --program knmstate` measures that program instead of building
//! one.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, ensure};
use knmstate_api::{
    NodeNetworkConfigurationEnactment as Enactment, NodeNetworkConfigurationPolicy as Policy,
    NodeNetworkState, enactment::Timings,
};
use kube::Api;
use rig::{
    ApiServer, Lab, Settings, UmlNode, binaries, handler::HandlerSetup, machine::rig_file, role::RoleSetup,
    wait,
};
use serde_json::json;
use tokio::time::Instant;

const NODE: &str = "node1";
const POLICY: &str = "bond-with-vlan";
const ROUNDS: usize = 7;
const LIMIT: Duration = Duration::from_mins(3);
/// The node has reported all earlier changes after this time.
const SETTLE_TIME: Duration = Duration::from_secs(10);

#[tokio::main]
async fn main() -> Result<()> {
    let program = match std::env::args().skip_while(|argument| argument != "--program").nth(1) {
        Some(program) => PathBuf::from(&program).canonicalize().context(program)?,
        None => binaries::knmstate_as_released().await?,
    };
    let lab = Lab::new().await?;
    let (api, node) = tokio::try_join!(lab.api_server().start(), lab.uml_node(NODE).start())?;
    api.install_product_objects(&Settings::default()).await?;
    api.add_ready_node(NODE).await?;
    let _controller = RoleSetup::controller(&lab, &api, program.clone()).await?.start("a")?;
    HandlerSetup::new(&lab, &api, NODE, program).await?.start_inside(&node).await?;
    let bench = Bench { policies: Api::all(api.client()), node, api };
    bench.apply().await?;
    bench.failover().await
}

struct Bench {
    policies: Api<Policy>,
    node: UmlNode,
    api: ApiServer,
}

impl Bench {
    async fn apply(&self) -> Result<()> {
        let mut totals = Vec::new();
        for _ in 0..ROUNDS {
            // Otherwise the report of the previous round would delay this one.
            tokio::time::sleep(SETTLE_TIME).await;
            let took = self.available("vlan/on-bond", POLICY).await?;
            let timings = self.timings().await?;
            let part = |part: Option<i64>| part.unwrap_or_default();
            let of_nmstate = part(timings.apply_milliseconds) + part(timings.conclude_milliseconds);
            let total = i64::try_from(took.as_millis())?;
            println!(
                "apply to Available {total} ms: nmstate and NetworkManager {of_nmstate} (applied {}, made permanent {}), \
                 ours {}, of which on the node: prepare {}, baseline {}, probes {}",
                part(timings.apply_milliseconds),
                part(timings.conclude_milliseconds),
                total - of_nmstate,
                part(timings.prepare_milliseconds),
                part(timings.baseline_milliseconds),
                part(timings.probe_milliseconds),
            );
            totals.push((total, total - of_nmstate));
            self.delete(POLICY).await?;
            self.available("vlan/remove-two-on-bond", "vlan-remove-two-on-bond").await?;
            self.delete("vlan-remove-two-on-bond").await?;
        }
        totals.sort_unstable();
        let (total, ours) = totals[ROUNDS / 2];
        println!("median {total} ms, of which ours {ours} ms = {} %", 100 * ours / total);
        Ok(())
    }

    async fn failover(&self) -> Result<()> {
        self.available("bond/active-backup", "bond-active-backup").await?;
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            tokio::time::sleep(SETTLE_TIME).await;
            let began = Instant::now();
            self.node.nic(1).pull().await?;
            let pulled = began.elapsed();
            self.until_active("eth2").await?;
            times.push(began.elapsed());
            println!(
                "active port reported after {:?} (the cable was pulled after {pulled:?})",
                began.elapsed()
            );
            self.node.nic(1).restore().await?;
            self.until_active("eth1").await?;
        }
        times.sort_unstable();
        println!("median {:?}", times[ROUNDS / 2]);
        Ok(())
    }

    async fn until_active(&self, port: &str) -> Result<()> {
        let states: Api<NodeNetworkState> = Api::all(self.api.client());
        wait::until(LIMIT, "the active port to be reported", async || {
            let links = serde_json::to_value(states.get(NODE).await?.status)?["links"].clone();
            let bond = links.as_array().into_iter().flatten().find(|link| link["name"] == "bond0").cloned();
            ensure!(bond.is_some_and(|bond| bond["activePort"] == json!(port)), "{links}");
            Ok(())
        })
        .await
    }

    /// Applies an example, and returns the time until its policy is Available.
    async fn available(&self, example: &str, policy: &str) -> Result<Duration> {
        let file = rig_file(&format!("../../examples/{example}.yaml")).display().to_string();
        let began = Instant::now();
        self.api.kubectl(["apply", "-f", &file]).await?.success()?;
        wait::until(LIMIT, policy, async || {
            let status = self.policies.get(policy).await?.status;
            let condition = status.conditions.first_true().context("it has no condition yet")?;
            ensure!(condition.type_ == "Available", "{}: {}", condition.type_, condition.message);
            Ok(())
        })
        .await?;
        Ok(began.elapsed())
    }

    async fn timings(&self) -> Result<Timings> {
        let enactments: Api<Enactment> = Api::all(self.api.client());
        enactments
            .get(&format!("{NODE}.{POLICY}"))
            .await?
            .status
            .timings
            .context("the enactment has no timings")
    }

    async fn delete(&self, policy: &str) -> Result<()> {
        self.api.kubectl(["delete", "nncp", policy]).await?.success()?;
        Ok(())
    }
}
