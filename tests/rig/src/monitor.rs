//! Records the kernel's notifications in a node, for tests that prove that nothing was changed.

use std::{path::Path, time::Duration};

use anyhow::{Result, ensure};
use tokio::time::Instant;

use crate::{
    NmNode,
    process::{Invocation, Process},
    wait,
};

const SETTLE_LIMIT: Duration = Duration::from_mins(3);
/// The kernel has settled when it has sent no notification for this time.
const QUIET_TIME: Duration = Duration::from_secs(3);

/// Records changes of links, addresses, routes and rules of a node, until it is dropped.
#[derive(Debug)]
pub struct Monitor {
    process: Process,
    /// The length of the log when the kernel had settled.
    settled_at: usize,
}

impl Monitor {
    /// The notifications since the kernel had settled, in the format of `ip monitor`.
    pub fn messages(&self) -> String {
        self.process.log_tail(usize::MAX).split_off(self.settled_at)
    }
}

impl NmNode {
    /// Starts to record, and returns when the kernel sends no more notifications by itself.
    pub async fn monitor(&self, log: &Path) -> Result<Monitor> {
        self.wait_for_bridges().await?;
        let monitor = Invocation::new(["ip", "-ts", "monitor", "link", "address", "route", "rule"]);
        let process = self.enter(monitor).start("monitor", log)?;
        let mut monitor = Monitor { process, settled_at: 0 };
        let mut since = Instant::now();
        // Timers of the kernel can be late by an eighth of their length, so that a fixed time is not enough.
        wait::until(SETTLE_LIMIT, "the kernel to settle", async || {
            let messages = monitor.messages();
            if !messages.is_empty() {
                monitor.settled_at += messages.len();
                since = Instant::now();
            }
            ensure!(since.elapsed() >= QUIET_TIME, "the last notification: {messages}");
            Ok(())
        })
        .await?;
        Ok(monitor)
    }
}
