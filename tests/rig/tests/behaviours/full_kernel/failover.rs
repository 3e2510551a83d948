//! A bond whose active port loses its cable.

use std::time::Duration;

use anyhow::{Result, ensure};
use rig::wait;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{FullKernelFixture, LIMIT, NODE, pings::Pings};
use crate::cluster::{policy, recording::WatchRecording};

impl FullKernelFixture {
    async fn active_port(&self) -> Result<String> {
        let file = "/sys/class/net/bond0/bonding/active_slave";
        Ok(self.node.exec(["cat", file]).await?.success()?.trim().to_owned())
    }

    /// Waits until the node state reports exactly these links. Returns how long that took.
    async fn until_links_are(&self, expected: &Value) -> Result<Duration> {
        let began = Instant::now();
        wait::until(LIMIT, "the links to be reported", async || {
            let status = serde_json::to_value(self.states.get(NODE).await?.status)?;
            ensure!(status["links"] == *expected, "{}", status["links"]);
            Ok(())
        })
        .await?;
        Ok(began.elapsed())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failover_keeps_traffic_and_is_reported_in_the_node_state_only() -> Result<()> {
    let fixture = FullKernelFixture::new().await?;
    fixture.handler().await?;
    let bond = json!({
        "name": "bond0", "type": "bond", "state": "up",
        "link-aggregation": {
            "mode": "active-backup", "options": {"miimon": 100, "primary": "eth1"}, "port": ["eth1", "eth2"],
        },
        "ipv4": {"enabled": true, "dhcp": false, "address": [{"ip": "10.98.0.11", "prefix-length": 24}]},
    });
    fixture.apply(&policy("bond", &json!({"desiredState": {"interfaces": [bond]}}))).await?;
    fixture.until_condition("bond", "Available", "1/1 nodes successfully configured").await?;
    let normal = json!([{"name": "bond0", "carrier": true, "activePort": "eth1"}]);
    fixture.until_links_are(&normal).await?;
    assert_eq!(fixture.active_port().await?, "eth1");

    let pings = Pings::start(&fixture.lab, "10.98.0.11")?;
    pings.more(5).await?;
    let policies = WatchRecording::start(&fixture.policies).await?;
    let enactments = WatchRecording::start(&fixture.enactments).await?;
    fixture.node.nic(1).pull().await?;
    let took = fixture
        .until_links_are(&json!([
            {"name": "bond0", "carrier": true, "activePort": "eth2"},
            {"name": "eth1", "carrier": false},
        ]))
        .await?;
    // `bench/full_kernel.rs` measures the time, on a machine that does nothing else.
    println!("reported after {took:?}");
    assert_eq!(fixture.reported("bond0").await?["state"], "up");
    assert_eq!(fixture.active_port().await?, "eth2");
    let echoes = pings.more(10).await?;
    println!("{echoes:?}");
    ensure!(echoes.longest_gap < 5.0, "{echoes:?}");

    fixture.node.nic(1).restore().await?;
    println!("back after {:?}", fixture.until_links_are(&normal).await?);
    wait::until(LIMIT, "the primary port to be active again", async || {
        let active = fixture.active_port().await?;
        ensure!(active == "eth1", "{active}");
        Ok(())
    })
    .await?;
    assert!(policies.seen().is_empty(), "{:#?}", policies.seen());
    assert!(enactments.seen().is_empty(), "{:#?}", enactments.seen());
    fixture.until_condition("bond", "Available", "1/1 nodes successfully configured").await
}
