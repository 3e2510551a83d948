//! One change at a time, and nobody looks while it is half done.

use std::sync::Arc;

use tokio::sync::{Mutex, MutexGuard, Notify};

/// Who changes the network holds this while it is neither as before nor settled; who reports it takes it to read.
#[derive(Clone, Debug, Default)]
pub struct Steady(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    lock: Mutex<()>,
    settled: Notify,
}

impl Steady {
    /// Waits until the network is in no in-between state, and keeps it so.
    pub async fn hold(&self) -> MutexGuard<'_, ()> {
        self.0.lock.lock().await
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
