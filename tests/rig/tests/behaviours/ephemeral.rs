//! Changes that live in NetworkManager's memory: nothing of them is on disk, whatever ends them.

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
const SOON: Duration = Duration::from_mins(1);

#[tokio::test]
async fn the_laws_hold_in_memory() -> Result<()> {
    let trial = Trial::new().await?;
    let (before, disk) = (trial.node.snapshot().await?, trial.disk().await?);
    let laws = trial.machine_host(&["--slowness=10", "laws", "eth1"], "").await?;
    assert_eq!(laws.json()?, "the laws hold");
    trial.node.is_again(&before, SOON).await?;
    assert_eq!(trial.disk().await?, disk);
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
    assert_eq!(profiles.await?.success()?, "", "something of it is on disk");
    Ok(())
}

#[tokio::test]
async fn a_reboot_comes_back_with_what_is_on_disk_and_the_agent_makes_it_so_again() -> Result<()> {
    let trial = Trial::new().await?;
    let disk = trial.disk().await?;
    // Something new, and something else for a card that has a profile on disk.
    trial.policy("bridge", &with_address(), &json!({}))?;
    let mtu = json!({ "interfaces": [{ "name": "eth0", "type": "ethernet", "state": "up", "mtu": 1420 }] });
    trial.policy("mtu", &mtu, &json!({}))?;
    let output = trial.once().await?;
    ensure!(output.status.success(), "{}{}", output.stdout(), output.stderr());
    let changed = trial.node.snapshot().await?;
    ensure!(changed.mentions("10.98.0.77") && changed.mentions("1420"), "{changed:?}");
    assert_eq!(trial.disk().await?, disk, "something of it is on disk");

    // A restart of NetworkManager is no reboot.
    trial.node.stop_network_manager().await?;
    trial.node.start_network_manager().await?;
    wait::until(SOON, "the bridge to be there again", async || {
        let now = trial.node.snapshot().await?;
        ensure!(now.mentions("10.98.0.77") && now.mentions("1420"), "{now:?}");
        Ok(())
    })
    .await?;
    assert_eq!(trial.disk().await?, disk);

    trial.node.reboot().await?;
    let booted = trial.node.snapshot().await?;
    ensure!(
        !booted.mentions("\"br1\"") && !booted.mentions("10.98.0.77"),
        "it was to be forgotten: {booted:?}"
    );
    ensure!(booted.mentions(&trial.node.address()), "what is on disk is there: {booted:?}");

    let agent = trial.start(&[])?;
    trial.appears("10.98.0.77").await?;
    trial.appears("1420").await?;
    drop(agent);
    assert_eq!(trial.disk().await?, disk);
    Ok(())
}

#[tokio::test]
async fn whatever_takes_a_change_back_leaves_the_disk_as_it_was() -> Result<()> {
    let trial = Trial::new().await?;
    let (before, disk) = (trial.node.snapshot().await?, trial.disk().await?);
    for case in ["rolled back", "killed", "forgotten by NetworkManager"] {
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
        trial.policy("p", &desired, &probes)?;
        let agent = trial.start(&["--max-attempts=1", "--change-deadline=20"])?;
        trial.appears("10.98.0.77").await.context(case)?;
        match case {
            "killed" => drop(agent),
            "rolled back" => {
                trial.node.is_again(&before, SOON).await.context(case)?;
                drop(agent);
            }
            _ => {
                trial.node.kill_network_manager().await?;
                trial.node.start_network_manager().await?;
                trial.node.is_again(&before, SOON).await.context(case)?;
                drop(agent);
            }
        }
        trial.node.is_again(&before, SOON).await.context(case)?;
        assert_eq!(trial.disk().await?, disk, "{case}");
        fs::remove_dir_all(trial.folder("state")).context(case)?;
    }
    Ok(())
}

#[tokio::test]
async fn what_was_open_when_the_machine_went_down_is_not_put_back_into_the_next_life() -> Result<()> {
    let trial = Trial::new().await?;
    let disk = trial.disk().await?;
    trial.policy("p", &with_address(), &slow_probe())?;
    let agent = trial.start(&["--change-deadline=60"])?;
    trial.appears("10.98.0.77").await?;
    drop(agent);
    trial.node.reboot().await?;
    let listed = trial.machine_host(&["list"], "").await?.json()?;
    assert_eq!(listed, json!([]), "the reboot has undone it");
    assert_eq!(trial.disk().await?, disk);
    Ok(())
}

#[tokio::test]
async fn what_is_to_be_absent_is_held_back_and_its_profile_stays_on_disk() -> Result<()> {
    const LINK: &str = "\"ifname\":\"br5\"";
    let trial = Trial::new().await?;
    // A port that comes up brings its bridge with it.
    let bridge = "nmcli connection add type bridge ifname br5 con-name br5 ipv4.method disabled ipv6.method disabled && \
                  nmcli connection add type ethernet ifname eth2 con-name eth2 master br5 && nmcli connection up eth2";
    trial.node.exec(["sh", "-c", bridge]).await?.success()?;
    trial.appears(LINK).await?;
    let disk = trial.disk().await?;
    let absent = json!({ "interfaces": [{ "name": "br5", "type": "linux-bridge", "state": "absent" }] });
    trial.policy("p", &absent, &json!({}))?;
    for expected in ["applied", "unchanged"] {
        let output = trial.once().await?;
        let text = output.stdout();
        ensure!(text.contains(&format!("p       {expected}")), "{text}{}", output.stderr());
        for _ in 0..2 {
            let now = trial.node.snapshot().await?;
            ensure!(!now.mentions(LINK), "{now:?}");
            // It does not come back with the next start of NetworkManager either.
            trial.node.stop_network_manager().await?;
            trial.node.start_network_manager().await?;
        }
        assert_eq!(trial.disk().await?, disk);
    }
    trial.node.reboot().await?;
    trial.appears(LINK).await.context("it is on disk, and so it is there after a reboot")
}

#[tokio::test]
async fn what_cannot_be_kept_in_memory_is_refused() -> Result<()> {
    let trial = Trial::new().await?;
    let disk = trial.disk().await?;
    let names = json!({ "interfaces": [{ "name": "eth1", "type": "ethernet", "state": "up", "alt-names": [{ "name": "uplink" }] }] });
    trial.policy("p", &names, &json!({}))?;
    let output = trial.once().await?;
    let text = output.stdout().split_whitespace().collect::<Vec<_>>().join(" ");
    ensure!(output.status.code() == Some(1), "{text}{}", output.stderr());
    ensure!(text.contains("interfaces[eth1].alt-names") && text.contains("memory"), "{text}");
    assert_eq!(trial.disk().await?, disk);
    let output =
        trial.node.exec([&trial.program, "standalone", "--policies=/run", "--persistence=ephemeral"]).await?;
    ensure!(output.status.code() == Some(2), "{}", output.stderr());
    ensure!(output.stderr().contains("Persistent or Ephemeral"), "{}", output.stderr());
    Ok(())
}

/// A node whose agent keeps its changes in memory.
struct Trial {
    lab: Lab,
    node: NmNode,
    program: String,
}

impl Trial {
    async fn new() -> Result<Self> {
        let program = binaries::knmstate().await?.display().to_string();
        let lab = Lab::new().await?;
        lab.gateway().on().await?;
        lab.dns().on().await?;
        let node = lab.nm_node("node1").start().await?;
        node.come_to_rest().await?;
        fs::create_dir(lab.folder().join("policies"))?;
        Ok(Self { lab, node, program })
    }

    fn folder(&self, name: &str) -> PathBuf {
        self.lab.folder().join(name)
    }

    fn policy(&self, name: &str, desired: &Value, rest: &Value) -> Result<()> {
        let mut spec = rest.clone();
        spec["desiredState"] = desired.clone();
        let policy = json!({ "apiVersion": "nmstate.io/v1", "kind": "NodeNetworkConfigurationPolicy",
            "metadata": { "name": name }, "spec": spec });
        Ok(fs::write(self.folder("policies").join(format!("{name}.json")), policy.to_string())?)
    }

    fn call(&self, arguments: &[&str]) -> Invocation {
        let folder = |flag: &str, name: &str| format!("--{flag}={}", self.folder(name).display());
        Invocation::new([&self.program, "standalone", "--node-name=node1"])
            .args([folder("policies", "policies"), folder("state-dir", "state")])
            .args(arguments.iter().copied())
            .env("NMSTATE_PERSISTENCE", "Ephemeral")
            .env("RUST_BACKTRACE", "0")
    }

    async fn once(&self) -> Result<Output> {
        self.node.exec_with(self.call(&["--once"]), LIMIT).await
    }

    fn start(&self, arguments: &[&str]) -> Result<Process> {
        let log = self.folder("agent.log");
        let _ = fs::remove_file(&log);
        self.node.enter(self.call(arguments)).start("agent", &log)
    }

    async fn machine_host(&self, arguments: &[&str], input: &str) -> Result<Output> {
        let program = binaries::machine_host().await?.display().to_string();
        let journal = self.folder("state").join("journal").display().to_string();
        let call = Invocation::new([&program, "--memory-only", "--journal", &journal]);
        self.node.exec_with(call.args(arguments.iter().copied()).stdin(input.to_owned()), LAWS_LIMIT).await
    }

    /// Everything of the network that is on the node's disk.
    async fn disk(&self) -> Result<String> {
        let script =
            "cd /etc && find NetworkManager hostname systemd/network -type f | sort | xargs sha256sum";
        self.node.exec(["sh", "-c", script]).await?.success()
    }

    async fn appears(&self, text: &str) -> Result<()> {
        wait::until(LIMIT, text, async || {
            ensure!(self.node.snapshot().await?.mentions(text), "it is not there");
            Ok(())
        })
        .await
    }
}
