//! Writes the files of a MachineConfig to a machine, as Ignition does.

use anyhow::{Context as _, Result, ensure};
use rig::{NmNode, UmlNode, process::Invocation, shell::Shell};
use serde_json::Value;

/// The files and units of a MachineConfig.
pub(super) struct MachineConfigFiles {
    /// Path, mode in octal, and contents in base64.
    files: Vec<(String, String, String)>,
    pub(super) units: Vec<String>,
}

impl MachineConfigFiles {
    pub(super) fn of(machine_config: &Value) -> Result<Self> {
        let config = &machine_config["spec"]["config"];
        let mut all = Self { files: Vec::new(), units: Vec::new() };
        for file in config["storage"]["files"].as_array().context("no files")? {
            let text = |pointer: &str| {
                file.pointer(pointer).and_then(Value::as_str).with_context(|| pointer.to_owned())
            };
            let data = text("/contents/source")?.strip_prefix("data:;base64,").context("no data URL")?;
            let mode = file["mode"].as_u64().context("no mode")?;
            all.files.push((text("/path")?.to_owned(), format!("{mode:o}"), data.to_owned()));
        }
        for unit in config["systemd"]["units"].as_array().into_iter().flatten() {
            all.units.push(unit["contents"].as_str().context("no contents")?.to_owned());
        }
        ensure!(!all.files.is_empty(), "{machine_config:#}");
        Ok(all)
    }

    fn script(&self) -> String {
        let lines = self.files.iter().map(|(path, mode, data)| {
            format!(
                "mkdir -p \"$(dirname {path})\" && (umask 077; echo {data} | base64 -d >{path}) && chmod {mode} {path}\n"
            )
        });
        format!("set -e\n{}", lines.collect::<String>())
    }
}

/// A machine that the files can be written to.
pub(super) trait Machine: Shell {
    async fn write_files(&self, files: &MachineConfigFiles) -> Result<()> {
        self.run(Invocation::new(["sh"]).stdin(files.script()), super::LIMIT).await?.success()?;
        Ok(())
    }
}

impl Machine for NmNode {}
impl Machine for UmlNode {}

/// A machine whose volatile network state can be removed, as by a power cycle.
pub(super) trait Volatile {
    async fn clear(&self) -> Result<()>;
}

impl Volatile for NmNode {
    async fn clear(&self) -> Result<()> {
        let script = "rm -rf /run/NetworkManager/devices /run/NetworkManager/system-connections\n\
                      for link in br1 vx7 mv1 tap1 pair1; do ip link del $link 2>/dev/null || true; done\n\
                      for nic in eth0 eth1 eth2; do ip addr flush dev $nic; ip link set $nic down; done\n";
        self.exec_with(Invocation::new(["sh"]).stdin(script), super::LIMIT).await?.success()?;
        Ok(())
    }
}
