//! A handler whose state directory takes no writes for a while.

use anyhow::{Result, ensure};
use rig::wait;
use serde_json::json;

use super::{HandlerFixture, LIMIT, SHORT_LIMIT};
use crate::standalone::{shown, with_address};

#[tokio::test]
async fn while_the_disk_is_full_the_handler_is_not_ready_and_then_applies_its_orders() -> Result<()> {
    let fixture = HandlerFixture::new().await?;
    let in_state_directory = async |command: &str| {
        let directory = fixture.setup.state_directory();
        let script = format!("mkdir -p {0} && cd {0} && {command}", directory.display());
        fixture.node.exec(["sh", "-c", &script]).await?.success()
    };
    let health = async |path: &str| {
        let request = format!("GET {path} HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n");
        let script = format!("exec 3<>/dev/tcp/127.0.0.1/28088; printf '{request}' >&3; cat <&3");
        fixture.node.exec(["bash", "-c", &script]).await?.success()
    };
    in_state_directory("mount -t tmpfs -o size=1m,mode=700 tmpfs .").await?;
    let handler = fixture.handler().await?;
    ensure!(health("/readyz").await?.contains("200 OK"));

    in_state_directory("! cat /dev/zero >filler 2>/dev/null").await?;
    fixture.order("bridge", "Apply", &with_address(), &json!({})).await?;
    wait::until(SHORT_LIMIT, "the handler not to be ready", async || {
        let answer = health("/readyz").await?;
        ensure!(answer.contains("503") && answer.contains("orders/bridge.json"), "{answer}");
        Ok(())
    })
    .await?;
    ensure!(health("/healthz").await?.contains("200 OK"), "a restart would not help");
    ensure!(!fixture.node.snapshot().await?.mentions("10.98.0.77"), "{}", handler.log_tail(10));
    // It reports the network all the same.
    fixture.node.exec(["ip", "addr", "add", "10.97.0.1/24", "dev", "eth2"]).await?.success()?;
    fixture.until_reported("10.97.0.1", SHORT_LIMIT).await?;

    in_state_directory("rm filler").await?;
    fixture.until_present("10.98.0.77", LIMIT).await?;
    let status = fixture.settled("bridge").await?;
    ensure!(shown(&status) == "Available SuccessfullyConfigured", "{status}");
    ensure!(status["retryCount"].is_null(), "waiting is no failure: {status}");
    wait::until(SHORT_LIMIT, "the handler to be ready", async || {
        let answer = health("/readyz").await?;
        ensure!(answer.contains("200 OK"), "{answer}");
        Ok(())
    })
    .await
}
