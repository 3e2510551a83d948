//! Documents that cannot work are refused before a change begins, and similar ones that can work are applied.
//!
//! The names of NetworkManager's checkpoints show that no change has begun: they are numbered, and every change creates
//! one.

mod accepted;
mod refused;

use std::{path::Path, time::Duration};

use anyhow::{Context, Result, ensure};
use rig::{Lab, NmNode, Output, UmlNode, binaries, process::Invocation};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_mins(4);
/// Multiplies the time limits of the program, so that a node on a busy machine does not exceed them.
const SLOWNESS: &str = "--slowness=10";

/// A node of either kind, with the program that calls the host on it.
struct PreflightFixture {
    node: Node,
    program: String,
    _lab: Lab,
}

enum Node {
    Namespaces(Box<NmNode>),
    OwnKernel(Box<UmlNode>),
}

impl PreflightFixture {
    async fn on_namespaces() -> Result<Self> {
        let program = binaries::machine_host().await?.display().to_string();
        let lab = Lab::new().await?;
        let node = lab.nm_node("node1").start().await?;
        node.settle().await?;
        Ok(Self { node: Node::Namespaces(Box::new(node)), program, _lab: lab })
    }

    async fn on_own_kernel() -> Result<Self> {
        let program = UmlNode::path_inside(&binaries::machine_host().await?)?;
        let lab = Lab::new().await?;
        let node = lab.uml_node("node1").start().await?;
        Ok(Self { node: Node::OwnKernel(Box::new(node)), program, _lab: lab })
    }

    async fn run(&self, call: Invocation) -> Result<Output> {
        match &self.node {
            Node::Namespaces(node) => node.exec_with(call, LIMIT).await,
            Node::OwnKernel(node) => node.exec_with(call, LIMIT).await,
        }
    }

    async fn exec(&self, words: &[&str]) -> Result<Output> {
        self.run(Invocation::new(words.iter().copied())).await
    }

    async fn change(&self, desired: &Value) -> Result<Value> {
        let call =
            Invocation::new([&self.program, "--journal=/run/journal", SLOWNESS, "change", "--deadline=120"])
                .stdin(desired.to_string())
                .env("RUST_BACKTRACE", "0");
        self.run(call).await?.json()
    }

    /// Applies these interfaces, which has to succeed.
    async fn applies(&self, what: &str, interfaces: &Value) -> Result<()> {
        self.applies_document(what, &json!({ "interfaces": interfaces })).await
    }

    async fn applies_document(&self, what: &str, desired: &Value) -> Result<()> {
        let applied = self.change(desired).await.context(what.to_owned())?;
        ensure!(applied.get("ok").is_some(), "{what}: {applied}");
        Ok(())
    }

    /// The link as the kernel has it.
    async fn link(&self, name: &str) -> Result<Value> {
        let links = self.exec(&["ip", "-json", "-details", "link", "show", name]).await?.json()?;
        Ok(links[0].clone())
    }

    async fn kernel(&self) -> Result<Value> {
        let mut links = self.exec(&["ip", "-json", "address"]).await?.json()?;
        for link in links.as_array_mut().into_iter().flatten() {
            for address in link["addr_info"].as_array_mut().into_iter().flatten() {
                for moving in ["valid_life_time", "preferred_life_time"] {
                    address.as_object_mut().map(|address| address.remove(moving));
                }
            }
        }
        Ok(links)
    }

    /// The number of the next checkpoint, which this creates and destroys.
    async fn count_checkpoints(&self) -> Result<u64> {
        let manager = "org.freedesktop.NetworkManager";
        let call = |method: &str, arguments: &[&str]| {
            let to = [format!("--dest={manager}"), "/org/freedesktop/NetworkManager".to_owned()];
            Invocation::new(["dbus-send", "--system", "--print-reply=literal"])
                .args(to)
                .arg(format!("{manager}.{method}"))
                .args(arguments.iter().copied())
        };
        let made = self.run(call("CheckpointCreate", &["array:objpath:", "uint32:180", "uint32:0"])).await?;
        let path = made.success()?.trim().to_owned();
        self.run(call("CheckpointDestroy", &[&format!("objpath:{path}")])).await?.success()?;
        let number = Path::new(&path).file_name().and_then(|name| name.to_str()).context("a name")?;
        Ok(number.parse()?)
    }

    /// Each document is refused with this kind of error and a text with this beginning, and no change has begun.
    async fn all_are_refused(&self, table: &[(Value, &str, &str)]) -> Result<()> {
        let (before, counted) = (self.kernel().await?, self.count_checkpoints().await?);
        for (desired, kind, text) in table {
            let refused = self.change(desired).await?;
            assert_eq!(refused["error"], *kind, "{refused}");
            assert!(
                refused["text"].as_str().is_some_and(|found| found.starts_with(text)),
                "{text}: {refused}"
            );
        }
        assert_eq!(self.count_checkpoints().await?, counted + 1, "a change has begun");
        assert_eq!(self.kernel().await?, before);
        Ok(())
    }
}
