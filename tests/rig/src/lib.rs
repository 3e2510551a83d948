//! Real parts for tests: a Kubernetes API server and nodes with NetworkManager. One call starts each, and dropping
//! what the call returned ends it.
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! let lab = rig::Lab::new().await?;
//! let api = lab.api_server().start().await?;
//! let node = lab.nm_node("node1").start().await?;
//! node.exec(["nmcli", "device"]).await?;
//! # Ok(()) }
//! ```
//!
//! A [`Lab`] is the environment of one test: a network that is isolated from the machine's and from those of other
//! labs, and a scratch directory. [`ApiServer`] and the nodes ([`NmNode`], [`UmlNode`], [`KubeNode`]) run in it. They
//! end with the test, also when it fails, panics, or is killed by SIGKILL: processes ask the kernel to die with their
//! parent, and namespaces have no names. The next lab removes what the kernel does not: directories and cgroups.

mod api_server;
mod api_server_flags;
mod awake;
pub mod binaries;
mod concurrent_changes;
pub mod features;
pub mod fleet;
pub mod handler;
pub mod helm;
pub mod images;
mod kube_cgroup;
mod kube_config;
pub mod kube_node;
mod kubeconfig;
mod lab;
pub mod leftovers;
pub mod machine;
pub mod monitor;
mod netns;
mod nm_node;
pub mod parts;
mod pki;
pub mod port_forward;
pub mod process;
mod product;
mod reboot;
pub mod request;
pub mod role;
pub mod services;
pub mod shell;
mod skip;
mod snapshot;
mod sweep;
pub mod traffic;
mod uml_node;
mod userland;
pub mod wait;

pub use api_server::{ApiServer, ApiServerBuilder, BoundTo};
pub use concurrent_changes::ConcurrentChanges;
pub use knmstate_operator::Settings;
pub use kube_node::KubeNode;
pub use lab::{Lab, Segment};
pub use netns::NetworkNamespace;
pub use nm_node::{NmNode, NmNodeBuilder, Primary};
pub use process::Output;
pub use skip::skip;
pub use snapshot::Snapshot;
pub use uml_node::{GuestNic, UmlNode, UmlNodeBuilder};
pub use userland::Userland;
