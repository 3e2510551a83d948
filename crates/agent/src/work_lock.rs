//! At most one process at a time works on the network of a node: the agent, or a command that an admin runs.
//!
//! The agent runs for as long as the node, so it cannot hold this lock all the time. It takes the lock for each change
//! and each reading of the network. The kernel releases the lock of a process that is killed.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use knmstate_files::lock::{FileLock, try_lock};
use tokio::time::{Instant, sleep};

/// The time between two attempts to take the lock.
const PAUSE: Duration = Duration::from_millis(100);

/// The name of the lock file, in the directory in which a node keeps its orders and the journal.
pub const WORK_LOCK_FILE: &str = "working";

/// The held lock; released when dropped.
#[derive(Debug)]
#[must_use = "the lock is released when this is dropped"]
pub struct WorkLock(#[expect(dead_code, reason = "held until it is dropped, never read")] FileLock);

impl WorkLock {
    /// Waits for the lock without a limit. `None` when the file cannot be used: no process can hold the lock then, and
    /// the journal beside it cannot be written either, which the host reports when it tries.
    pub async fn wait(path: PathBuf) -> Option<Self> {
        let mut logged = false;
        loop {
            match try_lock(&path) {
                Ok(Some(lock)) => return Some(Self(lock)),
                Err(error) => {
                    tracing::warn!(%error, "cannot lock {}; other programs are not kept out", path.display());
                    return None;
                }
                Ok(None) if !logged => {
                    tracing::info!(lock = %path.display(), "waiting for another program that works on the network");
                    logged = true;
                }
                Ok(None) => {}
            }
            sleep(PAUSE).await;
        }
    }

    /// Waits for the lock, but not longer than `limit`; `None` when another process still holds it then. Fails when the
    /// file cannot be used.
    pub async fn wait_for(path: &Path, limit: Duration) -> io::Result<Option<Self>> {
        let end = Instant::now() + limit;
        loop {
            match try_lock(path)? {
                Some(lock) => return Ok(Some(Self(lock))),
                None if Instant::now() >= end => return Ok(None),
                None => sleep(PAUSE).await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_process_at_a_time_and_no_wait_beyond_its_limit() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(WORK_LOCK_FILE);
        let first = WorkLock::wait(path.clone()).await.unwrap();
        assert!(WorkLock::wait_for(&path, Duration::from_secs(5)).await.unwrap().is_none());
        let second = tokio::spawn(WorkLock::wait(path.clone()));
        sleep(Duration::from_mins(1)).await;
        assert!(!second.is_finished());
        drop(first);
        let second = second.await.unwrap();
        assert!(second.is_some());
        drop(second);
        assert!(WorkLock::wait_for(&path, Duration::ZERO).await.unwrap().is_some());
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_created_does_not_block() {
        let path = Path::new("/proc/no-such-directory/working");
        assert!(WorkLock::wait(path.to_owned()).await.is_none());
        assert!(WorkLock::wait_for(path, Duration::ZERO).await.is_err());
    }
}
