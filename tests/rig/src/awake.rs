//! Keeps CPU cores out of idle states while a full-kernel node runs.
//!
//! Such a node is a few processes that wake each other for every system call inside. Between two wake-ups a core with
//! no other work becomes idle, and leaving the idle state takes longer than the call itself, most of all in a virtual
//! machine: reading the network state was measured to take five times as long. So each core gets a busy process with
//! the lowest priority.

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use anyhow::Result;

use crate::process::{Invocation, Process};

/// Cores do not become idle while a value of this type exists.
#[derive(Debug)]
#[expect(dead_code, reason = "held for its effect")]
pub(crate) struct Awake(Arc<Vec<Process>>);

impl Awake {
    /// Starts the busy processes, unless they run already. Fails when they cannot be started.
    pub(crate) fn keep() -> Result<Self> {
        static RUNNING: Mutex<Weak<Vec<Process>>> = Mutex::new(Weak::new());
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = running.upgrade() {
            return Ok(Self(running));
        }
        let busy = Invocation::new(["chrt", "--idle", "0", "sh", "-c", "while :; do :; done"]);
        let cores = std::thread::available_parallelism()?.get();
        let started =
            (0..cores).map(|_| busy.start("busy process that keeps a core awake", Path::new("/dev/null")));
        let started = Arc::new(started.collect::<Result<Vec<_>>>()?);
        *running = Arc::downgrade(&started);
        Ok(Self(started))
    }
}
