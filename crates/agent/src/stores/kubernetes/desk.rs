//! A desk: whoever has something to say puts it there and goes; a writer carries it to the API server, one thing at a
//! time.

use std::sync::{Mutex, MutexGuard, PoisonError};

use knmstate_client::call::{CallError, Pauses, Trouble};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep, sleep_until},
};

/// What lies on a desk. It decides, without waiting for anything, what is to be written next.
pub trait Papers: Send + 'static {
    /// One thing to write.
    type Errand: Send;

    fn next(&mut self, now: Instant) -> Next<Self::Errand>;

    /// Whether nothing of what was said is still to be written.
    fn is_delivered(&self) -> bool;
}

/// What a writer does now.
#[derive(Debug, PartialEq)]
pub enum Next<Errand> {
    Write(Errand),
    /// Nothing before this time.
    Later(Instant),
    /// Nothing until something changes.
    Nothing,
}

/// Carries one errand to the API server, and notes on the desk what came of it.
pub trait Carrier<P: Papers>: Send + 'static {
    fn carry(&self, desk: &Desk<P>, errand: P::Errand) -> impl Future<Output = Result<(), CallError>> + Send;
}

#[derive(Debug)]
pub struct Desk<P> {
    papers: Mutex<P>,
    bell: Notify,
    progress: watch::Sender<()>,
}

impl<P: Papers> Desk<P> {
    pub fn new(papers: P) -> Self {
        Self { papers: Mutex::new(papers), bell: Notify::new(), progress: watch::Sender::new(()) }
    }

    /// Changes what lies there and rings for the writer.
    pub fn change<T>(&self, change: impl FnOnce(&mut P) -> T) -> T {
        let result = change(&mut self.lock());
        self.bell.notify_one();
        self.progress.send_replace(());
        result
    }

    /// Waits until nothing is left to write.
    pub async fn delivered(&self) {
        let mut progress = self.progress.subscribe();
        while !self.lock().is_delivered() {
            if progress.changed().await.is_err() {
                return;
            }
        }
    }

    /// Writes for ever. While it fails it pauses, longer each time, or until the way to the server is there again.
    pub async fn serve(
        &self,
        carrier: impl Carrier<P>,
        mut connected: watch::Receiver<bool>,
        doing: &'static str,
    ) {
        let mut trouble = Trouble::new(doing);
        let mut pauses = Pauses::new();
        loop {
            let next = self.lock().next(Instant::now());
            match next {
                Next::Nothing => self.bell.notified().await,
                Next::Later(time) => {
                    tokio::select! {
                        () = self.bell.notified() => {}
                        () = sleep_until(time) => {}
                    }
                }
                Next::Write(errand) => match carrier.carry(self, errand).await {
                    Ok(()) => {
                        trouble.over();
                        pauses = Pauses::new();
                    }
                    Err(error) => {
                        trouble.failed(&error);
                        connected.borrow_and_update();
                        tokio::select! {
                            () = sleep(pauses.longer()) => {}
                            () = established(&mut connected) => {}
                        }
                    }
                },
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, P> {
        self.papers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits until the connection, whatever it is now, has been established anew.
async fn established(connected: &mut watch::Receiver<bool>) {
    loop {
        if connected.changed().await.is_err() {
            // Nobody watches any more: only time helps.
            return std::future::pending().await;
        }
        if *connected.borrow_and_update() {
            return;
        }
    }
}
