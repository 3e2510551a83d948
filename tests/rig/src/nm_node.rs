//! A node of namespaces with its own D-Bus and NetworkManager, on the machine's kernel. It is the cheapest node, and
//! can do everything that this kernel can do.

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
    /// A node of namespaces with its own NetworkManager, not started yet.
    pub fn nm_node(&self, name: &str) -> NmNodeBuilder {
        NmNodeBuilder { lab: self.clone(), name: name.to_owned(), nics: 2, primary: Primary::Static }
    }
}

/// The profile of `eth0` that NetworkManager has when it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Primary {
    /// 10.99.0.N with the lab's gateway and name server.
    Static,
    /// DHCP; [`Lab::dhcp`] has to be on.
    Dhcp,
    /// None.
    Unconfigured,
}

/// The settings of a node that is not started yet.
#[derive(Debug)]
pub struct NmNodeBuilder {
    lab: Lab,
    name: String,
    nics: usize,
    primary: Primary,
}

impl NmNodeBuilder {
    /// The number of NICs on the back segment (`eth1`, `eth2` …), besides `eth0` on the front segment; 2 by default.
    #[must_use]
    pub fn nics(mut self, count: usize) -> Self {
        self.nics = count;
        self
    }

    /// The configuration of `eth0`; static by default.
    #[must_use]
    pub fn primary(mut self, primary: Primary) -> Self {
        self.primary = primary;
        self
    }

    /// Returns when NetworkManager has finished starting. Fails if the node ends or is not ready in time.
    pub async fn start(self) -> Result<NmNode> {
        let number = self.lab.next_node()?;
        let directory = self.lab.directory().join(&self.name);
        std::fs::create_dir(&directory).with_context(|| format!("create the directory of {}", self.name))?;
        if let Some(profile) = profile(self.primary, number) {
            std::fs::write(directory.join("eth0.nmconnection"), profile)?;
        }
        let init = Invocation::new([
            rig_file("node/nm-init").display().to_string(),
            self.name.clone(),
            directory.display().to_string(),
        ]);
        let mut machine =
            Machine::start(&self.lab, &self.name, init, &[], &directory.join("init.log")).await?;
        wait::until(READY_LIMIT, &format!("{} to wait for its NICs", self.name), async || {
            machine.check_running()?;
            Ok(std::fs::metadata(directory.join("run/waiting-for-nics"))?)
        })
        .await?;
        let mut nics = vec![machine.plug_in(&self.lab, number, 0, Segment::Front).await?];
        for index in 1..=self.nics {
            nics.push(machine.plug_in(&self.lab, number, index, Segment::Back).await?);
        }
        std::fs::write(directory.join("run/nics-are-in"), "")?;
        let node = NmNode { machine, nics, number, name: self.name, directory, _lab: self.lab };
        node.wait_for_network_manager().await?;
        Ok(node)
    }
}

/// A running node. Dropping it ends it.
#[derive(Debug)]
pub struct NmNode {
    machine: Machine,
    nics: Vec<Nic>,
    number: u8,
    name: String,
    directory: PathBuf,
    _lab: Lab,
}

impl NmNode {
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The pid of the node's first process in the machine's pid namespace.
    pub fn pid(&self) -> u32 {
        self.machine.pid()
    }

    /// Its address on the front segment, if `eth0` is [`Primary::Static`].
    pub fn address(&self) -> String {
        format!("10.99.0.{}", self.number)
    }

    /// The lab's end of `eth<index>`.
    pub fn nic(&self, index: usize) -> &Nic {
        &self.nics[index]
    }

    /// Runs a command in the node.
    pub async fn exec<S: Into<String>>(&self, argv: impl IntoIterator<Item = S>) -> Result<Output> {
        self.exec_with(Invocation::new(argv), EXEC_LIMIT).await
    }

    /// Runs a command in the node, and kills it when `limit` has passed.
    pub async fn exec_with(&self, invocation: Invocation, limit: Duration) -> Result<Output> {
        self.machine.exec(invocation, limit).await
    }

    /// Changes a command so that it runs in the node when the caller starts it.
    pub fn enter(&self, invocation: Invocation) -> Invocation {
        self.machine.enter(invocation)
    }

    /// Ends NetworkManager with SIGTERM, as a service manager does.
    pub async fn stop_network_manager(&self) -> Result<()> {
        self.network_manager("stop").await
    }

    /// Sends a signal, such as `STOP` or `CONT`, to NetworkManager.
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
        let directory = self.directory.display().to_string();
        self.exec([script, action.to_owned(), directory]).await?.success()?;
        Ok(())
    }

    async fn wait_for_network_manager(&self) -> Result<()> {
        wait::until(READY_LIMIT, &format!("NetworkManager of {} to start", self.name), async || {
            let answer = self.exec(["nmcli", "-t", "-f", "STARTUP", "general"]).await?.success()?;
            match answer.trim() {
                "started" => Ok(()),
                other => bail!("NetworkManager is in state '{other}'"),
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

/// The profile of `eth0` with a static address and the lab's gateway and name server.
pub(crate) fn static_profile(number: u8) -> String {
    let address = format!("method=manual\naddress1=10.99.0.{number}/24,{GATEWAY}\ndns={NAME_SERVER};\n");
    format!("{PROFILE}[ipv4]\n{address}[ipv6]\nmethod=link-local\n")
}
