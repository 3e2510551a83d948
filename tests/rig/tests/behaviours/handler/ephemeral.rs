//! A handler that keeps its changes in NetworkManager's memory.

use super::*;

const PROFILES: &str = "cd /etc/NetworkManager && find . -type f | sort | xargs sha256sum";

#[tokio::test]
async fn after_a_reboot_far_from_the_api_server_what_was_in_memory_is_made_again() -> Result<()> {
    let mut trial = Trial::new().await?;
    trial.setup = trial.setup.env("NMSTATE_PERSISTENCE", "Ephemeral");
    let disk = trial.node.exec(["sh", "-c", PROFILES]).await?.success()?;
    let handler = trial.handler().await?;
    trial.bridge().await?;
    assert_eq!(trial.node.exec(["sh", "-c", PROFILES]).await?.success()?, disk, "something is on disk");
    handler.stop().await?;
    trial.api.crash();
    trial.node.reboot().await?;
    ensure!(!trial.node.snapshot().await?.mentions("10.98.0.77"), "it was to be forgotten");

    let began = Instant::now();
    let _handler = trial.handler().await?;
    trial.has("10.98.0.77", LIMIT).await?;
    println!("no API server: what was in memory is there again after {:?}", began.elapsed());
    assert_eq!(trial.node.exec(["sh", "-c", PROFILES]).await?.success()?, disk, "something is on disk");
    Ok(())
}
