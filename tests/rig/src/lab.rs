//! The environment of one test: a network, a scratch directory, and the services of that network.
//!
//! ```text
//!   front 10.99.0.0/24, fd99::/64      API server .1   DNS .53   gateway .254   DHCP
//!     │ eth0 of every node (mgmt0 of a full-kernel node)
//!   back  10.98.0.0/24, fd98::/64      only .1, and a DHCP server if a test starts one
//!     │ eth1, eth2 … of every node
//! ```
//!
//! There are two segments, because a node with two interfaces on one segment answers ARP for both addresses on either.
//! Labs are isolated from each other, so tests use the same addresses and run at the same time.

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

/// A segment of the lab's network: a bridge that nodes are connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment {
    /// With the API server, the gateway, DNS and DHCP.
    Front,
    /// For the interfaces that tests configure.
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

/// The environment of one test. Clones share it. Each part of the lab keeps a clone, and the lab ends with the last
/// one.
#[derive(Clone, Debug)]
pub struct Lab {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    // Fields drop in this order: the processes that write to the directory, then the directory.
    gateway: Gateway,
    dhcp: Service,
    dns: Service,
    network: Arc<NetworkNamespace>,
    next_node: AtomicU8,
    scratch: ScratchDirectory,
}

impl Lab {
    /// Creates the namespace and its bridges, and switches the gateway on. Fails without root.
    pub async fn new() -> Result<Self> {
        static LABS: AtomicU32 = AtomicU32::new(0);
        ensure!(nix::unistd::geteuid().is_root(), "a lab creates namespaces, which needs root");
        sweep::remove_leftovers_of_dead_processes()?;
        let id = format!("knmstate-rig-{}-{}", std::process::id(), LABS.fetch_add(1, Ordering::Relaxed));
        let scratch = ScratchDirectory::create(id.clone())?;
        let network = Arc::new(NetworkNamespace::create(&scratch.path.join("holder.log"), &id).await?);
        // Without the mask a bridge does not forward LLDP frames.
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
        let dhcp = Service::dhcp(network.clone(), &scratch.path, &id);
        let dns = Service::dns(network.clone(), &scratch.path, &id);
        Ok(Self {
            shared: Arc::new(Shared { gateway, dhcp, dns, network, next_node: AtomicU8::new(11), scratch }),
        })
    }

    /// The name of the lab. Its processes have it in their environment, its directory and cgroups in their names.
    pub fn id(&self) -> &str {
        &self.shared.scratch.id
    }

    /// The scratch directory, removed at the end.
    pub fn directory(&self) -> &Path {
        &self.shared.scratch.path
    }

    /// The namespace with both segments and the API server.
    pub fn network(&self) -> &NetworkNamespace {
        &self.shared.network
    }

    pub(crate) fn shared_network(&self) -> Arc<NetworkNamespace> {
        self.shared.network.clone()
    }

    /// The default gateway of the front segment; it is on when the lab starts.
    pub fn gateway(&self) -> &Gateway {
        &self.shared.gateway
    }

    /// DHCPv4, DHCPv6 and router advertisements on the front segment; off until [`Service::on`].
    pub fn dhcp(&self) -> &Service {
        &self.shared.dhcp
    }

    /// DHCPv4, DHCPv6 and router advertisements on the back segment, with ten addresses of each family from `first` on;
    /// off until [`Service::on`]. `lease_time` is in dnsmasq's notation: `2m` at least, or `infinite`.
    pub fn dhcp_on_back(&self, first: u8, lease_time: &str) -> Service {
        Service::dhcp_on_back(self.shared_network(), self.directory(), self.id(), first, lease_time)
    }

    /// A name server at .53 of the front segment; off until [`Service::on`].
    pub fn dns(&self) -> &Service {
        &self.shared.dns
    }

    /// A number for a new node: the last byte of its addresses, and a part of the names of its ports.
    pub(crate) fn next_node(&self) -> Result<u8> {
        let number = self.shared.next_node.fetch_add(1, Ordering::Relaxed);
        ensure!(number < 100, "a lab can have at most 89 nodes");
        Ok(number)
    }
}

/// A directory that is removed on drop. If the test panics, the ends of the logs in it are printed before.
#[derive(Debug)]
struct ScratchDirectory {
    id: String,
    path: PathBuf,
}

impl ScratchDirectory {
    fn create(id: String) -> Result<Self> {
        let path = parts::scratch_root().join(&id);
        std::fs::create_dir(&path).with_context(|| format!("create {}", path.display()))?;
        Ok(Self { id, path })
    }
}

impl Drop for ScratchDirectory {
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
            eprintln!("cannot remove {}: {error}", self.path.display());
        }
    }
}

fn logs_below(directory: &Path) -> Vec<PathBuf> {
    let mut logs = Vec::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() && !path.is_symlink() {
            logs.append(&mut logs_below(&path));
        } else if path.extension().is_some_and(|extension| extension == "log") {
            logs.push(path);
        }
    }
    logs
}
