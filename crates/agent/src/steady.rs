//! One change at a time, and nobody looks while it is half done.

use std::{path::PathBuf, sync::Arc, time::Duration};

use tokio::sync::{Mutex, Notify, OwnedMutexGuard};

use crate::work_lock::WorkLock;

/// Who changes the network holds this while it is neither as before nor settled; who reports it takes it to read.
#[derive(Clone, Debug, Default)]
pub struct Steady(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    lock: Arc<Mutex<()>>,
    settled: Notify,
    /// Keeps other processes out, too; see [`WorkLock`].
    file: Option<PathBuf>,
}

/// The network is in no in-between state, or is in one that its holder knows of, as long as this lives.
#[derive(Debug)]
#[expect(dead_code, reason = "it is held, not looked at")]
pub struct Held(Option<WorkLock>, OwnedMutexGuard<()>);

impl Steady {
    /// One that other processes respect, by a file that they know.
    pub fn shared_by(file: Option<PathBuf>) -> Self {
        Self(Arc::new(Inner { file, ..Inner::default() }))
    }

    /// Waits until the network is in no in-between state, and keeps it so.
    pub async fn hold(&self) -> Held {
        let guard = Arc::clone(&self.0.lock).lock_owned().await;
        let lock = match &self.0.file {
            Some(file) => WorkLock::wait(file.clone()).await,
            None => None,
        };
        Held(lock, guard)
    }

    /// The same if it is in none now; `None` while somebody changes it.
    pub async fn hold_if_free(&self) -> Option<Held> {
        let guard = Arc::clone(&self.0.lock).try_lock_owned().ok()?;
        let lock = match &self.0.file {
            // A file that cannot be used keeps nobody out.
            Some(file) => match WorkLock::wait_for(file, Duration::ZERO).await {
                Ok(None) => return None,
                taken => taken.ok().flatten(),
            },
            None => None,
        };
        Some(Held(lock, guard))
    }

    /// Says that a change has just been settled: the network should be read at once.
    pub fn settled(&self) {
        self.0.settled.notify_one();
    }

    /// Waits until a change has been settled since the last call. There is one reader.
    pub async fn until_settled(&self) {
        self.0.settled.notified().await;
    }
}
