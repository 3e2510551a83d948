//! Changes in NetworkManager's memory: no part of them is ever on disk, however they end.

use std::{fs, path::PathBuf, time::Duration};

use anyhow::{Context, Result, ensure};
use rig::{
    Lab, NmNode, Output, UmlNode, binaries,
    process::{Invocation, Process},
    wait,
};
use serde_json::{Value, json};

use super::standalone::{slow_probe, with_address};

const LIMIT: Duration = Duration::from_mins(3);
const LAWS_LIMIT: Duration = Duration::from_mins(30);
const SHORT_LIMIT: Duration = Duration::from_mins(1);

#[tokio::test]
async fn the_laws_hold_in_memory() -> Result<()> {
    let fixture = EphemeralFixture::new().await?;
    let (before, disk) = (fixture.node.snapshot().await?, fixture.disk().await?);
    let laws = fixture.machine_host(&["--slowness=10", "laws", "eth1"], "").await?;
    assert_eq!(laws.json()?, "the laws hold");
    fixture.node.wait_until_restored(&before, SHORT_LIMIT).await?;
    assert_eq!(fixture.disk().await?, disk);
    Ok(())
}

#[tokio::test]
async fn the_laws_hold_in_memory_of_a_newer_network_manager() -> Result<()> {
    let lab = Lab::new().await?;
    let node = lab.uml_node("node1").start().await?;
    let program = UmlNode::path_inside(&binaries::machine_host().await?)?;
    let call = ["--journal", "/var/lib/knmstate", "--slowness=10", "--memory-only", "laws", "eth1"];
    let laws = node.exec_with(Invocation::new([&program]).args(call), LAWS_LIMIT).await?;
    assert_eq!(laws.json()?, "the laws hold");
    let profiles = node.exec([
        "sh",
        "-c",
        "grep -lE 'laws0|203.0.113' /etc/NetworkManager/system-connections/* || true",
    ]);
    assert_eq!(profiles.await?.success()?, "", "a part of it is on disk");
    Ok(())
}

#[tokio::test]
async fn after_a_reboot_only_profiles_on_disk_are_active_until_the_agent_applies_its_orders() -> Result<()> {
    let fixture = EphemeralFixture::new().await?;
    let disk = fixture.disk().await?;
    // A new interface, and a change of a NIC that has a profile on disk.
    fixture.policy("bridge", &with_address(), &json!({}))?;
    let mtu = json!({ "interfaces": [{ "name": "eth0", "type": "ethernet", "state": "up", "mtu": 1420 }] });
    fixture.policy("mtu", &mtu, &json!({}))?;
    let output = fixture.once().await?;
    ensure!(output.status.success(), "{}{}", output.stdout(), output.stderr());
    let changed = fixture.node.snapshot().await?;
    ensure!(changed.mentions("10.98.0.77") && changed.mentions("1420"), "{changed:?}");
    assert_eq!(fixture.disk().await?, disk, "a part of it is on disk");

    // A restart of NetworkManager keeps the changes.
    fixture.node.stop_network_manager().await?;
    fixture.node.start_network_manager().await?;
    wait::until(SHORT_LIMIT, "the bridge to be back", async || {
        let now = fixture.node.snapshot().await?;
        ensure!(now.mentions("10.98.0.77") && now.mentions("1420"), "{now:?}");
        Ok(())
    })
    .await?;
    assert_eq!(fixture.disk().await?, disk);

    fixture.node.reboot().await?;
    let booted = fixture.node.snapshot().await?;
    ensure!(
        !booted.mentions("\"br1\"") && !booted.mentions("10.98.0.77"),
        "a change has survived the reboot: {booted:?}"
    );
    ensure!(booted.mentions(&fixture.node.address()), "the profile on disk is not active: {booted:?}");

    let agent = fixture.start(&[])?;
    fixture.until_present("10.98.0.77").await?;
    fixture.until_present("1420").await?;
    drop(agent);
    assert_eq!(fixture.disk().await?, disk);
    Ok(())
}

#[tokio::test]
async fn every_kind_of_rollback_leaves_the_disk_unchanged() -> Result<()> {
    let fixture = EphemeralFixture::new().await?;
    let (before, disk) = (fixture.node.snapshot().await?, fixture.disk().await?);
    for case in ["rolled back", "killed", "lost by NetworkManager"] {
        // A probe holds the change open; in the first case it fails soon.
        let probes = match case {
            "rolled back" => {
                json!({ "probes": [{ "name": "web", "timeout": "3s", "tcp": { "host": "10.99.0.254", "port": 81 } }] })
            }
            _ => slow_probe(),
        };
        let mut desired = with_address();
        if let Some(interfaces) = desired["interfaces"].as_array_mut() {
            interfaces.push(json!({ "name": "eth0", "type": "ethernet", "state": "up", "mtu": 1420 }));
        }
        fixture.policy("p", &desired, &probes)?;
        let agent = fixture.start(&["--max-attempts=1", "--change-deadline=20"])?;
        fixture.until_present("10.98.0.77").await.context(case)?;
        match case {
            "killed" => drop(agent),
            "rolled back" => {
                fixture.node.wait_until_restored(&before, SHORT_LIMIT).await.context(case)?;
                drop(agent);
            }
            _ => {
                fixture.node.kill_network_manager().await?;
                fixture.node.start_network_manager().await?;
                // Restored for a moment is not enough: an attempt to roll back that fails is undone in turn.
                wait::until(SHORT_LIMIT, "the change to be rolled back for good", async || {
                    let open = fixture.machine_host(&["list"], "").await?.json()?;
                    ensure!(open == json!([]), "{open}");
                    Ok(())
                })
                .await
                .context(case)?;
                fixture.node.wait_until_restored(&before, SHORT_LIMIT).await.context(case)?;
                drop(agent);
            }
        }
        fixture.node.wait_until_restored(&before, SHORT_LIMIT).await.context(case)?;
        assert_eq!(fixture.disk().await?, disk, "{case}");
        fs::remove_dir_all(fixture.path("state")).context(case)?;
    }
    Ok(())
}

#[tokio::test]
async fn a_change_that_was_open_at_a_reboot_is_not_rolled_back_after_it() -> Result<()> {
    let fixture = EphemeralFixture::new().await?;
    let disk = fixture.disk().await?;
    fixture.policy("p", &with_address(), &slow_probe())?;
    let agent = fixture.start(&["--change-deadline=60"])?;
    fixture.until_present("10.98.0.77").await?;
    drop(agent);
    fixture.node.reboot().await?;
    let listed = fixture.machine_host(&["list"], "").await?.json()?;
    assert_eq!(listed, json!([]), "the reboot has undone it");
    assert_eq!(fixture.disk().await?, disk);
    Ok(())
}

#[tokio::test]
async fn an_absent_interface_stays_down_and_its_profile_stays_on_disk() -> Result<()> {
    const LINK: &str = "\"ifname\":\"br5\"";
    let fixture = EphemeralFixture::new().await?;
    // Activating the port activates its bridge, too.
    let bridge = "nmcli connection add type bridge ifname br5 con-name br5 ipv4.method disabled ipv6.method disabled && \
                  nmcli connection add type ethernet ifname eth2 con-name eth2 master br5 && nmcli connection up eth2";
    fixture.node.exec(["sh", "-c", bridge]).await?.success()?;
    fixture.until_present(LINK).await?;
    let disk = fixture.disk().await?;
    let absent = json!({ "interfaces": [{ "name": "br5", "type": "linux-bridge", "state": "absent" }] });
    fixture.policy("p", &absent, &json!({}))?;
    for expected in ["applied", "unchanged"] {
        let output = fixture.once().await?;
        let text = output.stdout();
        ensure!(text.contains(&format!("p       {expected}")), "{text}{}", output.stderr());
        for _ in 0..2 {
            let now = fixture.node.snapshot().await?;
            ensure!(!now.mentions(LINK), "{now:?}");
            // It does not come back when NetworkManager starts again either.
            fixture.node.stop_network_manager().await?;
            fixture.node.start_network_manager().await?;
        }
        assert_eq!(fixture.disk().await?, disk);
    }
    fixture.node.reboot().await?;
    fixture.until_present(LINK).await.context("its profile is on disk, so it is back after a reboot")
}

#[tokio::test]
async fn settings_that_cannot_be_kept_in_memory_are_refused() -> Result<()> {
    let fixture = EphemeralFixture::new().await?;
    let disk = fixture.disk().await?;
    let names = json!({ "interfaces": [{ "name": "eth1", "type": "ethernet", "state": "up", "alt-names": [{ "name": "uplink" }] }] });
    fixture.policy("p", &names, &json!({}))?;
    let output = fixture.once().await?;
    let text = output.stdout().split_whitespace().collect::<Vec<_>>().join(" ");
    ensure!(output.status.code() == Some(1), "{text}{}", output.stderr());
    ensure!(text.contains("interfaces[eth1].alt-names") && text.contains("memory"), "{text}");
    assert_eq!(fixture.disk().await?, disk);
    let output = fixture
        .node
        .exec([&fixture.program, "standalone", "--policies=/run", "--persistence=ephemeral"])
        .await?;
    ensure!(output.status.code() == Some(2), "{}", output.stderr());
    ensure!(output.stderr().contains("Persistent or Ephemeral"), "{}", output.stderr());
    Ok(())
}

/// A node whose agent keeps its changes in memory.
struct EphemeralFixture {
    lab: Lab,
    node: NmNode,
    program: String,
}

impl EphemeralFixture {
    async fn new() -> Result<Self> {
        let program = binaries::knmstate().await?.display().to_string();
        let lab = Lab::new().await?;
        lab.gateway().on().await?;
        lab.dns().on().await?;
        let node = lab.nm_node("node1").start().await?;
        node.settle().await?;
        fs::create_dir(lab.directory().join("policies"))?;
        Ok(Self { lab, node, program })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.lab.directory().join(name)
    }

    fn policy(&self, name: &str, desired: &Value, rest: &Value) -> Result<()> {
        let mut spec = rest.clone();
        spec["desiredState"] = desired.clone();
        let policy = json!({ "apiVersion": "nmstate.io/v1", "kind": "NodeNetworkConfigurationPolicy",
            "metadata": { "name": name }, "spec": spec });
        Ok(fs::write(self.path("policies").join(format!("{name}.json")), policy.to_string())?)
    }

    fn call(&self, arguments: &[&str]) -> Invocation {
        let directory = |flag: &str, name: &str| format!("--{flag}={}", self.path(name).display());
        Invocation::new([&self.program, "standalone", "--node-name=node1"])
            .args([directory("policies", "policies"), directory("state-dir", "state")])
            .args(arguments.iter().copied())
            .env("NMSTATE_PERSISTENCE", "Ephemeral")
            .env("RUST_BACKTRACE", "0")
    }

    async fn once(&self) -> Result<Output> {
        self.node.exec_with(self.call(&["--once"]), LIMIT).await
    }

    fn start(&self, arguments: &[&str]) -> Result<Process> {
        let log = self.path("agent.log");
        let _ = fs::remove_file(&log);
        self.node.enter(self.call(arguments)).start("agent", &log)
    }

    async fn machine_host(&self, arguments: &[&str], input: &str) -> Result<Output> {
        let program = binaries::machine_host().await?.display().to_string();
        let journal = self.path("state").join("journal").display().to_string();
        let call = Invocation::new([&program, "--memory-only", "--journal", &journal]);
        self.node.exec_with(call.args(arguments.iter().copied()).stdin(input.to_owned()), LAWS_LIMIT).await
    }

    /// The checksums of the network configuration on the node's disk.
    async fn disk(&self) -> Result<String> {
        let script =
            "cd /etc && find NetworkManager hostname systemd/network -type f | sort | xargs sha256sum";
        self.node.exec(["sh", "-c", script]).await?.success()
    }

    async fn until_present(&self, text: &str) -> Result<()> {
        wait::until(LIMIT, text, async || {
            ensure!(self.node.snapshot().await?.mentions(text), "it is not there");
            Ok(())
        })
        .await
    }
}
