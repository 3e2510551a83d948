//! A node of namespaces with a bus and a NetworkManager of its own: cheap, and enough for everything that the
//! machine's own kernel can do.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, Result, bail};

use crate::{
    lab::{Lab, Segment},
    machine::{EXEC_LIMIT, Machine, Nic, rig_file},
    process::{Invocation, Output},
    services::{GATEWAY, NAME_SERVER},
    wait,
};

const READY_LIMIT: Duration = Duration::from_secs(30);

impl Lab {
    /// A node of namespaces, with the machine's own kernel and a NetworkManager of its own.
    pub fn nm_node(&self, name: &str) -> NmNodeBuilder {
        NmNodeBuilder { lab: self.clone(), name: name.to_owned(), nics: 2, primary: Primary::Static }
    }
}

/// How NetworkManager finds `eth0` configured when it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Primary {
    /// 10.99.0.N with the lab's gateway and name server.
    Static,
    /// By DHCP; the lab's must be on.
    Dhcp,
    /// Not at all.
    Unconfigured,
}

#[derive(Debug)]
pub struct NmNodeBuilder {
    lab: Lab,
    name: String,
    nics: usize,
    primary: Primary,
}

impl NmNodeBuilder {
    /// How many cards (`eth1`, `eth2` …) it has on the back segment besides `eth0` on the front; 2 if not said.
    #[must_use]
    pub fn nics(mut self, count: usize) -> Self {
        self.nics = count;
        self
    }

    #[must_use]
    pub fn primary(mut self, primary: Primary) -> Self {
        self.primary = primary;
        self
    }

    pub async fn start(self) -> Result<NmNode> {
        let number = self.lab.next_node()?;
        let folder = self.lab.folder().join(&self.name);
        std::fs::create_dir(&folder).with_context(|| format!("a node named {}", self.name))?;
        if let Some(profile) = profile(self.primary, number) {
            std::fs::write(folder.join("eth0.nmconnection"), profile)?;
        }
        let init = Invocation::new([
            rig_file("node/nm-init").display().to_string(),
            self.name.clone(),
            folder.display().to_string(),
        ]);
        let mut machine = Machine::start(&self.lab, &self.name, init, &[], &folder.join("init.log")).await?;
        wait::until(READY_LIMIT, &format!("{} to take its network cards", self.name), async || {
            machine.check_running()?;
            Ok(std::fs::metadata(folder.join("run/waiting-for-nics"))?)
        })
        .await?;
        let mut nics = vec![machine.plug_in(&self.lab, number, 0, Segment::Front).await?];
        for index in 1..=self.nics {
            nics.push(machine.plug_in(&self.lab, number, index, Segment::Back).await?);
        }
        std::fs::write(folder.join("run/nics-are-in"), "")?;
        let node = NmNode { machine, nics, number, name: self.name, folder, _lab: self.lab };
        node.wait_for_network_manager().await?;
        Ok(node)
    }
}

/// A running node; gone when dropped.
#[derive(Debug)]
pub struct NmNode {
    machine: Machine,
    nics: Vec<Nic>,
    number: u8,
    name: String,
    folder: PathBuf,
    _lab: Lab,
}

impl NmNode {
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its first process, as the machine outside sees it.
    pub fn pid(&self) -> u32 {
        self.machine.pid()
    }

    /// Its address on the front segment, when the primary is static.
    pub fn address(&self) -> String {
        format!("10.99.0.{}", self.number)
    }

    /// The cable of `eth<index>`.
    pub fn nic(&self, index: usize) -> &Nic {
        &self.nics[index]
    }

    /// Runs a command in the node.
    pub async fn exec<S: Into<String>>(&self, argv: impl IntoIterator<Item = S>) -> Result<Output> {
        self.exec_with(Invocation::new(argv), EXEC_LIMIT).await
    }

    pub async fn exec_with(&self, invocation: Invocation, limit: Duration) -> Result<Output> {
        self.machine.exec(invocation, limit).await
    }

    /// The same command, to be started in the node by the caller.
    pub fn enter(&self, invocation: Invocation) -> Invocation {
        self.machine.enter(invocation)
    }

    /// Ends NetworkManager as a service manager would.
    pub async fn stop_network_manager(&self) -> Result<()> {
        self.network_manager("stop").await
    }

    /// Sends a signal, such as STOP and CONT, to NetworkManager.
    pub async fn signal_network_manager(&self, signal: &str) -> Result<()> {
        let script = format!("kill -{signal} $(cat /run/network-manager.pid)");
        self.exec(["sh", "-c", &script]).await?.success()?;
        Ok(())
    }

    /// Ends NetworkManager with SIGKILL.
    pub async fn kill_network_manager(&self) -> Result<()> {
        self.network_manager("kill").await
    }

    /// Starts NetworkManager, and returns when it has finished starting.
    pub async fn start_network_manager(&self) -> Result<()> {
        self.network_manager("start").await?;
        self.wait_for_network_manager().await
    }

    async fn network_manager(&self, action: &str) -> Result<()> {
        let script = rig_file("node/network-manager").display().to_string();
        let folder = self.folder.display().to_string();
        self.exec([script, action.to_owned(), folder]).await?.success()?;
        Ok(())
    }

    async fn wait_for_network_manager(&self) -> Result<()> {
        wait::until(READY_LIMIT, &format!("NetworkManager of {}", self.name), async || {
            let answer = self.exec(["nmcli", "-t", "-f", "STARTUP", "general"]).await?.success()?;
            match answer.trim() {
                "started" => Ok(()),
                other => bail!("NetworkManager says it is '{other}'"),
            }
        })
        .await
    }
}

const PROFILE: &str = "[connection]\nid=eth0\ntype=ethernet\ninterface-name=eth0\n";

fn profile(primary: Primary, number: u8) -> Option<String> {
    match primary {
        Primary::Static => Some(static_profile(number)),
        Primary::Dhcp => Some(format!("{PROFILE}[ipv4]\nmethod=auto\n[ipv6]\nmethod=auto\n")),
        Primary::Unconfigured => None,
    }
}

/// NetworkManager's profile of an `eth0` with the lab's gateway and name server.
pub(crate) fn static_profile(number: u8) -> String {
    let address = format!("method=manual\naddress1=10.99.0.{number}/24,{GATEWAY}\ndns={NAME_SERVER};\n");
    format!("{PROFILE}[ipv4]\n{address}[ipv6]\nmethod=link-local\n")
}
