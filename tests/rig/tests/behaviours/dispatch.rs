//! Dispatch scripts, which run as root: refused unless they are allowed, and then part of the rollback.

use std::time::Duration;

use anyhow::{Result, ensure};
use rig::Output;
use serde_json::{Value, json};

use super::standalone::{StandaloneFixture, slow_probe};

const DIRECTORY: &str = "/etc/NetworkManager/dispatcher.d";
const ALLOWED: &str = "--allow-dispatch-scripts";

impl StandaloneFixture {
    /// The content of a script on the node, and its mode; empty when it does not exist.
    async fn script(&self, name: &str) -> Result<String> {
        let path = format!("{DIRECTORY}/{name}");
        let read = ["sh", "-c", "! test -e \"$1\" || { stat -c %a \"$1\"; cat \"$1\"; }", "sh", &path];
        self.node.exec(read).await?.success()
    }

    /// Writes a script in the form that nmstate gives it.
    async fn write_script(&self, name: &str, body: &str) -> Result<()> {
        let path = format!("{DIRECTORY}/{name}");
        let text = format!(
            "#!/usr/bin/bash\n## NMSTATE DISPATCH SCRIPT START\n{body}\n## NMSTATE DISPATCH SCRIPT END\n"
        );
        let script = "mkdir -p \"${1%/*}\" && printf %s \"$2\" >\"$1\" && chmod 744 \"$1\"";
        self.node.exec(["sh", "-c", script, "sh", &path, &text]).await?.success()?;
        Ok(())
    }
}

/// Fails within seconds.
fn failing_probe() -> Value {
    json!({ "probes": [{ "name": "web", "timeout": "3s", "tcp": { "host": "10.99.0.254", "port": 81 } }] })
}

fn with_scripts(interface: &str) -> Value {
    json!({ "interfaces": [{ "name": interface, "type": "ethernet", "state": "up", "mtu": 1400,
        "dispatch": { "post-activation": "touch /tmp/new-up", "post-deactivation": "touch /tmp/new-down" } }] })
}

fn is_refused(output: &Output, expected: &[&str]) -> Result<()> {
    let table = output.stdout().split_whitespace().collect::<Vec<_>>().join(" ");
    ensure!(output.status.code() == Some(1), "{table}{}", output.stderr());
    for text in expected {
        ensure!(table.contains(text), "{text:?} is not in: {table}");
    }
    Ok(())
}

#[tokio::test]
async fn scripts_are_refused_unless_they_are_allowed() -> Result<()> {
    let fixture = StandaloneFixture::new().await?;
    let before = fixture.node.snapshot().await?;
    let refused = ["interfaces[eth1].dispatch", "as root", "--allow-dispatch-scripts"];
    fixture.policy("scripts", &with_scripts("eth1"))?;
    is_refused(&fixture.once_with(&[]).await?, &refused)?;
    assert_eq!(fixture.script("nmstate-eth1-up.sh").await?, "");

    // A script that another interface has already, by a capture.
    fixture.write_script("nmstate-eth0-up.sh", "true").await?;
    let captured = json!({ "interfaces": [{ "name": "eth1", "type": "ethernet", "state": "up",
        "dispatch": "{{ capture.nic.interfaces.0.dispatch }}" }] });
    let capture = json!({ "capture": { "nic": "interfaces.name==\"eth0\"" } });
    fixture.policy_with("scripts", &captured, &capture)?;
    is_refused(&fixture.once_with(&[]).await?, &refused)?;
    assert_eq!(fixture.script("nmstate-eth1-up.sh").await?, "");
    assert_eq!(fixture.node.snapshot().await?, before);

    // To remove one is always allowed.
    let removal = json!({ "interfaces": [{ "name": "eth0", "type": "ethernet", "state": "up",
        "dispatch": { "post-activation": "" } }] });
    fixture.policy("scripts", &removal)?;
    let output = fixture.once_with(&[]).await?;
    ensure!(output.status.success(), "{}{}", output.stdout(), output.stderr());
    assert_eq!(fixture.script("nmstate-eth0-up.sh").await?, "");
    Ok(())
}

#[tokio::test]
async fn a_rollback_restores_the_scripts() -> Result<()> {
    let fixture = StandaloneFixture::new().await?;
    fixture.write_script("nmstate-eth1-up.sh", "echo before").await?;
    let (network, earlier) = (fixture.node.snapshot().await?, fixture.script("nmstate-eth1-up.sh").await?);
    fixture.policy_with("scripts", &with_scripts("eth1"), &failing_probe())?;
    let output = fixture.once_with(&[ALLOWED, "--max-attempts=1"]).await?;
    fixture.rolled_back(&output, "scripts", &["probe \"web\""])?;
    assert_eq!(fixture.script("nmstate-eth1-up.sh").await?, earlier);
    assert_eq!(fixture.script("nmstate-eth1-down.sh").await?, "");
    fixture.node.wait_until_restored(&network, Duration::from_secs(20)).await?;

    fixture.policy("scripts", &with_scripts("eth1"))?;
    let output = fixture.once_with(&[ALLOWED]).await?;
    ensure!(output.status.success(), "{}{}", output.stdout(), output.stderr());
    for name in ["up", "down"] {
        let script = fixture.script(&format!("nmstate-eth1-{name}.sh")).await?;
        ensure!(script.contains(&format!("touch /tmp/new-{name}")), "{script}");
    }
    // What is there already needs no permission.
    let output = fixture.once_with(&[]).await?;
    ensure!(output.stdout().contains("unchanged"), "{}{}", output.stdout(), output.stderr());
    Ok(())
}

#[tokio::test]
async fn a_rollback_restores_the_scripts_of_an_interface_that_was_removed() -> Result<()> {
    let fixture = StandaloneFixture::new().await?;
    let bridge =
        |state: &str| json!({ "interfaces": [{ "name": "br1", "type": "linux-bridge", "state": state }] });
    fixture.policy("bridge", &bridge("up"))?;
    ensure!(fixture.once_with(&[]).await?.status.success());
    fixture.write_script("nmstate-br1-down.sh", "echo before").await?;
    let earlier = fixture.script("nmstate-br1-down.sh").await?;
    fixture.policy_with("bridge", &bridge("absent"), &failing_probe())?;
    let output = fixture.once_with(&["--max-attempts=1"]).await?;
    fixture.rolled_back(&output, "bridge", &["probe \"web\""])?;
    assert_eq!(fixture.script("nmstate-br1-down.sh").await?, earlier);
    Ok(())
}

#[tokio::test]
async fn scripts_of_a_change_that_was_rolled_back_without_an_agent_go_with_the_next_one() -> Result<()> {
    let fixture = StandaloneFixture::new().await?;
    let before = fixture.node.snapshot().await?;
    for end in ["the timer", "a restart of NetworkManager"] {
        fixture.policy_with("scripts", &with_scripts("eth1"), &slow_probe())?;
        let deadline = if end == "the timer" { "--change-deadline=8" } else { "--change-deadline=240" };
        let agent = fixture.start(&[ALLOWED, deadline])?;
        fixture.until_present("1400").await?;
        // Dropping the handle sends SIGKILL.
        drop(agent);
        if end == "the timer" {
            fixture.node.wait_until_restored(&before, Duration::from_secs(30)).await?;
        } else {
            fixture.node.kill_network_manager().await?;
            fixture.node.start_network_manager().await?;
        }
        let script = fixture.script("nmstate-eth1-up.sh").await?;
        ensure!(script.contains("new-up"), "after {end}: {script}");
        std::fs::remove_file(fixture.lab.directory().join("policies/scripts.yaml"))?;
        let output = fixture.once_with(&[]).await?;
        ensure!(output.status.success(), "{}{}", output.stdout(), output.stderr());
        for name in ["up", "down"] {
            assert_eq!(fixture.script(&format!("nmstate-eth1-{name}.sh")).await?, "", "after {end}");
        }
        fixture.node.wait_until_restored(&before, Duration::from_secs(20)).await?;
    }
    Ok(())
}
