//! The state of the network, read again while it may change.

use std::{convert::Infallible, sync::Arc, time::Duration};

use knmstate_core::probes::Network;
use knmstate_host::{Host, NetworkState};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep, sleep_until, timeout},
};

use super::attempt_error::AttemptError;

/// How long a reading may take.
const READING_TIMEOUT: Duration = Duration::from_secs(10);

/// The time between two readings when the host reports changes, and when it does not.
const PAUSE_AFTER_CHANGE: Duration = Duration::from_millis(500);
const PAUSE_WITHOUT_CHANGE: Duration = Duration::from_secs(2);

/// The last reading of the network, shared by all probes.
#[derive(Debug)]
pub(super) struct NetworkObserver {
    snapshot: watch::Sender<Option<Snapshot>>,
    wanted: Notify,
    before: Option<Arc<NetworkState>>,
}

/// One reading, or why it failed.
#[derive(Clone, Debug)]
struct Snapshot {
    /// When the reading began: it has all changes before that.
    at: Instant,
    now: Result<Arc<NetworkState>, String>,
}

/// The last reading, with the state before the change.
#[derive(Clone, Debug)]
pub(super) struct KnownNetwork {
    now: Arc<NetworkState>,
    before: Option<Arc<NetworkState>>,
}

impl KnownNetwork {
    pub(super) fn network(&self) -> Network<'_> {
        let before = self.before.as_deref().map(NetworkState::sections);
        Network { now: self.now.sections(), before }
    }
}

impl NetworkObserver {
    /// Reads nothing until the first probe needs it. From then on it reads again as long as [`run`](Self::run) is
    /// polled.
    pub(super) fn after(before: Option<Arc<NetworkState>>) -> Self {
        Self { snapshot: watch::Sender::new(None), wanted: Notify::new(), before }
    }

    /// Has this state, and never reads.
    pub(super) fn fixed(state: Arc<NetworkState>) -> Self {
        let snapshot = Snapshot { at: Instant::now(), now: Ok(state) };
        Self { snapshot: watch::Sender::new(Some(snapshot)), wanted: Notify::new(), before: None }
    }

    /// Reads the network, repeatedly.
    pub(super) async fn run(&self, host: &impl Host) -> Infallible {
        let mut events = host.events();
        self.wanted.notified().await;
        loop {
            let at = Instant::now();
            let now = match timeout(READING_TIMEOUT, host.observe()).await {
                Ok(Ok(state)) => Ok(Arc::new(state)),
                Ok(Err(error)) => Err(error.to_string()),
                Err(_) => Err(format!("not done after {READING_TIMEOUT:?}")),
            };
            let failed = now.is_err();
            self.snapshot.send_replace(Some(Snapshot { at, now }));
            let changed = async {
                // A host whose events have ended is still read at intervals.
                if events.next().await.is_none() {
                    std::future::pending::<()>().await;
                }
                sleep_until(at + PAUSE_AFTER_CHANGE).await;
            };
            tokio::select! {
                () = changed => {}
                () = sleep(PAUSE_WITHOUT_CHANGE) => {}
                // After a failed reading a request does not shorten the pause.
                () = self.wanted.notified(), if !failed => {}
            }
        }
    }

    /// The last reading; waits for the first one.
    pub(super) async fn known(&self) -> Result<KnownNetwork, AttemptError> {
        self.since(None).await
    }

    /// The next reading that begins from now on.
    pub(super) async fn next(&self) -> Result<KnownNetwork, AttemptError> {
        self.since(Some(Instant::now())).await
    }

    async fn since(&self, moment: Option<Instant>) -> Result<KnownNetwork, AttemptError> {
        let is_new = |snapshot: &Option<Snapshot>| {
            snapshot.as_ref().is_some_and(|snapshot| moment.is_none_or(|moment| snapshot.at >= moment))
        };
        let mut snapshot = self.snapshot.subscribe();
        if !is_new(&snapshot.borrow()) {
            self.wanted.notify_one();
        }
        let unreadable =
            |why: &str| AttemptError::temporary(format!("the network of this node cannot be read: {why}"));
        let snapshot = snapshot.wait_for(is_new).await.map_err(|_| unreadable("the observer has ended"))?;
        match snapshot.as_ref().map(|snapshot| snapshot.now.clone()) {
            Some(Ok(now)) => Ok(KnownNetwork { now, before: self.before.clone() }),
            Some(Err(why)) => Err(unreadable(&why)),
            None => Err(unreadable("the observer has ended")),
        }
    }
}
