//! `knmstate standalone` while its state directory takes no writes.

use std::time::Duration;

use anyhow::{Result, ensure};
use rig::wait;
use serde_json::{Value, json};

use crate::standalone::{StandaloneFixture, shown, with_address};

/// The pause between two attempts to write is half a minute at most.
const LIMIT: Duration = Duration::from_mins(1);

#[tokio::test]
async fn policies_that_arrive_while_the_disk_is_full_are_applied_once_there_is_space() -> Result<()> {
    let fixture = StandaloneFixture::new().await?;
    fixture.limit_state_directory().await?;
    let mut agent = fixture.start(&[])?;
    fixture.policy("before", &with_address())?;
    assert_eq!(shown(&fixture.settled("before").await?), "Available SuccessfullyConfigured");

    fixture.fill_state_directory().await?;
    fixture.policy("meanwhile", &bridge("br2", "10.97.2.1"))?;
    wait::until(LIMIT, "the reason in the log", async || {
        let log = agent.log_tail(20);
        let is_logged = log.contains("orders/meanwhile.json") && log.contains("No space left");
        ensure!(is_logged, "{log}");
        Ok(())
    })
    .await?;
    fixture.policy("too", &bridge("br3", "10.97.3.1"))?;
    fixture.policy("before", &bridge("br1", "10.98.0.78"))?;
    agent.check_running()?;
    let network = fixture.node.snapshot().await?;
    ensure!(!network.mentions("10.97.") && network.mentions("10.98.0.77"), "{network:?}");

    fixture.free_state_directory().await?;
    wait::until(LIMIT, "the policies to be applied", async || {
        let network = fixture.node.snapshot().await?;
        let all = ["10.97.2.1", "10.97.3.1", "10.98.0.78"];
        ensure!(all.iter().all(|address| network.mentions(address)), "{network:?}");
        Ok(())
    })
    .await?;
    for policy in ["before", "meanwhile", "too"] {
        let status = fixture.settled(policy).await?;
        assert_eq!(shown(&status), "Available SuccessfullyConfigured", "{policy}: {status}");
        ensure!(status["retryCount"].is_null(), "{policy}: waiting is no failure: {status}");
    }
    fixture.policy("after", &bridge("br4", "10.97.4.1"))?;
    assert_eq!(shown(&fixture.settled("after").await?), "Available SuccessfullyConfigured");
    agent.check_running()
}

#[tokio::test]
async fn a_single_run_with_a_full_disk_fails_with_the_reason_and_changes_nothing() -> Result<()> {
    let fixture = StandaloneFixture::new().await?;
    fixture.limit_state_directory().await?;
    // Creates what it needs besides the orders.
    ensure!(fixture.once_with(&[]).await?.status.success());
    let before = fixture.node.snapshot().await?;
    fixture.fill_state_directory().await?;
    fixture.policy("p", &with_address())?;
    let output = fixture.once_with(&[]).await?;
    ensure!(output.status.code() == Some(1), "{}{}", output.stdout(), output.stderr());
    let error = output.stderr();
    ensure!(error.contains("orders/p.json") && error.contains("No space left"), "{error}");
    assert_eq!(fixture.node.snapshot().await?, before);
    Ok(())
}

fn bridge(name: &str, address: &str) -> Value {
    json!({ "interfaces": [{
        "name": name, "type": "linux-bridge", "state": "up",
        "bridge": { "options": { "stp": { "enabled": false } }, "port": [] },
        "ipv4": { "enabled": true, "dhcp": false, "address": [{ "ip": address, "prefix-length": 24 }] },
    }] })
}

impl StandaloneFixture {
    /// Gives the state directory a file system of its own, of one mebibyte.
    async fn limit_state_directory(&self) -> Result<()> {
        self.in_state_directory("mount -t tmpfs -o size=1m,mode=700 tmpfs .").await
    }

    /// Leaves no byte of it.
    async fn fill_state_directory(&self) -> Result<()> {
        self.in_state_directory("! cat /dev/zero >filler 2>/dev/null").await
    }

    async fn free_state_directory(&self) -> Result<()> {
        self.in_state_directory("rm filler").await
    }

    async fn in_state_directory(&self, command: &str) -> Result<()> {
        let script = format!("mkdir -p {0} && cd {0} && {command}", self.state.display());
        self.node.exec(["sh", "-c", &script]).await?.success()?;
        Ok(())
    }
}
