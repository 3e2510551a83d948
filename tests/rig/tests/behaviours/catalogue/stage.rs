//! The node that examples are tried on, one after the other.

use std::{path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};
use rig::{Lab, NmNode, Output, UmlNode, Userland, binaries, process::Invocation, shell::Shell};
use serde_json::Value;

use super::example::{Example, NodeKind};

const LIMIT: Duration = Duration::from_mins(4);
pub(super) const NAME: &str = "node1";
const FOLDER: &str = "/run/catalogue";

/// Which node to start.
#[derive(Clone, Copy, Debug)]
pub(super) enum Node {
    Usual(NodeKind),
    /// A full kernel with another NetworkManager.
    With(Userland),
}

pub(super) enum Stage {
    Namespaces(NmNode),
    FullKernel(UmlNode),
}

impl Shell for Stage {
    async fn run(&self, invocation: Invocation, limit: Duration) -> Result<Output> {
        match self {
            Self::Namespaces(node) => node.run(invocation, limit).await,
            Self::FullKernel(node) => node.run(invocation, limit).await,
        }
    }

    fn sees(&self, path: &Path) -> Result<String> {
        match self {
            Self::Namespaces(node) => node.sees(path),
            Self::FullKernel(node) => node.sees(path),
        }
    }
}

impl Stage {
    pub(super) async fn start(lab: &Lab, node: Node) -> Result<Self> {
        match node {
            Node::Usual(NodeKind::Namespaces) => {
                let node = lab.nm_node(NAME).nics(3).start().await?;
                // The name servers of the machine are a matter of the examples.
                node.exec(["nmcli", "connection", "modify", "eth0", "ipv4.dns", ""]).await?.success()?;
                node.come_to_rest().await?;
                Ok(Self::Namespaces(node))
            }
            Node::Usual(kind) => {
                let node = lab.uml_node(NAME);
                let node = match kind {
                    NodeKind::OpenVswitch => node.open_vswitch(),
                    NodeKind::SrIov => node.simulated_cards(2),
                    _ => node,
                };
                Ok(Self::FullKernel(node.start().await?))
            }
            Node::With(userland) => {
                Ok(Self::FullKernel(lab.uml_node(NAME).userland(userland).start().await?))
            }
        }
    }

    /// Major and minor number of its NetworkManager.
    pub(super) async fn network_manager(&self) -> Result<String> {
        let version = self.lines("NetworkManager --version", LIMIT).await?.success()?;
        let mut numbers = version.trim().split('.');
        let (major, minor) = numbers.next().zip(numbers.next()).with_context(|| version.clone())?;
        Ok(format!("{major}.{minor}"))
    }

    /// `knmstate standalone --once` with this example alone.
    pub(super) async fn once(&self, example: &Example) -> Result<Output> {
        let program = self.sees(&binaries::knmstate().await?)?;
        let script = format!(
            "rm -rf {FOLDER}/policies && mkdir -p {FOLDER}/policies && cp {} {FOLDER}/policies/p.yaml\n\
             exec {program} standalone --once --policies={FOLDER}/policies --state-dir={FOLDER}/state \
             --output={FOLDER}/output --node-name={NAME} --max-attempts=1 --v=info",
            self.sees(&example.path)?,
        );
        self.run(Invocation::new(["sh", "-ec", &script]).env("RUST_BACKTRACE", "0"), LIMIT).await
    }

    /// What was desired of the node, with everything filled in, and what it reports.
    pub(super) async fn told(&self, example: &Example) -> Result<(Value, Value)> {
        let read = async |file: String| -> Result<Value> {
            let text = self.lines(&format!("cat {FOLDER}/output/{file}.yaml"), LIMIT).await?.success()?;
            Ok(serde_saphyr::from_str(&text)?)
        };
        let enactment = read(format!("nnce-{NAME}.{}", example.policy)).await?;
        let state = read(format!("nns-{NAME}")).await?;
        let desired = enactment["status"]["desiredState"].clone();
        ensure!(desired.is_object(), "{enactment}");
        Ok((desired, state["status"]["currentState"].clone()))
    }
}
