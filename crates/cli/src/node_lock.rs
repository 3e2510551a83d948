//! One agent per node, however many are installed.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use knmstate_files::lock::{FileLock, try_lock};

/// How long to wait before another attempt.
const PAUSE: Duration = Duration::from_secs(5);

/// The same for those who do not wait long.
const SHORT_PAUSE: Duration = Duration::from_millis(100);

/// The lock of this node's handler. It is released when dropped, and by the kernel when the process ends.
#[derive(Debug)]
#[must_use]
pub struct NodeLock(#[expect(dead_code, reason = "holding it is its use")] FileLock);

/// Waits, for ever if need be, until no other process holds the lock.
pub async fn acquire(path: PathBuf) -> NodeLock {
    let mut logged = None;
    loop {
        let why = match try_lock(&path) {
            Ok(Some(lock)) => {
                tracing::info!(lock = %path.display(), "this is the handler of the node");
                return NodeLock(lock);
            }
            Ok(None) => "another handler is at work on this node".to_owned(),
            Err(error) => format!("the lock file cannot be used: {error}"),
        };
        if logged.as_ref() != Some(&why) {
            let seconds = PAUSE.as_secs();
            tracing::warn!(lock = %path.display(), "{why}; tried again every {seconds} s");
            logged = Some(why);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// The lock, unless another process holds it for longer than one that was killed needs to end.
pub async fn try_acquire(path: &Path) -> io::Result<Option<NodeLock>> {
    for _ in 0..20 {
        if let Some(lock) = try_lock(path)? {
            return Ok(Some(NodeLock(lock)));
        }
        tokio::time::sleep(SHORT_PAUSE).await;
    }
    Ok(try_lock(path)?.map(NodeLock))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_second_waits_until_the_first_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let first = acquire(path.clone()).await;
        let mut second = tokio::spawn(acquire(path));
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert!(!second.is_finished());
        drop(first);
        let _second = (&mut second).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_directory_that_is_created_later_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let below = directory.path().join("later");
        let mut waiting = tokio::spawn(acquire(below.join("lock")));
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert!(!waiting.is_finished());
        std::fs::create_dir(&below).unwrap();
        let _lock = (&mut waiting).await.unwrap();
    }
}
