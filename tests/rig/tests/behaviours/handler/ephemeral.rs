//! A handler that keeps its changes in NetworkManager's memory.

use super::*;

const PROFILES: &str = "cd /etc/NetworkManager && find . -type f | sort | xargs sha256sum";

#[tokio::test]
async fn after_a_reboot_without_the_api_server_changes_in_memory_are_applied_again() -> Result<()> {
    let mut fixture = HandlerFixture::new().await?;
    fixture.setup = fixture.setup.env("NMSTATE_PERSISTENCE", "Ephemeral");
    let disk = fixture.node.exec(["sh", "-c", PROFILES]).await?.success()?;
    let handler = fixture.handler().await?;
    fixture.apply_bridge().await?;
    assert_eq!(fixture.node.exec(["sh", "-c", PROFILES]).await?.success()?, disk, "a part of it is on disk");
    handler.stop().await?;
    fixture.api.crash();
    fixture.node.reboot().await?;
    ensure!(!fixture.node.snapshot().await?.mentions("10.98.0.77"), "the bridge has survived the reboot");

    let began = Instant::now();
    let _handler = fixture.handler().await?;
    fixture.until_present("10.98.0.77", LIMIT).await?;
    println!("without an API server: changes in memory applied again after {:?}", began.elapsed());
    assert_eq!(fixture.node.exec(["sh", "-c", PROFILES]).await?.success()?, disk, "a part of it is on disk");
    Ok(())
}
