//! What cannot work is refused before anything is tried; and what looks like it and works is applied.
//!
//! That nothing was tried shows in the names of NetworkManager's checkpoints: it counts them, and every change begins
//! with one.

mod open;
mod refused;

use std::{path::Path, time::Duration};

use anyhow::{Context, Result, ensure};
use rig::{Lab, NmNode, Output, UmlNode, binaries, process::Invocation};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_mins(4);
/// The program keeps to no limit that a node on a busy machine could need.
const SLOW: &str = "--slowness=10";

/// A node of either kind, with the program that puts the host on trial.
struct Trial {
    node: Node,
    program: String,
    _lab: Lab,
}

enum Node {
    Namespaces(Box<NmNode>),
    OwnKernel(Box<UmlNode>),
}

impl Trial {
    async fn on_namespaces() -> Result<Self> {
        let program = binaries::machine_host().await?.display().to_string();
        let lab = Lab::new().await?;
        let node = lab.nm_node("node1").start().await?;
        node.come_to_rest().await?;
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
            Invocation::new([&self.program, "--journal=/run/journal", SLOW, "change", "--deadline=120"])
                .stdin(desired.to_string())
                .env("RUST_BACKTRACE", "0");
        self.run(call).await?.json()
    }

    /// It has to work, and is the network then.
    async fn works(&self, what: &str, interfaces: &Value) -> Result<()> {
        self.all_works(what, &json!({ "interfaces": interfaces })).await
    }

    async fn all_works(&self, what: &str, desired: &Value) -> Result<()> {
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

    /// The number that the next checkpoint would have had.
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

    /// Each document is refused with this kind of error and a text that begins so, and nothing has been tried.
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
        assert_eq!(self.count_checkpoints().await?, counted + 1, "something was tried");
        assert_eq!(self.kernel().await?, before);
        Ok(())
    }
}
