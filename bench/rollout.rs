//! The requests and the time of a rollout: a real API server, a real controller, and real handlers on simulated hosts.
//!
//! `cargo bench -p bench --bench rollout -- --nodes 200 --apply 300` sets the number of nodes, and the milliseconds
//! that each takes to apply a change.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use knmstate_api::NodeNetworkConfigurationPolicy as Policy;
use kube::Api;
use rig::{
    Lab, Settings, binaries,
    fleet::{Fleet, FleetOptions},
    role::RoleSetup,
    wait,
};
use serde_json::json;

const LIMIT: Duration = Duration::from_mins(10);
/// The cluster has settled when there was no write for this time.
const QUIET_TIME: Duration = Duration::from_secs(8);
/// Every idle watch receives a bookmark in this time.
const IDLE: Duration = Duration::from_mins(1);

#[tokio::main]
async fn main() -> Result<()> {
    let nodes = argument("--nodes")?.unwrap_or(200);
    let apply = Duration::from_millis(u64::try_from(argument("--apply")?.unwrap_or(300))?);
    let lab = Lab::new().await?;
    let api = lab.api_server().start().await?;
    api.install_product_objects(&Settings::default()).await?;
    let mut fleet = Fleet::new(&lab, &api, FleetOptions { nodes, apply_time: apply }).await?;
    fleet.start().await?;
    let setup = RoleSetup::controller(&lab, &api, binaries::knmstate().await?).await?;
    let _controller = setup.start("bench")?;
    let policies: Api<Policy> = Api::all(api.client());

    // Watches are renewed, and get bookmarks, even when nothing changes.
    let first = settle(&api).await?;
    let idle_since = now();
    tokio::time::sleep(IDLE).await;
    let before = api.traffic().await?;
    let idle_events_per_second =
        f64::from(u32::try_from(before.since(&first).watch_events)?) / idle_since.elapsed().as_secs_f64();
    let policy = json!({
        "apiVersion": "nmstate.io/v1", "kind": "NodeNetworkConfigurationPolicy", "metadata": {"name": "bond"},
        "spec": {"desiredState": {"interfaces": [
            {"name": "bond0", "type": "bond", "state": "up",
             "link-aggregation": {"mode": "active-backup", "port": ["eth1", "eth2"]}},
        ]}},
    });
    let began = now();
    policies.create(&kube::api::PostParams::default(), &serde_json::from_value(policy)?).await?;
    wait::until(LIMIT, "the policy to be available", async || {
        let status = policies.get("bond").await?.status;
        ensure!(status.conditions.is_true("Available"), "{:?}", status.conditions.first_true());
        Ok(())
    })
    .await
    .with_context(|| setup.logs(10))?;
    let took = began.elapsed();
    let traffic = settle(&api).await?.since(&before);
    let measured = began.elapsed();
    let each = |count: u64| -> Result<f64> {
        Ok(f64::from(u32::try_from(count)?) / f64::from(u32::try_from(nodes)?))
    };
    println!("{nodes} nodes, {} ms to apply, half of them at once:", apply.as_millis());
    println!("{:44}{:>8.1} s", "  until the policy is available", took.as_secs_f64());
    // Without the write of the policy itself.
    println!("{:44}{:>8.2}", "  writes per node", each(traffic.writes - 1)?);
    let idle_events = idle_events_per_second * measured.as_secs_f64() / f64::from(u32::try_from(nodes)?);
    println!("{:44}{:>8.2}", "  watch events per node", each(traffic.watch_events)? - idle_events);
    println!("{:44}{:>8.2}", "    not counted: those of idle watches", idle_events);
    println!("{:44}{:>8}", "  conflicts", traffic.conflicts);
    println!("{:44}{:>8}", "  lists", traffic.lists);
    fleet.stop().await;
    Ok(())
}

/// Waits until no client writes, and returns the counts of requests.
async fn settle(api: &rig::ApiServer) -> Result<rig::traffic::Traffic> {
    let mut last_change = (api.traffic().await?, now());
    wait::until(LIMIT, "the cluster to settle", async || {
        let traffic = api.traffic().await?;
        if traffic.writes != last_change.0.writes {
            last_change = (traffic, now());
        }
        ensure!(last_change.1.elapsed() >= QUIET_TIME, "{traffic:?}");
        Ok(traffic)
    })
    .await
}

fn argument(name: &str) -> Result<Option<usize>> {
    let mut arguments = std::env::args().skip_while(|argument| argument != name).skip(1);
    arguments
        .next()
        .map(|number| number.parse())
        .transpose()
        .with_context(|| format!("{name} takes a number"))
}

#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
fn now() -> Instant {
    Instant::now()
}
