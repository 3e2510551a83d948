//! A handler that ends, by itself or not, and begins anew.

use std::time::Duration;

use anyhow::{Result, ensure};
use rig::wait;
use serde_json::json;
use tokio::time::Instant;

use super::{LIMIT, SOON, Trial, recording::Recording};
use crate::standalone::{shown, slow_probe, with_address};

#[tokio::test]
async fn restarted_with_everything_applied_it_moves_and_writes_nothing() -> Result<()> {
    let trial = Trial::new().await?;
    let mut handler = trial.handler().await?;
    trial.bridge().await?;
    let writes = trial.quiet().await?;
    let versions = trial.versions("bridge").await?;
    let monitor = trial.monitor().await?;
    for _ in 0..5 {
        handler.stop().await?;
        handler = trial.handler().await?;
    }
    // The last one, too, is given time to do what it should not.
    assert_eq!(trial.quiet().await?, writes, "something was written");
    assert_eq!(trial.versions("bridge").await?, versions);
    assert_eq!(monitor.heard(), "", "the kernel was told something");
    trial.would_have_heard(&monitor).await
}

#[tokio::test]
async fn killed_between_apply_and_commit_the_node_is_as_before_and_the_order_is_tried_again() -> Result<()> {
    let trial = Trial::new().await?;
    let handler = trial.handler().await?;
    let before = trial.node.snapshot().await?;
    let recording = Recording::start(&trial, "p").await?;
    let mut rest = slow_probe();
    rest["deadlines"] = json!({ "transaction": "8s", "probes": "7s" });
    trial.order("p", "Apply", &with_address(), &rest).await?;
    trial.has("10.98.0.77", SOON).await?;
    // SIGKILL is what a handle does when it is dropped.
    drop(handler);
    let began = Instant::now();
    trial.node.is_again(&before, Duration::from_secs(8 + 5)).await?;
    println!("killed handler: as before after {:?} of 8 s", began.elapsed());

    let _handler = trial.handler().await?;
    wait::until(SOON, "the interruption to be told", async || {
        let told = recording.statuses();
        let is_told = told.iter().any(|status| {
            status["retryCount"]["1"] == 1 && super::message(status).contains("ended in the middle")
        });
        ensure!(is_told, "{told:?}");
        Ok(())
    })
    .await?;
    // Somebody listens now where the probe asks.
    let _web = trial.lab.network().listen("10.99.0.254:81".parse()?).await?;
    let status = wait::until(LIMIT, "the order to be carried out", async || {
        let status = trial.status("p").await?;
        ensure!(shown(&status).starts_with("Available"), "{status}");
        Ok(status)
    })
    .await?;
    ensure!(status["retryCount"].is_null(), "{status}");
    trial.shows("10.98.0.77", SOON).await
}
