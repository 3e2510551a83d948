//! The node that the examples run on, one after the other.

use std::{path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};
use rig::{Lab, NmNode, Output, UmlNode, Userland, binaries, process::Invocation, shell::Shell};
use serde_json::Value;

use super::example::{Example, NodeKind};

const LIMIT: Duration = Duration::from_mins(4);
pub(super) const NAME: &str = "node1";
const DIRECTORY: &str = "/run/catalogue";

/// Which node to start.
#[derive(Clone, Copy, Debug)]
pub(super) enum NodeChoice {
    Usual(NodeKind),
    /// A full kernel with another NetworkManager.
    WithUserland(Userland),
}

pub(super) enum ExampleNode {
    Namespaces(NmNode),
    FullKernel(UmlNode),
}

impl Shell for ExampleNode {
    async fn run(&self, invocation: Invocation, limit: Duration) -> Result<Output> {
        match self {
            Self::Namespaces(node) => node.run(invocation, limit).await,
            Self::FullKernel(node) => node.run(invocation, limit).await,
        }
    }

    fn path_in_node(&self, path: &Path) -> Result<String> {
        match self {
            Self::Namespaces(node) => node.path_in_node(path),
            Self::FullKernel(node) => node.path_in_node(path),
        }
    }
}

impl ExampleNode {
    pub(super) async fn start(lab: &Lab, choice: NodeChoice) -> Result<Self> {
        match choice {
            NodeChoice::Usual(NodeKind::Namespaces) => {
                let node = lab.nm_node(NAME).nics(3).start().await?;
                // The examples configure the name servers.
                node.exec(["nmcli", "connection", "modify", "eth0", "ipv4.dns", ""]).await?.success()?;
                node.settle().await?;
                Ok(Self::Namespaces(node))
            }
            NodeChoice::Usual(kind) => {
                let node = lab.uml_node(NAME);
                let node = match kind {
                    NodeKind::OpenVswitch => node.open_vswitch(),
                    NodeKind::SrIov => node.simulated_nics(2),
                    _ => node,
                };
                Ok(Self::FullKernel(node.start().await?))
            }
            NodeChoice::WithUserland(userland) => {
                Ok(Self::FullKernel(lab.uml_node(NAME).userland(userland).start().await?))
            }
        }
    }

    /// Major and minor number of its NetworkManager.
    pub(super) async fn network_manager(&self) -> Result<String> {
        let version = self.run_script("NetworkManager --version", LIMIT).await?.success()?;
        let mut numbers = version.trim().split('.');
        let (major, minor) = numbers.next().zip(numbers.next()).with_context(|| version.clone())?;
        Ok(format!("{major}.{minor}"))
    }

    /// `knmstate standalone --once` with this example alone.
    pub(super) async fn once(&self, example: &Example) -> Result<Output> {
        let program = self.path_in_node(&binaries::knmstate().await?)?;
        let script = format!(
            "rm -rf {DIRECTORY}/policies && mkdir -p {DIRECTORY}/policies && cp {} {DIRECTORY}/policies/p.yaml\n\
             exec {program} standalone --once --policies={DIRECTORY}/policies --state-dir={DIRECTORY}/state \
             --output={DIRECTORY}/output --node-name={NAME} --max-attempts=1 --v=info",
            self.path_in_node(&example.path)?,
        );
        self.run(Invocation::new(["sh", "-ec", &script]).env("RUST_BACKTRACE", "0"), LIMIT).await
    }

    /// The resolved desired state, and the state that the node reports.
    pub(super) async fn desired_and_reported(&self, example: &Example) -> Result<(Value, Value)> {
        let read = async |file: String| -> Result<Value> {
            let text =
                self.run_script(&format!("cat {DIRECTORY}/output/{file}.yaml"), LIMIT).await?.success()?;
            Ok(serde_saphyr::from_str(&text)?)
        };
        let enactment = read(format!("nnce-{NAME}.{}", example.policy)).await?;
        let state = read(format!("nns-{NAME}")).await?;
        let desired = enactment["status"]["desiredState"].clone();
        ensure!(desired.is_object(), "{enactment}");
        Ok((desired, state["status"]["currentState"].clone()))
    }
}
