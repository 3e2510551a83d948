//! Noticing that somebody has changed a folder.

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

/// How long a folder is left alone after a change: whoever copies files copies several.
const SETTLE: Duration = Duration::from_millis(200);
/// How often a folder that has vanished is looked for.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// A folder that is watched.
#[derive(Debug)]
pub(super) struct Watched {
    folder: PathBuf,
    inotify: Option<AsyncFd<Source>>,
}

/// What tokio waits for has to give its number.
#[derive(Debug)]
struct Source(Inotify);

impl AsRawFd for Source {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl Watched {
    pub(super) fn new(folder: PathBuf) -> io::Result<Self> {
        let inotify = Some(watch(&folder)?);
        Ok(Self { folder, inotify })
    }

    /// Waits until something in the folder may have changed.
    pub(super) async fn changed(&mut self) -> io::Result<()> {
        let Some(inotify) = &self.inotify else {
            sleep(LOOK_AGAIN).await;
            self.inotify = watch(&self.folder).ok();
            return Ok(());
        };
        let gone = inotify.async_io(Interest::READABLE, is_gone).await?;
        sleep(SETTLE).await;
        // What has come in meanwhile is covered by the look that follows.
        let gone = gone | is_gone(inotify.get_ref()).unwrap_or(false);
        if gone {
            self.inotify = watch(&self.folder).ok();
        }
        Ok(())
    }
}

/// Reads what there is; true when the folder itself is no longer there.
fn is_gone(inotify: &Source) -> io::Result<bool> {
    let events = inotify.0.read_events()?;
    Ok(events.iter().any(|event| event.mask.contains(AddWatchFlags::IN_IGNORED)))
}

fn watch(folder: &Path) -> io::Result<AsyncFd<Source>> {
    let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
    let flags = AddWatchFlags::IN_CLOSE_WRITE
        | AddWatchFlags::IN_MOVED_TO
        | AddWatchFlags::IN_MOVED_FROM
        | AddWatchFlags::IN_CREATE
        | AddWatchFlags::IN_DELETE
        | AddWatchFlags::IN_DELETE_SELF
        | AddWatchFlags::IN_MOVE_SELF
        | AddWatchFlags::IN_ONLYDIR;
    inotify.add_watch(folder, flags)?;
    // SAFETY: the source owns its descriptor, always gives the same one, and closes it only when it is dropped.
    unsafe { AsyncFd::register_with_interest(Source(inotify), Interest::READABLE) }
        .map_err(|error| error.into_parts().1)
}
