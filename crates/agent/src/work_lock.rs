//! One process at a time works on the network of a node: the agent, or a command that somebody types.
//!
//! The agent lives for ever, and so cannot hold this all the time. It takes it for each change and each look at the
//! network, and gives it back. The kernel gives it back for whoever is killed.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::time::{Instant, sleep};

use crate::lock_file::LockFile;

/// How often it is looked whether the other one has finished.
const PAUSE: Duration = Duration::from_millis(100);

/// The name of the file in the folder in which a node keeps its orders and the way back.
pub const FILE: &str = "working";

/// The right to work on the network; given up when dropped.
#[derive(Debug)]
#[must_use]
pub struct WorkLock(#[expect(dead_code, reason = "holding it is its use")] LockFile);

impl WorkLock {
    /// Waits for it, as long as it takes. `None` when the file cannot be used: nobody can hold it then, and where it is
    /// kept nothing can be noted either, which is said by whoever tries.
    pub async fn wait(path: PathBuf) -> Option<Self> {
        let mut told = false;
        loop {
            match LockFile::take(&path) {
                Ok(Some(lock)) => return Some(Self(lock)),
                Err(error) => {
                    tracing::warn!(lock = %path.display(), %error, "nobody can be kept out by this file");
                    return None;
                }
                Ok(None) if !told => {
                    tracing::info!(lock = %path.display(), "another program works on the network; it is waited for");
                    told = true;
                }
                Ok(None) => {}
            }
            sleep(PAUSE).await;
        }
    }

    /// The same for those who do not wait longer than `limit`; `None` when it is still held then.
    pub async fn wait_for(path: &Path, limit: Duration) -> io::Result<Option<Self>> {
        let end = Instant::now() + limit;
        loop {
            match LockFile::take(path)? {
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
    async fn one_at_a_time_and_nobody_waits_longer_than_he_wants() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
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
    async fn a_file_that_cannot_be_made_keeps_nobody_out() {
        let path = Path::new("/proc/no-such-folder/working");
        assert!(WorkLock::wait(path.to_owned()).await.is_none());
        assert!(WorkLock::wait_for(path, Duration::ZERO).await.is_err());
    }
}
