//! An API server that is gone for a while.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rig::wait;
use serde_json::json;
use tokio::time::{Instant, sleep_until};

use super::{LIMIT, SOON, Trial};
use crate::standalone::{shown, with_address};

const OUTAGE: Duration = Duration::from_secs(20);
/// How long a handler waits at most before it looks again for a server that was gone.
const RECONNECT: Duration = Duration::from_mins(1);

#[tokio::test]
async fn while_the_api_server_is_gone_nothing_changes_and_news_are_kept() -> Result<()> {
    let mut trial = Trial::new().await?;
    let _handler = trial.handler().await?;
    trial.bridge().await?;
    trial.quiet().await?;
    let monitor = trial.monitor().await?;
    let before = trial.node.snapshot().await?;
    let versions = trial.versions("bridge").await?;

    trial.api.crash();
    sleep_until(Instant::now() + OUTAGE).await;
    assert_eq!(monitor.heard(), "", "the kernel was told something");
    assert_eq!(trial.node.snapshot().await?, before);
    trial.would_have_heard(&monitor).await?;
    trial.api.start_again().await?;

    let back = Instant::now();
    trial.shows("10.97.0.99", RECONNECT).await?;
    println!("gone for {OUTAGE:?}: news delivered {:?} after it was back", back.elapsed());
    assert_eq!(trial.versions("bridge").await?[0], versions[0], "there was nothing to say of the order");
    Ok(())
}

#[tokio::test]
async fn an_order_under_way_is_brought_to_its_end_without_the_api_server() -> Result<()> {
    let mut trial = Trial::new().await?;
    let _handler = trial.handler().await?;
    let before = trial.node.snapshot().await?;
    // Kept open until somebody listens there.
    let probe = json!({ "probes": [{ "name": "web", "tcp": { "host": "10.99.0.1", "port": 8081 } }] });
    trial.order("bridge", "Apply", &with_address(), &probe).await?;
    trial.has("10.98.0.77", SOON).await?;
    trial.api.crash();
    let gone = Instant::now();
    let _web = trial.lab.network().listen("10.99.0.1:8081".parse()?).await?;
    // The change stays open as long as its probes may wait for the API server, and is taken back as a whole after that.
    wait::until(OUTAGE + SOON, "the end of the outage", async || {
        let now = trial.node.snapshot().await?;
        if !now.mentions("10.98.0.77") && now != before {
            return Err(wait::Fatal(format!("neither as ordered nor as before: {now:?}")).into());
        }
        ensure!(gone.elapsed() >= OUTAGE, "not yet");
        Ok(())
    })
    .await?;
    trial.api.start_again().await?;

    let back = Instant::now();
    let status = wait::until(RECONNECT.max(LIMIT), "the result", async || {
        let status = trial.status("bridge").await?;
        ensure!(shown(&status).starts_with("Available"), "{status}");
        Ok(status)
    })
    .await?;
    println!("gone for {OUTAGE:?}: result delivered {:?} after it was back", back.elapsed());
    assert_eq!(shown(&status), "Available SuccessfullyConfigured", "{status}");
    trial.shows("10.98.0.77", RECONNECT).await?;
    ensure!(trial.node.snapshot().await?.mentions("10.98.0.77"));
    Ok(())
}

#[tokio::test]
async fn after_a_reboot_far_from_the_api_server_orders_on_disk_are_carried_out() -> Result<()> {
    let mut trial = Trial::new().await?;
    let handler = trial.handler().await?;
    trial.bridge().await?;
    handler.stop().await?;
    trial.api.crash();
    // A machine that forgets: no profile survives, no interface but hardware.
    trial.node.stop_network_manager().await?;
    let forget = "rm -f /etc/NetworkManager/system-connections/br1* /etc/NetworkManager/system-connections/eth1*; \
                  ip link del br1; ip addr flush dev eth1";
    trial.node.exec(["sh", "-c", forget]).await?.success()?;
    trial.node.start_network_manager().await?;
    ensure!(!trial.node.snapshot().await?.mentions("10.98.0.77"), "it was to be forgotten");

    let began = Instant::now();
    let _handler = trial.handler().await?;
    trial.has("10.98.0.77", Duration::from_secs(30)).await?;
    println!("no API server: orders on disk carried out after {:?}", began.elapsed());
    let status = wait::until(SOON, "the end of the order", async || {
        let status = trial.on_disk("bridge")?["status"].clone();
        ensure!(shown(&status).starts_with("Available"), "{status}");
        Ok(status)
    })
    .await?;
    assert_eq!(shown(&status), "Available SuccessfullyConfigured", "{status}");

    let monitor = trial.monitor().await?;
    let now = trial.node.snapshot().await?;
    trial.api.start_again().await?;
    wait::until(RECONNECT, "the result to be delivered", async || {
        let told = trial.status("bridge").await?;
        ensure!(told == trial.on_disk("bridge")?["status"], "{told}");
        Ok(())
    })
    .await?;
    trial.quiet().await.context("after the API server was back")?;
    assert_eq!(monitor.heard(), "", "the kernel was told something");
    assert_eq!(trial.node.snapshot().await?, now);
    trial.would_have_heard(&monitor).await
}
