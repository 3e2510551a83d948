//! A bond whose active port loses its cable.

use std::time::Duration;

use anyhow::{Result, ensure};
use rig::wait;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{LIMIT, NODE, Trial, pings::Pings};
use crate::cluster::{policy, recording::Recording};

impl Trial {
    async fn active_port(&self) -> Result<String> {
        let file = "/sys/class/net/bond0/bonding/active_slave";
        Ok(self.node.exec(["cat", file]).await?.success()?.trim().to_owned())
    }

    /// Waits until this is all that the report tells of links; how long that took.
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
async fn traffic_goes_on_and_the_report_shows_it_while_the_policy_has_nothing_to_say() -> Result<()> {
    let trial = Trial::new().await?;
    trial.handler().await?;
    let bond = json!({
        "name": "bond0", "type": "bond", "state": "up",
        "link-aggregation": {
            "mode": "active-backup", "options": {"miimon": 100, "primary": "eth1"}, "port": ["eth1", "eth2"],
        },
        "ipv4": {"enabled": true, "dhcp": false, "address": [{"ip": "10.98.0.11", "prefix-length": 24}]},
    });
    trial.apply(&policy("bond", &json!({"desiredState": {"interfaces": [bond]}}))).await?;
    trial.until_says("bond", "Available", "1/1 nodes successfully configured").await?;
    let all_is_well = json!([{"name": "bond0", "carrier": true, "activePort": "eth1"}]);
    trial.until_links_are(&all_is_well).await?;
    assert_eq!(trial.active_port().await?, "eth1");

    let pings = Pings::start(&trial.lab, "10.98.0.11")?;
    pings.more(5).await?;
    let policies = Recording::start(&trial.policies).await?;
    let enactments = Recording::start(&trial.enactments).await?;
    trial.node.nic(1).pull().await?;
    let took = trial
        .until_links_are(&json!([
            {"name": "bond0", "carrier": true, "activePort": "eth2"},
            {"name": "eth1", "carrier": false},
        ]))
        .await?;
    // How soon is measured by `bench/full_kernel.rs`, on a machine that does nothing else.
    println!("reported after {took:?}");
    assert_eq!(trial.reported("bond0").await?["state"], "up");
    assert_eq!(trial.active_port().await?, "eth2");
    let echoes = pings.more(10).await?;
    println!("{echoes:?}");
    ensure!(echoes.longest_gap < 5.0, "{echoes:?}");

    trial.node.nic(1).restore().await?;
    println!("back after {:?}", trial.until_links_are(&all_is_well).await?);
    wait::until(LIMIT, "the primary port to be active again", async || {
        let active = trial.active_port().await?;
        ensure!(active == "eth1", "{active}");
        Ok(())
    })
    .await?;
    assert!(policies.seen().is_empty(), "{:#?}", policies.seen());
    assert!(enactments.seen().is_empty(), "{:#?}", enactments.seen());
    trial.until_says("bond", "Available", "1/1 nodes successfully configured").await
}
