//! A bond whose active port loses its cable.

use std::time::Duration;

use anyhow::{Result, ensure};
use rig::wait;
use serde_json::json;
use tokio::time::Instant;

use super::{LIMIT, Trial, pings::Pings};
use crate::cluster::{policy, recording::Recording};

impl Trial {
    async fn active_port(&self) -> Result<String> {
        let file = "/sys/class/net/bond0/bonding/active_slave";
        Ok(self.node.exec(["cat", file]).await?.success()?.trim().to_owned())
    }

    /// Waits until the report says that a port is up or down; how long that took.
    async fn until_port_is(&self, port: &str, state: &str) -> Result<Duration> {
        let began = Instant::now();
        wait::until(LIMIT, &format!("{port} to be reported {state}"), async || {
            let reported = self.reported(port).await?;
            ensure!(reported["state"] == state, "{reported}");
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
    trial.until_port_is("eth1", "up").await?;
    trial.until_port_is("bond0", "up").await?;
    assert_eq!(trial.active_port().await?, "eth1");

    let pings = Pings::start(&trial.lab, "10.98.0.11")?;
    wait::until(LIMIT, "the first echoes", async || {
        let echoes = pings.so_far()?;
        ensure!(echoes.count >= 5, "{echoes:?}");
        Ok(())
    })
    .await?;
    let policies = Recording::start(&trial.policies).await?;
    let enactments = Recording::start(&trial.enactments).await?;
    trial.node.nic(1).pull().await?;
    let took = trial.until_port_is("eth1", "down").await?;
    println!("reported after {took:?}");
    ensure!(took < Duration::from_secs(2), "reported after {took:?}");
    assert_eq!(trial.reported("bond0").await?["state"], "up");
    assert_eq!(trial.active_port().await?, "eth2");
    let counted = pings.so_far()?.count;
    wait::until(LIMIT, "ten more echoes", async || {
        let echoes = pings.so_far()?;
        ensure!(echoes.count >= counted + 10, "{echoes:?}");
        Ok(())
    })
    .await?;
    let echoes = pings.so_far()?;
    println!("{echoes:?}");
    ensure!(echoes.longest_gap < 2.0, "{echoes:?}");

    trial.node.nic(1).restore().await?;
    println!("back after {:?}", trial.until_port_is("eth1", "up").await?);
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
