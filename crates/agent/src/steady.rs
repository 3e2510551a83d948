//! One change at a time, and nobody looks while it is half done.

use std::sync::Arc;

use tokio::sync::{Mutex, Notify, OwnedMutexGuard};

/// Who changes the network holds this while it is neither as before nor settled; who reports it takes it to read.
#[derive(Clone, Debug, Default)]
pub struct Steady(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    lock: Arc<Mutex<()>>,
    settled: Notify,
}

/// The network is in no in-between state, or is in one that its holder knows of, as long as this lives.
#[derive(Debug)]
pub struct Held(#[expect(dead_code, reason = "it is held, not looked at")] OwnedMutexGuard<()>);

impl Steady {
    /// Waits until the network is in no in-between state, and keeps it so.
    pub async fn hold(&self) -> Held {
        Held(Arc::clone(&self.0.lock).lock_owned().await)
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
