//! A machine made of namespaces (net, mount, uts, pid), and its cables into the lab.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    lab::{Lab, Segment},
    netns::NetworkNamespace,
    process::{Invocation, LAB_VARIABLE, Output, Process},
    wait,
};

/// How long a command in a node may take unless its caller says otherwise.
pub const EXEC_LIMIT: Duration = Duration::from_mins(1);

/// How long the processes of a killed node may take to be gone.
const DEATH_LIMIT: Duration = Duration::from_secs(10);

/// The namespaces of a node, held by its first process; that process, and so everything in them, dies on drop.
#[derive(Debug)]
pub struct Machine {
    init: Process,
    pid: u32,
    flags: Vec<&'static str>,
}

impl Machine {
    /// Starts `argv` as the first process of new namespaces. `extra` names namespaces beyond net, mount, uts, pid.
    pub async fn start(
        lab: &Lab,
        name: &str,
        argv: Invocation,
        extra: &[&'static str],
        log: &Path,
    ) -> Result<Self> {
        let mut flags = vec!["--net", "--mount", "--uts", "--pid"];
        flags.extend(extra);
        let mut unshare = vec!["unshare".to_owned(), "--fork".to_owned(), "--kill-child".to_owned()];
        unshare.extend(flags.iter().map(ToString::to_string));
        let mut init = argv.after(unshare).env(LAB_VARIABLE, lab.id()).start(name, log)?;
        let children = format!("/proc/{0}/task/{0}/children", init.id());
        let pid =
            wait::until(Duration::from_secs(10), &format!("{name} to have a first process"), async || {
                init.check_running()?;
                let children = std::fs::read_to_string(&children)?;
                Ok(children.trim().parse()?)
            })
            .await?;
        Ok(Self { init, pid, flags })
    }

    /// The first process, as the machine outside sees it.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    pub fn check_running(&mut self) -> Result<()> {
        self.init.check_running()
    }

    /// The same command, run inside.
    pub fn enter(&self, invocation: Invocation) -> Invocation {
        invocation.inside(self.pid, &self.flags)
    }

    pub async fn exec(&self, invocation: Invocation, limit: Duration) -> Result<Output> {
        self.enter(invocation).run(limit).await
    }

    /// Puts a network card into the machine, with its cable in the lab.
    pub async fn plug_in(&self, lab: &Lab, number: u8, index: usize, segment: Segment) -> Result<Nic> {
        let port = format!("v{number}-{index}");
        lab.network()
            .ip(&format!(
                "link add {port} type veth peer name eth{index} netns {pid}\n\
                 link set {port} master {bridge} up\n",
                pid = self.pid,
                bridge = segment.bridge()
            ))
            .await
            .with_context(|| format!("plug in eth{index}"))?;
        Ok(Nic { network: lab.shared_network(), port, segment })
    }
}

impl Drop for Machine {
    /// The first process dies alone, and `unshare` after it: the kernel lets the first one go only when its namespace
    /// is empty, and `unshare` waits for that. Killed as one group, `unshare` could be gone before the last of them.
    fn drop(&mut self) {
        if let Ok(pid) = i32::try_from(self.pid)
            && kill(Pid::from_raw(pid), Signal::SIGKILL).is_ok()
        {
            self.init.wait_briefly(DEATH_LIMIT);
        }
    }
}

/// The lab's end of a node's network card.
#[derive(Debug)]
pub struct Nic {
    network: Arc<NetworkNamespace>,
    port: String,
    segment: Segment,
}

impl Nic {
    /// Pulls the cable: the node sees the carrier go.
    pub async fn pull(&self) -> Result<()> {
        self.network.ip(&format!("link set {} down\n", self.port)).await
    }

    /// Loses every packet in both directions, while the node still sees a carrier.
    pub async fn drop_packets(&self) -> Result<()> {
        self.network.ip(&format!("link set {} nomaster\n", self.port)).await
    }

    /// Undoes both.
    pub async fn restore(&self) -> Result<()> {
        self.network.ip(&format!("link set {} master {} up\n", self.port, self.segment.bridge())).await
    }
}

/// A file of the rig that nodes are made with.
pub fn rig_file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}
