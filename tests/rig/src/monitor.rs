//! What the kernel of a node tells everybody who listens.

use std::{path::Path, time::Duration};

use anyhow::{Result, ensure};
use tokio::time::Instant;

use crate::{
    NmNode,
    process::{Invocation, Process},
    wait,
};

const REST_LIMIT: Duration = Duration::from_mins(3);
/// As long as this without a word, the kernel is at rest.
const QUIET: Duration = Duration::from_secs(3);

/// Listens to links, addresses, routes and rules of a node; until dropped.
#[derive(Debug)]
pub struct Monitor {
    process: Process,
    /// How much it had heard before the kernel came to rest.
    before: usize,
}

impl Monitor {
    /// What was told since the kernel was at rest.
    pub fn heard(&self) -> String {
        self.process.log_tail(usize::MAX).split_off(self.before)
    }
}

impl NmNode {
    /// Listens to everything that the kernel is told, once the kernel itself has come to rest.
    pub async fn monitor(&self, log: &Path) -> Result<Monitor> {
        self.bridges_come_to_rest().await?;
        let monitor = Invocation::new(["ip", "-ts", "monitor", "link", "address", "route", "rule"]);
        let process = self.enter(monitor).start("monitor", log)?;
        // Timers of the kernel are late by up to an eighth of their length.
        let mut monitor = Monitor { process, before: 0 };
        let mut since = Instant::now();
        wait::until(REST_LIMIT, "the kernel to be at rest", async || {
            let heard = monitor.heard();
            if !heard.is_empty() {
                monitor.before += heard.len();
                since = Instant::now();
            }
            ensure!(since.elapsed() >= QUIET, "it still moves: {heard}");
            Ok(())
        })
        .await?;
        Ok(monitor)
    }
}
