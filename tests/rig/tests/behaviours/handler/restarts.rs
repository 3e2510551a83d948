//! A handler that is stopped or killed, and started again.

use std::time::Duration;

use anyhow::{Result, ensure};
use rig::wait;
use serde_json::json;
use tokio::time::Instant;

use super::{HandlerFixture, LIMIT, SHORT_LIMIT, recording::StatusRecording};
use crate::standalone::{shown, slow_probe, with_address};

#[tokio::test]
async fn restarted_with_everything_applied_it_changes_and_writes_nothing() -> Result<()> {
    let fixture = HandlerFixture::new().await?;
    let mut handler = fixture.handler().await?;
    fixture.apply_bridge().await?;
    let writes = fixture.until_quiet().await?;
    let versions = fixture.versions("bridge").await?;
    let monitor = fixture.monitor().await?;
    for _ in 0..5 {
        handler.stop().await?;
        handler = fixture.handler().await?;
    }
    // The last one has time, too, to write what it should not.
    assert_eq!(fixture.until_quiet().await?, writes, "something was written");
    assert_eq!(fixture.versions("bridge").await?, versions);
    assert_eq!(monitor.messages(), "", "the network was changed");
    fixture.check_monitor(&monitor).await
}

#[tokio::test]
async fn killed_between_apply_and_commit_the_change_is_rolled_back_and_the_order_is_retried() -> Result<()> {
    let fixture = HandlerFixture::new().await?;
    let handler = fixture.handler().await?;
    let before = fixture.node.snapshot().await?;
    let recording = StatusRecording::start(&fixture, "p").await?;
    let mut rest = slow_probe();
    rest["deadlines"] = json!({ "transaction": "8s", "probes": "7s" });
    fixture.order("p", "Apply", &with_address(), &rest).await?;
    fixture.until_present("10.98.0.77", SHORT_LIMIT).await?;
    // Dropping the handle sends SIGKILL.
    drop(handler);
    let began = Instant::now();
    fixture.node.wait_until_restored(&before, Duration::from_secs(8 + 5)).await?;
    println!("killed handler: rolled back after {:?} of 8 s", began.elapsed());

    let _handler = fixture.handler().await?;
    wait::until(SHORT_LIMIT, "the interruption to be reported", async || {
        let statuses = recording.statuses();
        let is_reported = statuses.iter().any(|status| {
            status["retryCount"]["1"] == 1 && super::message(status).contains("ended in the middle")
        });
        ensure!(is_reported, "{statuses:?}");
        Ok(())
    })
    .await?;
    // From now on the probe gets an answer.
    let _web = fixture.lab.network().listen("10.99.0.254:81".parse()?).await?;
    let status = wait::until(LIMIT, "the order to be applied", async || {
        let status = fixture.status("p").await?;
        ensure!(shown(&status).starts_with("Available"), "{status}");
        Ok(status)
    })
    .await?;
    ensure!(status["retryCount"].is_null(), "{status}");
    fixture.until_reported("10.98.0.77", SHORT_LIMIT).await
}
