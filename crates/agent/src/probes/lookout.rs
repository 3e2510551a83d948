//! The network as it is, read again while it may change.

use std::{convert::Infallible, sync::Arc, time::Duration};

use knmstate_core::probes::Network;
use knmstate_host::{Host, NetworkState};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep, sleep_until, timeout},
};

use super::trouble::Trouble;

/// How long a reading may take.
const READING: Duration = Duration::from_secs(10);

/// The time between two readings when something has changed, and when nothing seems to.
const STIRRED: Duration = Duration::from_millis(500);
const QUIET: Duration = Duration::from_secs(2);

/// What is known of the network, for many who ask.
#[derive(Debug)]
pub(super) struct Lookout {
    sight: watch::Sender<Option<Sight>>,
    wanted: Notify,
    before: Option<Arc<NetworkState>>,
}

#[derive(Clone, Debug)]
struct Sight {
    /// When the reading began: what happened before that is in it.
    at: Instant,
    now: Result<Arc<NetworkState>, String>,
}

/// The network as it was read last.
#[derive(Clone, Debug)]
pub(super) struct Known {
    now: Arc<NetworkState>,
    before: Option<Arc<NetworkState>>,
}

impl Known {
    pub(super) fn network(&self) -> Network<'_> {
        let before = self.before.as_deref().map(NetworkState::sections);
        Network { now: self.now.sections(), before }
    }
}

impl Lookout {
    /// Knows nothing until somebody asks; then the network is read, and again, as long as [`keep`](Self::keep) runs.
    pub(super) fn after(before: Option<Arc<NetworkState>>) -> Self {
        Self { sight: watch::Sender::new(None), wanted: Notify::new(), before }
    }

    /// Knows this, and does not look.
    pub(super) fn fixed(state: Arc<NetworkState>) -> Self {
        let sight = Sight { at: Instant::now(), now: Ok(state) };
        Self { sight: watch::Sender::new(Some(sight)), wanted: Notify::new(), before: None }
    }

    /// Keeps what is known up to date.
    pub(super) async fn keep(&self, host: &impl Host) -> Infallible {
        let mut events = host.events();
        self.wanted.notified().await;
        loop {
            let at = Instant::now();
            let now = match timeout(READING, host.observe()).await {
                Ok(Ok(state)) => Ok(Arc::new(state)),
                Ok(Err(error)) => Err(error.to_string()),
                Err(_) => Err(format!("not done after {READING:?}")),
            };
            let failed = now.is_err();
            self.sight.send_replace(Some(Sight { at, now }));
            let stirred = async {
                // Without a machine that tells of changes there is still the clock.
                if events.next().await.is_none() {
                    std::future::pending::<()>().await;
                }
                sleep_until(at + STIRRED).await;
            };
            tokio::select! {
                () = stirred => {}
                () = sleep(QUIET) => {}
                // Whoever wants to know again what could not be read waits like everybody else.
                () = self.wanted.notified(), if !failed => {}
            }
        }
    }

    /// The network as it was read last; waits for the first reading.
    pub(super) async fn known(&self) -> Result<Known, Trouble> {
        self.since(None).await
    }

    /// The network as it is from now on.
    pub(super) async fn renewed(&self) -> Result<Known, Trouble> {
        self.since(Some(Instant::now())).await
    }

    async fn since(&self, moment: Option<Instant>) -> Result<Known, Trouble> {
        let is_new = |sight: &Option<Sight>| {
            sight.as_ref().is_some_and(|sight| moment.is_none_or(|moment| sight.at >= moment))
        };
        let mut sight = self.sight.subscribe();
        if !is_new(&sight.borrow()) {
            self.wanted.notify_one();
        }
        let unread = |why: &str| Trouble::passing(format!("the network of this node cannot be read: {why}"));
        let sight = sight.wait_for(is_new).await.map_err(|_| unread("nobody looks"))?;
        match sight.as_ref().map(|sight| sight.now.clone()) {
            Some(Ok(now)) => Ok(Known { now, before: self.before.clone() }),
            Some(Err(why)) => Err(unread(&why)),
            None => Err(unread("nobody looks")),
        }
    }
}
