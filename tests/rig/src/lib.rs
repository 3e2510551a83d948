//! Real parts for tests, each started by one call and gone with its handle.
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
//! A [`Lab`] is the world of one test: a network that nothing else can see and a scratch folder. Parts live in it:
//! [`ApiServer`], and nodes from cheap to complete. Whatever happens to the test (an error, a panic, SIGKILL), the
//! parts go with it: processes ask the kernel to die with their parent, namespaces have no names, and the few things
//! that the kernel does not collect are swept by the next lab.

pub mod api_server;
mod awake;
pub mod binaries;
pub mod features;
pub mod fleet;
pub mod forward;
pub mod handler;
pub mod helm;
pub mod images;
mod kube_cgroup;
mod kube_config;
pub mod kube_node;
mod kubeconfig;
pub mod lab;
pub mod leftovers;
pub mod machine;
pub mod monitor;
pub mod netns;
pub mod nm_node;
pub mod overlap;
pub mod parts;
mod pki;
pub mod process;
pub mod product;
mod reboot;
pub mod request;
pub mod role;
pub mod services;
pub mod shell;
mod skip;
mod snapshot;
pub mod sweep;
pub mod traffic;
pub mod uml_node;
mod userland;
pub mod wait;

pub use api_server::{ApiServer, BoundTo};
pub use knmstate_operator::Settings;
pub use kube_node::KubeNode;
pub use lab::{Lab, Segment};
pub use nm_node::{NmNode, Primary};
pub use process::Output;
pub use skip::skip;
pub use snapshot::Snapshot;
pub use uml_node::UmlNode;
pub use userland::Userland;
