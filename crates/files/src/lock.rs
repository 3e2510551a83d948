//! A lock file, which at most one process can hold.

use std::{
    fs::{File, TryLockError},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

/// An exclusive `flock` on a file. It ends when this is dropped or when the process ends, however it ends.
#[derive(Debug)]
#[must_use = "the lock is released when this is dropped"]
pub struct FileLock(File);

/// Takes the lock, and creates the file if it does not exist; `None` while another process holds the lock.
///
/// Fails when the file cannot be created or opened, for example because its directory does not exist.
pub fn try_lock(path: &Path) -> io::Result<Option<FileLock>> {
    let file = File::options().create(true).truncate(false).write(true).mode(0o600).open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(FileLock(file))),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // Closing the file would not do: a child that was forked and has not called exec yet has a copy of it.
        let _ = self.0.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_is_free_again_as_soon_as_its_holder_is_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let first = try_lock(&path).unwrap();
        assert!(first.is_some());
        assert!(try_lock(&path).unwrap().is_none());
        drop(first);
        assert!(try_lock(&path).unwrap().is_some());
        assert!(try_lock(&directory.path().join("missing/lock")).is_err());
    }
}
