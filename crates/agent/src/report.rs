//! Reports the network of the node: as soon as something changes, and never otherwise.
//!
//! ```text
//! events ──► a short pause ──┬──► its turn ──► in no in-between state ──► read ──► filter, fit ──► differs? ──► publish
//!             (one change is │     (CPU time        (steady)            ▲                                          ▲
//!              many messages)│      is rationed)                        │                                          │
//!                            └──► carriers and active ports, which cost next to nothing to read ──► differ? ──────┘
//! a change was settled, or a report is asked for ──────────────────────┘
//! ```
//!
//! Between events nothing runs but one timer of half an hour.

use std::{sync::Arc, time::Duration};

use knmstate_api::{State, node_network_state::LinkState};
use knmstate_core::{
    budget::{BUDGET, fit},
    document::Document,
    links::worth_telling,
    pace::{PERCENT, Pace},
    shown::shown,
};
use knmstate_host::{Events, Host, HostError, Link, NetworkState, Operation, Topic};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout},
};

use crate::{
    cpu_clock,
    steady::Steady,
    store::{ReportedNetwork, Store},
};

/// After the first sign of a change, how long its other messages are waited for: `ip addr add` alone sends three.
const PAUSE: Duration = Duration::from_millis(50);

/// The least time between two looks at links alone, while the rest has to wait for its turn.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The network is read this long after the last time even if nothing seems to have happened, in case an event was lost.
const RESYNC: Duration = Duration::from_mins(30);

/// A machine bounds its own answers; this is for one that does not, because changes wait for a reading to end.
const READING_LIMIT: Duration = Duration::from_mins(1);

/// How long after a failed reading it is tried again; each time twice as long as before.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(30);

/// The network as it was last read, whole and unfiltered; `None` until then.
pub type Observed = watch::Receiver<Option<Arc<NetworkState>>>;

/// Keeps a store informed about the network of a host.
pub struct Reporter<H, S> {
    host: H,
    store: S,
    steady: Steady,
    observed: watch::Sender<Option<Arc<NetworkState>>>,
    percent: u32,
    cpu_time: Box<dyn Fn() -> Duration + Send + Sync>,
}

/// Why the network is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    /// It may have changed.
    Change,
    /// We have changed it ourselves, and somebody waits to see it.
    Settled,
    /// It is asked for, and is to be published even if it is as before.
    Asked,
}

/// What one run of the loop knows.
struct Progress {
    events: Events,
    began: Instant,
    pace: Pace,
    /// What the store was told last; `None` when it is to be told whatever comes next.
    published: Option<ReportedNetwork>,
    /// The version of NetworkManager that was last heard of. One that could be read runs, whether or not it has told yet.
    network_manager_version: String,
    /// While reading fails: how often in a row it has.
    failures: Option<u32>,
}

impl<H: Host, S: Store> Reporter<H, S> {
    pub fn new(host: H, store: S, steady: Steady) -> Self {
        Self {
            host,
            store,
            steady,
            observed: watch::Sender::default(),
            percent: PERCENT,
            cpu_time: Box::new(cpu_clock::process),
        }
    }

    /// Readings may cost so many hundredths of a core in the long run.
    #[must_use]
    pub fn with_percent(self, percent: u32) -> Self {
        Self { percent, ..self }
    }

    /// Measures the cost of readings by another clock than that of the process.
    #[must_use]
    pub fn with_cpu_time(self, cpu_time: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self { cpu_time: Box::new(cpu_time), ..self }
    }

    /// Each fresh reading, for others who want to know.
    pub fn observed(&self) -> Observed {
        self.observed.subscribe()
    }

    /// Reports until `stop`, or until the host is gone for good.
    pub async fn run(self, stop: impl Future<Output = ()> + Send) {
        tokio::select! {
            () = stop => {}
            () = self.report() => tracing::error!("the network is not reported any more: nobody tells of its changes"),
        }
    }

    /// Reports the network as it is now.
    pub async fn once(&self) {
        self.read_and_publish(&mut self.nothing_yet()).await;
    }

    fn nothing_yet(&self) -> Progress {
        Progress {
            // Before the first reading, so that no change falls between the two.
            events: self.host.events(),
            began: Instant::now(),
            pace: Pace::of(self.percent),
            published: None,
            network_manager_version: String::new(),
            failures: None,
        }
    }

    async fn report(&self) {
        let mut progress = self.nothing_yet();
        loop {
            self.read_and_publish(&mut progress).await;
            let Some(mut reason) = self.next_reason(&mut progress).await else { return };
            if reason == Reason::Change {
                reason = self.turn(&mut progress).await;
            }
            if reason == Reason::Asked {
                progress.published = None;
            }
        }
    }

    /// Waits until the network should be read again; `None` if nobody will ever tell.
    async fn next_reason(&self, progress: &mut Progress) -> Option<Reason> {
        let again = Instant::now() + progress.failures.map_or(RESYNC, wait_after);
        loop {
            tokio::select! {
                () = self.store.refresh_wanted() => return Some(Reason::Asked),
                () = self.steady.until_settled() => return Some(Reason::Settled),
                changes = progress.events.next() => {
                    let is_back = changes?.contains(Topic::ServiceBack);
                    // What fails will not work because of one more change, only because the service is there again.
                    if let Some(failures) = &mut progress.failures {
                        if !is_back {
                            continue;
                        }
                        *failures = 0;
                    }
                    return Some(Reason::Change);
                }
                () = sleep_until(again) => return Some(Reason::Change),
            }
        }
    }

    /// Waits for the other messages of the same change, and until reading is not too dear; or for somebody in a hurry.
    /// Links are looked at meanwhile: a lost cable is told at once, whatever else has used up the CPU time.
    async fn turn(&self, progress: &mut Progress) -> Reason {
        let now = Instant::now();
        let allowed = progress.began + progress.pace.allowed_at(now - progress.began);
        let read_at = allowed.max(now + PAUSE);
        let (mut look_at, mut has_news) = (now + PAUSE, true);
        loop {
            tokio::select! {
                // Of a look and a reading at the same time the look comes first.
                biased;
                () = self.store.refresh_wanted() => return Reason::Asked,
                () = self.steady.until_settled() => return Reason::Settled,
                () = sleep_until(look_at), if has_news => {
                    self.publish_links(progress).await;
                    (look_at, has_news) = (Instant::now() + LOOK_AGAIN, false);
                }
                () = sleep_until(read_at) => return Reason::Change,
                Some(_) = progress.events.next(), if !has_news => has_news = true,
            }
        }
    }

    /// Tells of links what differs from what is told, and leaves the rest of the report as it is.
    async fn publish_links(&self, progress: &mut Progress) {
        let Some(published) = &mut progress.published else { return };
        // A change that is under way is read when it is settled.
        let Some(_steady) = self.steady.hold_if_free().await else { return };
        let links = self.links(&published.state.0).await;
        if links != published.links {
            published.links = links;
            self.store.publish(published.clone());
        }
    }

    async fn read_and_publish(&self, progress: &mut Progress) {
        let (read, cpu_before) = {
            let _steady = self.steady.hold().await;
            self.forget_what_this_reading_covers(progress).await;
            let cpu_before = (self.cpu_time)();
            let limit = HostError::Timeout { operation: Operation::Observe, after: READING_LIMIT };
            (timeout(READING_LIMIT, self.host.observe()).await.unwrap_or(Err(limit)), cpu_before)
        };
        match read {
            Ok(state) => {
                if progress.failures.take().is_some() {
                    tracing::info!("the network can be read again");
                }
                let network = self.reported(&state, progress).await;
                self.observed.send_replace(Some(Arc::new(state)));
                if progress.published.as_ref() != Some(&network) {
                    self.store.publish(network.clone());
                    progress.published = Some(network);
                }
            }
            Err(error) => {
                if progress.failures.is_none() {
                    tracing::warn!(%error, "the network cannot be read; what is reported stays as it is until it can");
                }
                progress.failures = Some(progress.failures.unwrap_or(0).saturating_add(1));
            }
        }
        let cost = (self.cpu_time)().saturating_sub(cpu_before);
        progress.pace.spent(progress.began.elapsed(), cost);
    }

    /// Changes that were announced before a reading are in it; only later ones are a reason for another one.
    async fn forget_what_this_reading_covers(&self, progress: &mut Progress) {
        loop {
            tokio::select! {
                biased;
                Some(_) = progress.events.next() => {}
                () = self.steady.until_settled() => {}
                () = std::future::ready(()) => return,
            }
        }
    }

    async fn reported(&self, state: &NetworkState, progress: &mut Progress) -> ReportedNetwork {
        let versions = self.host.versions().await;
        if let Some(version) = versions.network_manager {
            progress.network_manager_version = version;
        }
        let (state, omitted) = fit(shown(state.sections()), BUDGET);
        ReportedNetwork {
            links: self.links(&state).await,
            state: State(state),
            omitted,
            nmstate_version: versions.nmstate,
            network_manager_version: progress.network_manager_version.clone(),
        }
    }

    /// What is told of links beside this state.
    async fn links(&self, shown: &Document) -> Vec<LinkState> {
        let links = self.host.links().await.into_iter();
        let told = |Link { name, carrier, active_port }| LinkState { name, carrier, active_port };
        worth_telling(links.map(told), shown)
    }
}

/// The wait before the next attempt.
fn wait_after(failures: u32) -> Duration {
    FIRST_RETRY.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(LAST_RETRY)
}

impl<H, S> std::fmt::Debug for Reporter<H, S> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Reporter").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
