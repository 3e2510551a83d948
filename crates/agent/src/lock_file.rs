//! A file that one process at a time can hold. The kernel gives it back for whoever is killed.

use std::{fs::File, io, os::unix::fs::OpenOptionsExt as _, path::Path};

use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg},
};

/// The file, held until this is dropped.
#[derive(Debug)]
#[must_use]
pub struct LockFile(#[expect(dead_code, reason = "holding it is its use")] Flock<File>);

impl LockFile {
    /// Takes the file, which is made if it is not there; `None` when another process has it.
    pub fn take(path: &Path) -> io::Result<Option<Self>> {
        let file = File::options().create(true).truncate(false).write(true).mode(0o600).open(path)?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok(Some(Self(lock))),
            Err((_, Errno::EWOULDBLOCK)) => Ok(None),
            Err((_, errno)) => Err(errno.into()),
        }
    }
}
