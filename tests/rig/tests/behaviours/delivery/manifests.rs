//! Plain manifests, as kubectl takes them.

use anyhow::{Result, ensure};
use rig::Lab;

use super::deploy;

#[tokio::test]
async fn they_are_accepted_and_the_second_time_change_nothing() -> Result<()> {
    let lab = Lab::new().await?;
    let api = lab.api_server().start().await?;
    let manifests = deploy("manifests/knmstate.yaml");
    let apply = ["apply", "--validate=strict", "-f", &manifests];
    let first = api.kubectl(apply).await?.success()?;
    ensure!(first.lines().all(|line| line.ends_with(" created")), "{first}");
    let second = api.kubectl(apply).await?;
    let said = second.success()?;
    ensure!(said.lines().all(|line| line.ends_with(" unchanged")), "{said}");
    ensure!(said.lines().count() == first.lines().count(), "{said}");

    // The files of kubernetes-nmstate's names hold the same.
    for file in ["nmstate.io_nmstates", "namespace", "service_account", "role", "role_binding", "operator"] {
        let path = deploy(&format!("manifests/{file}.yaml"));
        let said = api.kubectl(["apply", "--validate=strict", "-f", &path]).await?.success()?;
        ensure!(said.lines().all(|line| line.ends_with(" unchanged")), "{said}");
    }
    let nmstate = deploy("manifests/nmstate.yaml");
    api.kubectl(["apply", "--validate=strict", "-f", &nmstate]).await?.success()?;
    Ok(())
}
