//! Cores that do not fall asleep while somebody needs them.
//!
//! A node with a kernel of its own is a handful of processes that wake each other for every system call inside. A core
//! with nothing else to do falls asleep in between, and to wake it takes longer than the call itself, most of all in a
//! virtual machine: readings of the network were measured to take five times as long. So every core gets something to
//! do that gives way to everything else.

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use anyhow::Result;

use crate::process::{Invocation, Process};

/// The cores stay awake as long as one of these is held.
#[derive(Debug)]
#[expect(dead_code, reason = "it is held, not looked at")]
pub(crate) struct Awake(Arc<Vec<Process>>);

impl Awake {
    pub(crate) fn keep() -> Result<Self> {
        static RUNNING: Mutex<Weak<Vec<Process>>> = Mutex::new(Weak::new());
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = running.upgrade() {
            return Ok(Self(running));
        }
        let busy = Invocation::new(["chrt", "--idle", "0", "sh", "-c", "while :; do :; done"]);
        let cores = std::thread::available_parallelism()?.get();
        let started = (0..cores).map(|_| busy.start("what keeps a core awake", Path::new("/dev/null")));
        let started = Arc::new(started.collect::<Result<Vec<_>>>()?);
        *running = Arc::downgrade(&started);
        Ok(Self(started))
    }
}
