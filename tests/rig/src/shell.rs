//! Runs commands in nodes of different kinds.

use std::{path::Path, time::Duration};

use anyhow::Result;

use crate::{NmNode, Output, UmlNode, process::Invocation};

/// A node in which commands can run.
pub trait Shell {
    /// Runs a command in the node, and kills it when `limit` has passed.
    fn run(&self, invocation: Invocation, limit: Duration) -> impl Future<Output = Result<Output>> + Send;

    /// The path in the node of a file of the machine.
    fn path_in_node(&self, path: &Path) -> Result<String>;

    /// Runs a shell script, which ends at the first command that fails.
    fn run_script(&self, script: &str, limit: Duration) -> impl Future<Output = Result<Output>> + Send {
        self.run(Invocation::new(["sh", "-e"]).stdin(script), limit)
    }
}

impl Shell for NmNode {
    async fn run(&self, invocation: Invocation, limit: Duration) -> Result<Output> {
        self.exec_with(invocation, limit).await
    }

    fn path_in_node(&self, path: &Path) -> Result<String> {
        Ok(path.display().to_string())
    }
}

impl Shell for UmlNode {
    async fn run(&self, invocation: Invocation, limit: Duration) -> Result<Output> {
        self.exec_with(invocation, limit).await
    }

    fn path_in_node(&self, path: &Path) -> Result<String> {
        Self::path_inside(path)
    }
}
