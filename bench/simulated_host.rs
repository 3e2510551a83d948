//! The time of a transaction on a simulated host, for growing numbers of hosts.

use std::time::{Duration, Instant};

use anyhow::Result;
use knmstate_host::{Host as _, NetworkState};
use knmstate_simulated_host::SimulatedMachine;
use serde_json::json;

const DEADLINE: Duration = Duration::from_mins(1);

#[tokio::main]
async fn main() -> Result<()> {
    println!("{:>6} {:>12} {:>16} {:>14}", "nodes", "together", "per transaction", "× first row");
    let mut unit = None;
    for nodes in [1_usize, 100, 1_000, 5_000] {
        let time = transactions(nodes).await?;
        let each = time.as_secs_f64() / f64::from(u32::try_from(nodes)?);
        let unit = *unit.get_or_insert(each);
        println!(
            "{nodes:>6} {:>10.1}ms {:>14.1}µs {:>14.2}",
            time.as_secs_f64() * 1e3,
            each * 1e6,
            each / unit
        );
    }
    Ok(())
}

/// Every node applies and commits a bond with a VLAN on top, and is read back.
async fn transactions(nodes: usize) -> Result<Duration> {
    let machines = (0..nodes)
        .map(|number| SimulatedMachine::builder(format!("node{number}")).nic("eth1").nic("eth2").build());
    let machines = machines.collect::<Result<Vec<_>, _>>()?;
    let desired = NetworkState::parse(json!({"interfaces": [
        {"name": "bond0", "type": "bond", "state": "up",
         "link-aggregation": {"mode": "active-backup", "port": ["eth1", "eth2"]}},
        {"name": "bond0.102", "type": "vlan", "state": "up", "vlan": {"base-iface": "bond0", "id": 102},
         "ipv4": {"enabled": true, "dhcp": false, "address": [{"ip": "10.102.0.11", "prefix-length": 24}]}},
    ]}))?;
    let begin = now();
    let mut running = tokio::task::JoinSet::new();
    for machine in &machines {
        let (host, desired) = (machine.host(), desired.clone());
        running.spawn(async move {
            let checkpoint = host.begin(&desired, DEADLINE).await?;
            host.commit(&checkpoint).await?;
            host.observe().await
        });
    }
    while let Some(done) = running.join_next().await {
        anyhow::ensure!(done??.interface("bond0.102").is_some(), "bond0.102 is missing");
    }
    Ok(begin.elapsed())
}

#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
fn now() -> Instant {
    Instant::now()
}
