//! An outbox that tasks share, and the loop that empties it.

use std::{
    fmt::Debug,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep, sleep_until},
};

use super::Outbox;
use crate::call::{Backoff, CallError, FailureLog};

/// The state that updates are derived from: what was reported, and what the server has.
pub trait Pending: Send + 'static {
    type Key: Ord + Clone + Send + Debug;
    type Update: Clone + Send;

    /// The updates that follow from the state.
    fn outbox(&mut self) -> &mut Outbox<Self::Key, Self::Update>;

    /// Whether the server has had everything that was reported.
    fn is_delivered(&self) -> bool;
}

/// Writes one update to the API server, and notes in the state what the server then has.
pub trait Writer<P: Pending>: Send + 'static {
    /// Fails if the update has to be written again.
    fn write(
        &self,
        outbox: &SharedOutbox<P>,
        key: &P::Key,
        update: P::Update,
    ) -> impl Future<Output = Result<(), CallError>> + Send;
}

/// State with an outbox, for the tasks that change it and for the one that writes.
#[derive(Debug)]
pub struct SharedOutbox<P> {
    pending: Mutex<P>,
    changed: Notify,
    progress: watch::Sender<()>,
}

impl<P: Pending> SharedOutbox<P> {
    pub fn new(pending: P) -> Self {
        Self { pending: Mutex::new(pending), changed: Notify::new(), progress: watch::Sender::new(()) }
    }

    /// Changes the state and wakes the writer.
    pub fn change<T>(&self, change: impl FnOnce(&mut P) -> T) -> T {
        let result = change(&mut self.lock());
        self.changed.notify_one();
        self.progress.send_replace(());
        result
    }

    /// Waits until everything that was reported is delivered.
    pub async fn delivered(&self) {
        let mut progress = self.progress.subscribe();
        while !self.lock().is_delivered() {
            if progress.changed().await.is_err() {
                return;
            }
        }
    }

    /// Writes updates one after the other, for ever. An update that the server refuses is tried again later, and others
    /// go on. While the server does not respond, nothing else is tried before a pause is over, longer each time, or
    /// `connected` becomes true.
    ///
    /// `doing` completes the log message "cannot …".
    pub async fn run(
        &self,
        writer: impl Writer<P>,
        mut connected: watch::Receiver<bool>,
        doing: &'static str,
    ) {
        let mut failures = FailureLog::new(doing);
        let mut backoff = Backoff::new();
        loop {
            let (next, next_at) = {
                let mut pending = self.lock();
                let outbox = pending.outbox();
                (outbox.take(Instant::now()), outbox.next_at())
            };
            let Some((key, update)) = next else {
                let at_next = async {
                    match next_at {
                        Some(time) => sleep_until(time).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    () = self.changed.notified() => {}
                    () = at_next => {}
                    () = reconnected(&mut connected) => self.lock().outbox().retry_now(),
                }
                continue;
            };
            let error = match writer.write(self, &key, update.clone()).await {
                Ok(()) => {
                    self.change(|pending| pending.outbox().done(&key));
                    failures.succeeded();
                    backoff = Backoff::new();
                    continue;
                }
                Err(error) => error,
            };
            failures.failed(&error);
            self.lock().outbox().failed(key, update, Instant::now());
            if error.code().is_none() {
                connected.borrow_and_update();
                tokio::select! {
                    () = sleep(backoff.next_delay()) => {}
                    () = reconnected(&mut connected) => {}
                }
                self.lock().outbox().retry_now();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, P> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits until the connection is established again, whatever its state is now.
async fn reconnected(connected: &mut watch::Receiver<bool>) {
    loop {
        if connected.changed().await.is_err() {
            // Nothing observes the connection any more: only time helps.
            return std::future::pending().await;
        }
        if *connected.borrow_and_update() {
            return;
        }
    }
}
