//! Plain manifests, applied by kubectl.

use anyhow::{Result, ensure};
use rig::Lab;

use super::asset;

#[tokio::test]
async fn they_are_accepted_and_change_nothing_when_applied_again() -> Result<()> {
    let lab = Lab::new().await?;
    let api = lab.api_server().start().await?;
    let manifests = asset(&lab, "knmstate.yaml")?;
    let apply = ["apply", "--validate=strict", "-f", &manifests];
    let first = api.kubectl(apply).await?.success()?;
    ensure!(first.lines().all(|line| line.ends_with(" created")), "{first}");
    let second = api.kubectl(apply).await?;
    let second = second.success()?;
    ensure!(second.lines().all(|line| line.ends_with(" unchanged")), "{second}");
    ensure!(second.lines().count() == first.lines().count(), "{second}");

    // The files with the names of kubernetes-nmstate's have the same objects.
    for file in ["nmstate.io_nmstates", "namespace", "service_account", "role", "role_binding", "operator"] {
        let path = asset(&lab, &format!("{file}.yaml"))?;
        let output = api.kubectl(["apply", "--validate=strict", "-f", &path]).await?.success()?;
        ensure!(output.lines().all(|line| line.ends_with(" unchanged")), "{output}");
    }
    for example in ["nmstate", "nodenetworkconfigurationpolicy"] {
        let example = asset(&lab, &format!("nmstate.io_v1_{example}_cr.yaml"))?;
        api.kubectl(["apply", "--validate=strict", "-f", &example]).await?.success()?;
    }
    Ok(())
}
