//! What a rollout costs the API server, and how long it takes: real controller, real API server, real handlers on
//! simulated machines.
//!
//! `cargo bench -p bench --bench rollout -- --nodes 200 --apply 300`: how many nodes, and how many milliseconds each of
//! them takes to apply a change.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use knmstate_api::NodeNetworkConfigurationPolicy as Policy;
use kube::Api;
use rig::{
    Lab, Settings, binaries,
    fleet::{Fleet, Making},
    role::RoleSetup,
    wait,
};
use serde_json::json;

const LIMIT: Duration = Duration::from_mins(10);
/// As long as this without a change, nothing follows any more.
const QUIET: Duration = Duration::from_secs(8);
/// As long as this, and every watch has been renewed.
const IDLE: Duration = Duration::from_mins(1);

#[tokio::main]
async fn main() -> Result<()> {
    let nodes = argument("--nodes")?.unwrap_or(200);
    let apply = Duration::from_millis(u64::try_from(argument("--apply")?.unwrap_or(300))?);
    let lab = Lab::new().await?;
    let api = lab.api_server().start().await?;
    api.admit_product(&Settings::default()).await?;
    let mut fleet = Fleet::new(&lab, &api, Making { nodes, apply }).await?;
    fleet.start().await?;
    let setup = RoleSetup::controller(&lab, &api, binaries::knmstate().await?).await?;
    let _controller = setup.start("bench")?;
    let policies: Api<Policy> = Api::all(api.client());

    // Watches are renewed and told of the present version although nothing happens.
    let first = quiet(&api).await?;
    let idle_since = now();
    tokio::time::sleep(IDLE).await;
    let before = api.traffic().await?;
    let told_when_idle =
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
    let traffic = quiet(&api).await?.since(&before);
    let measured = began.elapsed();
    let each = |count: u64| -> Result<f64> {
        Ok(f64::from(u32::try_from(count)?) / f64::from(u32::try_from(nodes)?))
    };
    println!("{nodes} nodes, {} ms to apply, half of them at once:", apply.as_millis());
    println!("{:44}{:>8.1} s", "  until the policy is available", took.as_secs_f64());
    // The policy itself was written by us.
    println!("{:44}{:>8.2}", "  writes per node", each(traffic.writes - 1)?);
    let of_quiet_watches = told_when_idle * measured.as_secs_f64() / f64::from(u32::try_from(nodes)?);
    println!("{:44}{:>8.2}", "  watch events per node", each(traffic.watch_events)? - of_quiet_watches);
    println!("{:44}{:>8.2}", "    not counted: those of quiet watches", of_quiet_watches);
    println!("{:44}{:>8}", "  conflicts", traffic.conflicts);
    println!("{:44}{:>8}", "  lists", traffic.lists);
    fleet.stop().await;
    Ok(())
}

/// Waits until nobody writes any more, and returns what was asked until then.
async fn quiet(api: &rig::ApiServer) -> Result<rig::traffic::Traffic> {
    let mut known = (api.traffic().await?, now());
    wait::until(LIMIT, "the API server to have nothing to do", async || {
        let traffic = api.traffic().await?;
        if traffic.writes != known.0.writes {
            known = (traffic, now());
        }
        ensure!(known.1.elapsed() >= QUIET, "{traffic:?}");
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
