//! The overlay: what a policy changes is gone with the next boot, and what is on the disk is not touched.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use rig::{Lab, NmNode, Output, binaries, process::Invocation, skip, wait};

use super::{
    LIMIT, SOON,
    documents::{plain_bridge, policy},
    given::{Forgetful as _, Given, Machine as _},
    render,
};

const DISK: &str = "/etc/NetworkManager/system-connections";

#[tokio::test]
async fn what_a_policy_changes_is_gone_with_the_next_boot() -> Result<()> {
    let lab = Lab::new().await?;
    let node = lab.nm_node("node1").start().await?;
    if !node.exec(["sh", "-c", "command -v systemd-tmpfiles"]).await?.status.success() {
        return skip("there is no systemd-tmpfiles on this machine");
    }
    let overlay = Given::of(&serde_saphyr::from_str(&render(&["overlay"], "").await?.success()?)?)?;
    node.give(&overlay).await?;
    // The kernel stacks two overlays at most, and the node's /etc is one or two already.
    let disk = format!(
        "mkdir /run/kept && cp -a {DISK}/. /run/kept && mount -t tmpfs disk {DISK} && cp -a /run/kept/. {DISK}"
    );
    node.exec(["sh", "-c", &disk]).await?.success()?;
    let on_disk = profiles(&node, DISK).await?;
    ensure!(on_disk.contains("eth0.nmconnection"), "{on_disk}");

    boot(&node, &overlay).await?;
    ensure!(node.snapshot().await?.mentions(&node.address()), "the profile on the disk is not in force");
    let policies = lab.folder().join("policies");
    fs::create_dir(&policies)?;
    fs::write(policies.join("bridge.yaml"), policy("bridge", &plain_bridge()))?;
    let once = async || -> Result<Output> {
        let program = binaries::knmstate().await?.display().to_string();
        let state = lab.folder().join("state").display().to_string();
        let call = Invocation::new([&program, "standalone", "--once", "--policies"]).args([
            policies.display().to_string(),
            "--state-dir".to_owned(),
            state,
        ]);
        node.exec_with(call, LIMIT).await
    };
    for life in 1..=2 {
        let output = once().await?;
        ensure!(output.stdout().contains("applied"), "life {life}: {}{}", output.stdout(), output.stderr());
        ensure!(node.snapshot().await?.mentions("10.97.0.1"), "life {life}");
        assert_eq!(profiles(&node, DISK).await?, on_disk, "life {life}");
        let above = profiles(&node, "/run/nm-system-connections").await?;
        ensure!(above.contains("br1.nmconnection"), "life {life}: {above}");

        node.stop_network_manager().await?;
        node.exec(["umount", "/etc/NetworkManager/systemConnectionsMerged"]).await?.success()?;
        node.exec(["sh", "-c", "rm -rf /run/nm-system-connections*"]).await?.success()?;
        node.start_network_manager().await?;
        boot(&node, &overlay).await?;
        let now = node.snapshot().await?;
        ensure!(now.mentions(&node.address()) && !now.mentions("10.97.0.1"), "life {life}: {now:?}");
    }
    Ok(())
}

/// Does what systemd does at boot, by the files and the unit of the MachineConfig.
async fn boot(node: &NmNode, overlay: &Given) -> Result<()> {
    node.stop_network_manager().await?;
    node.forget().await?;
    node.exec(["systemd-tmpfiles", "--create", "/etc/tmpfiles.d/knmstate-overlay.conf"]).await?.success()?;
    let unit = overlay.units.first().context("no unit")?;
    let value = |key: &str| {
        let line = unit.lines().find_map(|line| line.strip_prefix(&format!("{key}=")));
        line.map(str::to_owned).with_context(|| format!("no {key}"))
    };
    let (kind, options, what, folder) = (value("Type")?, value("Options")?, value("What")?, value("Where")?);
    node.exec(["mount", "-t", &kind, "-o", &options, &what, &folder]).await?.success()?;
    node.start_network_manager().await?;
    wait::until(SOON, "eth0", async || {
        ensure!(node.snapshot().await?.mentions(&node.address()), "it has no address");
        Ok(())
    })
    .await
}

async fn profiles(node: &NmNode, folder: &str) -> Result<String> {
    node.exec(["sh", "-c", &format!("cd {folder} && sha256sum *")]).await?.success()
}
