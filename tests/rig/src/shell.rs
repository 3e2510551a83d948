//! What every kind of node can do: run a command inside.

use std::{path::Path, time::Duration};

use anyhow::Result;

use crate::{NmNode, Output, UmlNode, process::Invocation};

/// A node that commands can be run in.
pub trait Shell {
    /// Runs a command in the node, which is killed when `limit` has passed.
    fn run(&self, invocation: Invocation, limit: Duration) -> impl Future<Output = Result<Output>> + Send;

    /// Where the node sees a file of the machine.
    fn sees(&self, path: &Path) -> Result<String>;

    /// Runs lines of shell, which end at the first one that fails.
    fn lines(&self, script: &str, limit: Duration) -> impl Future<Output = Result<Output>> + Send {
        self.run(Invocation::new(["sh", "-e"]).stdin(script), limit)
    }
}

impl Shell for NmNode {
    async fn run(&self, invocation: Invocation, limit: Duration) -> Result<Output> {
        self.exec_with(invocation, limit).await
    }

    fn sees(&self, path: &Path) -> Result<String> {
        Ok(path.display().to_string())
    }
}

impl Shell for UmlNode {
    async fn run(&self, invocation: Invocation, limit: Duration) -> Result<Output> {
        self.exec_with(invocation, limit).await
    }

    fn sees(&self, path: &Path) -> Result<String> {
        Self::path_inside(path)
    }
}
