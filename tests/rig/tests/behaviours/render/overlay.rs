//! The overlay: the changes of a policy are gone after the next boot, and the disk is not changed.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use rig::{Lab, NmNode, Output, binaries, process::Invocation, skip, wait};

use super::{
    LIMIT, SHORT_LIMIT,
    documents::{plain_bridge, policy},
    ignition::{Machine as _, MachineConfigFiles, Volatile as _},
    render,
};

const DISK: &str = "/etc/NetworkManager/system-connections";

#[tokio::test]
async fn the_changes_of_a_policy_are_gone_after_the_next_boot() -> Result<()> {
    let lab = Lab::new().await?;
    let node = lab.nm_node("node1").start().await?;
    if !node.exec(["sh", "-c", "command -v systemd-tmpfiles"]).await?.status.success() {
        return skip("there is no systemd-tmpfiles on this machine");
    }
    let overlay =
        MachineConfigFiles::of(&serde_saphyr::from_str(&render(&["overlay"], "").await?.success()?)?)?;
    node.write_files(&overlay).await?;
    // The kernel stacks two overlays at most, and the node's /etc is one or two already.
    let disk = format!(
        "mkdir /run/kept && cp -a {DISK}/. /run/kept && mount -t tmpfs disk {DISK} && cp -a /run/kept/. {DISK}"
    );
    node.exec(["sh", "-c", &disk]).await?.success()?;
    let on_disk = profiles(&node, DISK).await?;
    ensure!(on_disk.contains("eth0.nmconnection"), "{on_disk}");

    boot(&node, &overlay).await?;
    ensure!(node.snapshot().await?.mentions(&node.address()), "the profile on the disk is not active");
    let policies = lab.directory().join("policies");
    fs::create_dir(&policies)?;
    fs::write(policies.join("bridge.yaml"), policy("bridge", &plain_bridge()))?;
    let once = async || -> Result<Output> {
        let program = binaries::knmstate().await?.display().to_string();
        let state = lab.directory().join("state").display().to_string();
        let call = Invocation::new([&program, "standalone", "--once", "--policies"]).args([
            policies.display().to_string(),
            "--state-dir".to_owned(),
            state,
        ]);
        node.exec_with(call, LIMIT).await
    };
    for round in 1..=2 {
        let output = once().await?;
        ensure!(output.stdout().contains("applied"), "round {round}: {}{}", output.stdout(), output.stderr());
        ensure!(node.snapshot().await?.mentions("10.97.0.1"), "round {round}");
        assert_eq!(profiles(&node, DISK).await?, on_disk, "round {round}");
        let above = profiles(&node, "/run/nm-system-connections").await?;
        ensure!(above.contains("br1.nmconnection"), "round {round}: {above}");

        node.stop_network_manager().await?;
        node.exec(["umount", "/etc/NetworkManager/systemConnectionsMerged"]).await?.success()?;
        node.exec(["sh", "-c", "rm -rf /run/nm-system-connections*"]).await?.success()?;
        node.start_network_manager().await?;
        boot(&node, &overlay).await?;
        let now = node.snapshot().await?;
        ensure!(now.mentions(&node.address()) && !now.mentions("10.97.0.1"), "round {round}: {now:?}");
    }
    Ok(())
}

/// Does what systemd does at boot, by the files and the unit of the MachineConfig.
async fn boot(node: &NmNode, overlay: &MachineConfigFiles) -> Result<()> {
    node.stop_network_manager().await?;
    node.clear().await?;
    node.exec(["systemd-tmpfiles", "--create", "/etc/tmpfiles.d/knmstate-overlay.conf"]).await?.success()?;
    let unit = overlay.units.first().context("no unit")?;
    let value = |key: &str| {
        let line = unit.lines().find_map(|line| line.strip_prefix(&format!("{key}=")));
        line.map(str::to_owned).with_context(|| format!("no {key}"))
    };
    let (kind, options, what, directory) =
        (value("Type")?, value("Options")?, value("What")?, value("Where")?);
    node.exec(["mount", "-t", &kind, "-o", &options, &what, &directory]).await?.success()?;
    node.start_network_manager().await?;
    wait::until(SHORT_LIMIT, "eth0 to have its address", async || {
        ensure!(node.snapshot().await?.mentions(&node.address()), "it has no address");
        Ok(())
    })
    .await
}

async fn profiles(node: &NmNode, directory: &str) -> Result<String> {
    node.exec(["sh", "-c", &format!("cd {directory} && sha256sum *")]).await?.success()
}
