//! The world of one test: a network of its own, a scratch folder, and the services that live on the network.
//!
//! ```text
//!   front 10.99.0.0/24, fd99::/64      API server .1   DNS .53   gateway .254   DHCP
//!     │ eth0 of every node (mgmt0 of a full-kernel node)
//!   back  10.98.0.0/24, fd98::/64      nothing but .1, and who lends addresses where a test wants it
//!     │ eth1, eth2 … of every node
//! ```
//!
//! Two segments, because a node with two interfaces on one of them answers for both addresses on either one.
//! Labs cannot see each other, so tests use the same addresses and run at the same time.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU32, Ordering},
    },
};

use anyhow::{Context, Result, ensure};

use crate::{
    netns::NetworkNamespace,
    parts, process,
    services::{Gateway, Service},
    sweep,
};

/// A segment of the lab's network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment {
    Front,
    Back,
}

impl Segment {
    /// The bridge's name in the lab's namespace.
    pub fn bridge(self) -> &'static str {
        match self {
            Self::Front => "front",
            Self::Back => "back",
        }
    }
}

/// A test's own world. Clones share it; it is gone when the last clone is, and parts keep a clone.
#[derive(Clone, Debug)]
pub struct Lab {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    // Fields drop in this order: first what writes to the folder, then the folder.
    gateway: Gateway,
    dhcp: Service,
    dns: Service,
    network: Arc<NetworkNamespace>,
    next_node: AtomicU8,
    folder: Scratch,
}

impl Lab {
    pub async fn new() -> Result<Self> {
        static LABS: AtomicU32 = AtomicU32::new(0);
        ensure!(nix::unistd::geteuid().is_root(), "a lab is made of namespaces: run it as root");
        sweep::leftovers_of_dead_processes()?;
        let id = format!("knmstate-rig-{}-{}", std::process::id(), LABS.fetch_add(1, Ordering::Relaxed));
        let folder = Scratch::create(id.clone())?;
        let network = Arc::new(NetworkNamespace::create(&folder.path.join("holder.log"), &id).await?);
        // The mask lets LLDP through to the other nodes, which a bridge otherwise keeps to itself.
        network
            .ip("link set lo up\n\
                 link add front type bridge forward_delay 0\n\
                 addr add 10.99.0.1/24 dev front\n\
                 addr add 10.99.0.53/24 dev front\n\
                 addr add fd99::1/64 dev front nodad\n\
                 addr add fd99::53/64 dev front nodad\n\
                 link set front up\n\
                 link add back type bridge forward_delay 0 group_fwd_mask 0xfff8\n\
                 addr add 10.98.0.1/24 dev back\n\
                 addr add fd98::1/64 dev back nodad\n\
                 link set back up\n")
            .await?;
        let gateway = Gateway::new(network.clone());
        gateway.on().await?;
        let dhcp = Service::dhcp(network.clone(), &folder.path, &id);
        let dns = Service::dns(network.clone(), &folder.path, &id);
        Ok(Self {
            inner: Arc::new(Inner { gateway, dhcp, dns, network, next_node: AtomicU8::new(11), folder }),
        })
    }

    /// The name that all its processes carry in their environment.
    pub fn id(&self) -> &str {
        &self.inner.folder.id
    }

    /// The scratch folder.
    pub fn folder(&self) -> &Path {
        &self.inner.folder.path
    }

    pub fn network(&self) -> &NetworkNamespace {
        &self.inner.network
    }

    pub(crate) fn shared_network(&self) -> Arc<NetworkNamespace> {
        self.inner.network.clone()
    }

    /// The default gateway of the front segment; on from the start.
    pub fn gateway(&self) -> &Gateway {
        &self.inner.gateway
    }

    /// DHCPv4, DHCPv6 and router advertisements on the front segment; off until asked for.
    pub fn dhcp(&self) -> &Service {
        &self.inner.dhcp
    }

    /// DHCPv4, DHCPv6 and router advertisements on the back segment, with ten addresses of each family from `first` on,
    /// lent for so long (`2m` at least, or `infinite`); off until asked for.
    pub fn lender(&self, first: u8, time: &str) -> Service {
        Service::lender(self.shared_network(), self.folder(), self.id(), first, time)
    }

    /// A name server at .53 of the front segment; off until asked for.
    pub fn dns(&self) -> &Service {
        &self.inner.dns
    }

    /// The last byte of a new node's addresses, and its place in port names.
    pub(crate) fn next_node(&self) -> Result<u8> {
        let number = self.inner.next_node.fetch_add(1, Ordering::Relaxed);
        ensure!(number < 100, "a lab has room for 89 nodes");
        Ok(number)
    }
}

/// A folder that is removed with its owner, and shown when the test fails.
#[derive(Debug)]
struct Scratch {
    id: String,
    path: PathBuf,
}

impl Scratch {
    fn create(id: String) -> Result<Self> {
        let path = parts::scratch_root().join(&id);
        std::fs::create_dir(&path).with_context(|| format!("create {}", path.display()))?;
        Ok(Self { id, path })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for log in logs_below(&self.path) {
                eprintln!("--- {} (end)\n{}", log.display(), process::tail(&log, 15));
            }
        }
        if parts::keep_scratch() {
            eprintln!("kept: {}", self.path.display());
            return;
        }
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            eprintln!("{} is left behind: {error}", self.path.display());
        }
    }
}

fn logs_below(folder: &Path) -> Vec<PathBuf> {
    let mut logs = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() && !path.is_symlink() {
            logs.append(&mut logs_below(&path));
        } else if path.extension().is_some_and(|extension| extension == "log") {
            logs.push(path);
        }
    }
    logs
}
