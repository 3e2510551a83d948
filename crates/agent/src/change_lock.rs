//! Serializes changes and readings of the network, so that no reading shows a half-applied change.

use std::{path::PathBuf, sync::Arc, time::Duration};

use tokio::sync::{Mutex, Notify, OwnedMutexGuard};

use crate::work_lock::WorkLock;

/// The engine holds this from the first touch until a change is settled; the reporter takes it for each reading. Clones
/// share the lock.
#[derive(Clone, Debug, Default)]
pub struct ChangeLock(Arc<SharedLock>);

#[derive(Debug, Default)]
struct SharedLock {
    lock: Arc<Mutex<()>>,
    settled: Notify,
    /// The lock file that keeps other processes out, too; see [`WorkLock`].
    file: Option<PathBuf>,
}

/// The held lock. As long as it lives no other task changes or reads the network.
#[derive(Debug)]
#[expect(dead_code, reason = "held until it is dropped, never read")]
pub(crate) struct ChangeGuard(Option<WorkLock>, OwnedMutexGuard<()>);

impl ChangeLock {
    /// A lock that also takes a [`WorkLock`] on this file, which other processes take as well.
    pub(crate) fn with_file(file: Option<PathBuf>) -> Self {
        Self(Arc::new(SharedLock { file, ..SharedLock::default() }))
    }

    /// Waits for the lock.
    pub(crate) async fn lock(&self) -> ChangeGuard {
        let guard = Arc::clone(&self.0.lock).lock_owned().await;
        let lock = match &self.0.file {
            Some(file) => WorkLock::wait(file.clone()).await,
            None => None,
        };
        ChangeGuard(lock, guard)
    }

    /// Takes the lock if it is free; `None` while another task or process holds it.
    pub(crate) async fn try_lock(&self) -> Option<ChangeGuard> {
        let guard = Arc::clone(&self.0.lock).try_lock_owned().ok()?;
        let lock = match &self.0.file {
            // Without a usable lock file there is no other process to wait for.
            Some(file) => match WorkLock::wait_for(file, Duration::ZERO).await {
                Ok(None) => return None,
                taken => taken.ok().flatten(),
            },
            None => None,
        };
        Some(ChangeGuard(lock, guard))
    }

    /// Wakes the reporter: a change has been settled, and the network should be read at once.
    pub(crate) fn notify_settled(&self) {
        self.0.settled.notify_one();
    }

    /// Waits until a change has been settled since the last call. For one caller, the reporter.
    pub(crate) async fn wait_until_settled(&self) {
        self.0.settled.notified().await;
    }
}
