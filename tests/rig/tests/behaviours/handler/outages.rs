//! Outages of the API server.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rig::wait;
use serde_json::json;
use tokio::time::{Instant, sleep_until};

use super::{HandlerFixture, LIMIT, SHORT_LIMIT};
use crate::standalone::{shown, with_address};

const OUTAGE: Duration = Duration::from_secs(20);
/// The longest time until a handler connects again to an API server that is back.
const RECONNECT: Duration = Duration::from_mins(1);

#[tokio::test]
async fn during_an_outage_nothing_changes_and_reports_are_kept() -> Result<()> {
    let mut fixture = HandlerFixture::new().await?;
    let _handler = fixture.handler().await?;
    fixture.apply_bridge().await?;
    fixture.until_quiet().await?;
    let monitor = fixture.monitor().await?;
    let before = fixture.node.snapshot().await?;
    let versions = fixture.versions("bridge").await?;

    fixture.api.crash();
    sleep_until(Instant::now() + OUTAGE).await;
    assert_eq!(monitor.messages(), "", "the network was changed");
    assert_eq!(fixture.node.snapshot().await?, before);
    fixture.check_monitor(&monitor).await?;
    fixture.api.start_again().await?;

    let back = Instant::now();
    fixture.until_reported("10.97.0.99", RECONNECT).await?;
    println!("outage of {OUTAGE:?}: report delivered {:?} after its end", back.elapsed());
    assert_eq!(fixture.versions("bridge").await?[0], versions[0], "the status of the order was written");
    Ok(())
}

#[tokio::test]
async fn an_order_in_progress_is_finished_without_the_api_server() -> Result<()> {
    let mut fixture = HandlerFixture::new().await?;
    let _handler = fixture.handler().await?;
    let before = fixture.node.snapshot().await?;
    // The probe keeps the change open until the test listens on this port.
    let probe = json!({ "probes": [{ "name": "web", "tcp": { "host": "10.99.0.1", "port": 8081 } }] });
    fixture.order("bridge", "Apply", &with_address(), &probe).await?;
    fixture.until_present("10.98.0.77", SHORT_LIMIT).await?;
    fixture.api.crash();
    let gone = Instant::now();
    let _web = fixture.lab.network().listen("10.99.0.1:8081".parse()?).await?;
    // The change stays open as long as its probes may wait for the API server, and is then rolled back as a whole.
    wait::until(OUTAGE + SHORT_LIMIT, "the end of the outage", async || {
        let now = fixture.node.snapshot().await?;
        if !now.mentions("10.98.0.77") && now != before {
            return Err(wait::Fatal(format!("neither as ordered nor as before: {now:?}")).into());
        }
        ensure!(gone.elapsed() >= OUTAGE, "not yet");
        Ok(())
    })
    .await?;
    fixture.api.start_again().await?;

    let back = Instant::now();
    let status = wait::until(RECONNECT.max(LIMIT), "the result", async || {
        let status = fixture.status("bridge").await?;
        ensure!(shown(&status).starts_with("Available"), "{status}");
        Ok(status)
    })
    .await?;
    println!("outage of {OUTAGE:?}: result delivered {:?} after its end", back.elapsed());
    assert_eq!(shown(&status), "Available SuccessfullyConfigured", "{status}");
    fixture.until_reported("10.98.0.77", RECONNECT).await?;
    ensure!(fixture.node.snapshot().await?.mentions("10.98.0.77"));
    Ok(())
}

#[tokio::test]
async fn after_a_reboot_without_the_api_server_orders_on_disk_are_applied() -> Result<()> {
    let mut fixture = HandlerFixture::new().await?;
    let handler = fixture.handler().await?;
    fixture.apply_bridge().await?;
    handler.stop().await?;
    fixture.api.crash();
    // As after a reboot without a disk: no profiles are left, and no interfaces except hardware.
    fixture.node.stop_network_manager().await?;
    let reset = "rm -f /etc/NetworkManager/system-connections/br1* /etc/NetworkManager/system-connections/eth1*; \
                  ip link del br1; ip addr flush dev eth1";
    fixture.node.exec(["sh", "-c", reset]).await?.success()?;
    fixture.node.start_network_manager().await?;
    ensure!(!fixture.node.snapshot().await?.mentions("10.98.0.77"), "the bridge is still there");

    let began = Instant::now();
    let _handler = fixture.handler().await?;
    fixture.until_present("10.98.0.77", Duration::from_secs(30)).await?;
    println!("without an API server: orders on disk applied after {:?}", began.elapsed());
    let status = wait::until(SHORT_LIMIT, "the order to be finished", async || {
        let status = fixture.on_disk("bridge")?["status"].clone();
        ensure!(shown(&status).starts_with("Available"), "{status}");
        Ok(status)
    })
    .await?;
    assert_eq!(shown(&status), "Available SuccessfullyConfigured", "{status}");

    let monitor = fixture.monitor().await?;
    let now = fixture.node.snapshot().await?;
    fixture.api.start_again().await?;
    wait::until(RECONNECT, "the result to be delivered", async || {
        let status = fixture.status("bridge").await?;
        ensure!(status == fixture.on_disk("bridge")?["status"], "{status}");
        Ok(())
    })
    .await?;
    fixture.until_quiet().await.context("after the API server was back")?;
    assert_eq!(monitor.messages(), "", "the network was changed");
    assert_eq!(fixture.node.snapshot().await?, now);
    fixture.check_monitor(&monitor).await
}
