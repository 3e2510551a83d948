//! Notices changes in a directory.

use std::{
    io,
    os::fd::{AsFd as _, AsRawFd, RawFd},
    path::{Path, PathBuf},
    time::Duration,
};

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use tokio::{
    io::{Interest, unix::AsyncFd},
    time::sleep,
};

/// How long to wait after a change before reading: several files are often copied together.
const PAUSE_AFTER_CHANGE: Duration = Duration::from_millis(200);
/// The time between two attempts to watch a directory that was removed.
const RETRY_PAUSE: Duration = Duration::from_secs(5);

/// A watch on a directory.
#[derive(Debug)]
pub(super) struct DirectoryWatch {
    directory: PathBuf,
    inotify: Option<AsyncFd<InotifyFd>>,
}

/// An inotify instance as tokio needs it, with its descriptor.
#[derive(Debug)]
struct InotifyFd(Inotify);

impl AsRawFd for InotifyFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl DirectoryWatch {
    /// Starts to watch. Fails when the directory does not exist.
    pub(super) fn new(directory: PathBuf) -> io::Result<Self> {
        let inotify = Some(watch(&directory)?);
        Ok(Self { directory, inotify })
    }

    /// Waits until the content of the directory may have changed.
    pub(super) async fn changed(&mut self) -> io::Result<()> {
        let Some(inotify) = &self.inotify else {
            sleep(RETRY_PAUSE).await;
            self.inotify = watch(&self.directory).ok();
            return Ok(());
        };
        let gone = inotify.async_io(Interest::READABLE, is_gone).await?;
        sleep(PAUSE_AFTER_CHANGE).await;
        // The reading that follows has the changes up to now, so drop their events.
        let gone = gone | is_gone(inotify.get_ref()).unwrap_or(false);
        if gone {
            self.inotify = watch(&self.directory).ok();
        }
        Ok(())
    }
}

/// Reads all pending events; true when the directory itself was removed.
fn is_gone(inotify: &InotifyFd) -> io::Result<bool> {
    let events = inotify.0.read_events()?;
    Ok(events.iter().any(|event| event.mask.contains(AddWatchFlags::IN_IGNORED)))
}

fn watch(directory: &Path) -> io::Result<AsyncFd<InotifyFd>> {
    let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
    let flags = AddWatchFlags::IN_CLOSE_WRITE
        | AddWatchFlags::IN_MOVED_TO
        | AddWatchFlags::IN_MOVED_FROM
        | AddWatchFlags::IN_CREATE
        | AddWatchFlags::IN_DELETE
        | AddWatchFlags::IN_DELETE_SELF
        | AddWatchFlags::IN_MOVE_SELF
        | AddWatchFlags::IN_ONLYDIR;
    inotify.add_watch(directory, flags)?;
    // SAFETY: `InotifyFd` owns its descriptor, always returns the same one, and closes it only when it is dropped.
    unsafe { AsyncFd::register_with_interest(InotifyFd(inotify), Interest::READABLE) }
        .map_err(|error| error.into_parts().1)
}
