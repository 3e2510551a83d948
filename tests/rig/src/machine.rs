//! The namespaces of a node (net, mount, uts, pid), and its NICs on the lab's segments.

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

/// The time limit of a command in a node, if the caller sets no other one.
pub(crate) const EXEC_LIMIT: Duration = Duration::from_mins(1);

/// The processes of a killed node end within this time.
const DEATH_LIMIT: Duration = Duration::from_secs(10);

/// The namespaces of a node, held by its first process. Dropping it kills all processes in them.
#[derive(Debug)]
pub(crate) struct Machine {
    init: Process,
    pid: u32,
    flags: Vec<&'static str>,
}

impl Machine {
    /// Starts `argv` as the first process of new namespaces: net, mount, uts, pid and those in `extra`, as flags of
    /// unshare(1).
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
        let mut init = argv.wrapped_in(unshare).env(LAB_VARIABLE, lab.id()).start(name, log)?;
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

    /// The pid of the first process in the machine's pid namespace.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    pub fn check_running(&mut self) -> Result<()> {
        self.init.check_running()
    }

    /// Changes a command so that it runs in the namespaces.
    pub fn enter(&self, invocation: Invocation) -> Invocation {
        invocation.in_namespaces_of(self.pid, &self.flags)
    }

    pub async fn exec(&self, invocation: Invocation, limit: Duration) -> Result<Output> {
        self.enter(invocation).run(limit).await
    }

    /// Adds `eth<index>` to the node: one end of a veth pair whose other end is a port of the segment.
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
            .with_context(|| format!("add eth{index}"))?;
        Ok(Nic { network: lab.shared_network(), port, segment })
    }
}

impl Drop for Machine {
    /// Kills only the first process and waits for `unshare`, its parent. The kernel reports the end of the first
    /// process when its pid namespace is empty, so `unshare` ends last. If both were killed as one group, `unshare`
    /// could end while processes still run.
    fn drop(&mut self) {
        if let Ok(pid) = i32::try_from(self.pid)
            && kill(Pid::from_raw(pid), Signal::SIGKILL).is_ok()
        {
            self.init.wait_blocking(DEATH_LIMIT);
        }
    }
}

/// The lab's end of a node's NIC.
#[derive(Debug)]
pub struct Nic {
    network: Arc<NetworkNamespace>,
    port: String,
    segment: Segment,
}

impl Nic {
    /// Pulls the cable: the interface in the node loses its carrier.
    pub async fn pull(&self) -> Result<()> {
        self.network.ip(&format!("link set {} down\n", self.port)).await
    }

    /// Drops every packet in both directions, while the interface in the node keeps its carrier.
    pub async fn drop_packets(&self) -> Result<()> {
        self.network.ip(&format!("link set {} nomaster\n", self.port)).await
    }

    /// Reverts both.
    pub async fn restore(&self) -> Result<()> {
        self.network.ip(&format!("link set {} master {} up\n", self.port, self.segment.bridge())).await
    }
}

/// The path of a file, relative to the directory of this crate.
pub fn rig_file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}
