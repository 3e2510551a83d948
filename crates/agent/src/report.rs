//! Reports the network of the node after each change of it.
//!
//! ```text
//! events ──► a short pause ──┬──► CPU budget ──► change lock ──► read ──► filter, cut ──► differs? ──► publish
//!             (a change is   │                                    ▲                                      ▲
//!              many events)  └──► links: carriers and active ports, cheap to read ──► differ? ───────────┘
//! a change was settled, or a client asks for a report ────────────┘
//! ```
//!
//! Between events only one timer of half an hour runs.

use std::{sync::Arc, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use knmstate_api::{
    State,
    node_network_state::{LinkState, SetAsideChange},
};
use knmstate_client::call::Backoff;
use knmstate_core::{
    budget::{BUDGET, fit},
    links::reported,
    pace::{PERCENT, Pace},
    shown::shown,
};
use knmstate_document::Document;
use knmstate_host::{Events, Host, HostError, Link, NetworkState, Operation, SetAside, Topic};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout},
};

use crate::{
    change_lock::ChangeLock,
    cpu_clock,
    health::Health,
    store::{ReportedNetwork, Store},
};

/// How long to wait after the first event of a change for its other events: `ip addr add` alone sends three.
const PAUSE: Duration = Duration::from_millis(50);

/// The least time between two readings of the links alone, while the CPU budget delays the whole reading.
const LINKS_PAUSE: Duration = Duration::from_secs(1);

/// The time until the next reading if there is no event, in case one was lost.
const RESYNC: Duration = Duration::from_mins(30);

/// How long a reading may take, because changes wait for it. Hosts have limits of their own; this is for one that
/// hangs.
const READING_LIMIT: Duration = Duration::from_mins(1);

/// How long one report may take, with the reading, before the loop counts as hung. The wait for the change lock is not
/// part of it.
const REPORT_LIMIT: Duration = Duration::from_mins(5);

/// The host reports no changes any more, so the network could change without being reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("changes of the network are no longer noticed")]
pub struct HostGone;

/// The last reading of the network, complete and unfiltered; `None` before the first one.
pub type ObservedNetwork = watch::Receiver<Option<Arc<NetworkState>>>;

/// Publishes the network of a host to a store.
pub struct Reporter<H, S> {
    host: H,
    store: S,
    change_lock: ChangeLock,
    observed: watch::Sender<Option<Arc<NetworkState>>>,
    percent: u32,
    health: Health,
    cpu_time: Box<dyn Fn() -> Duration + Send + Sync>,
}

/// Why to read the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    /// It may have changed.
    Change,
    /// The engine has settled a change, whose result is to be seen at once.
    Settled,
    /// A client asks for a report, which is published even if the network has not changed.
    Requested,
}

/// The state of the loop.
struct LoopState {
    events: Events,
    began: Instant,
    pace: Pace,
    /// The network that was published last; `None` if the next reading is to be published in any case.
    published: Option<ReportedNetwork>,
    /// The last known version of NetworkManager. A network that could be read has a running NetworkManager, even if its
    /// version is not known yet.
    network_manager_version: String,
    /// While readings fail: the delay until the next one.
    backoff: Option<Backoff>,
}

impl<H: Host, S: Store> Reporter<H, S> {
    /// A reporter that has not started.
    pub fn new(host: H, store: S, change_lock: ChangeLock) -> Self {
        Self {
            host,
            store,
            change_lock,
            observed: watch::Sender::default(),
            percent: PERCENT,
            health: Health::default(),
            cpu_time: Box::new(cpu_clock::process_cpu_time),
        }
    }

    /// Limits the CPU time of readings to this many hundredths of a core in the long run.
    #[must_use]
    pub fn with_percent(self, percent: u32) -> Self {
        Self { percent, ..self }
    }

    /// Lets `health` know what it is busy with.
    #[must_use]
    pub fn with_health(self, health: Health) -> Self {
        Self { health, ..self }
    }

    /// Measures the cost of readings by another clock than the CPU time of the process.
    #[must_use]
    pub fn with_cpu_time(self, cpu_time: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self { cpu_time: Box::new(cpu_time), ..self }
    }

    /// Each new reading, for other parts of the process.
    pub fn observed(&self) -> ObservedNetwork {
        self.observed.subscribe()
    }

    /// Reports until `stop`. Fails when the host ends its events.
    pub async fn run(self, stop: impl Future<Output = ()> + Send) -> Result<(), HostGone> {
        tokio::select! {
            () = stop => Ok(()),
            () = self.report() => Err(HostGone),
        }
    }

    /// Reads the network once, and publishes it.
    pub(crate) async fn once(&self) {
        self.read_and_publish(&mut self.initial_state()).await;
    }

    fn initial_state(&self) -> LoopState {
        LoopState {
            // Subscribed before the first reading, so that no change in between is missed.
            events: self.host.events(),
            began: Instant::now(),
            pace: Pace::of(self.percent),
            published: None,
            network_manager_version: String::new(),
            backoff: None,
        }
    }

    async fn report(&self) {
        let mut loop_state = self.initial_state();
        loop {
            self.read_and_publish(&mut loop_state).await;
            let Some(mut reason) = self.next_reason(&mut loop_state).await else { return };
            if reason == Reason::Change {
                reason = self.wait_for_budget(&mut loop_state).await;
            }
            if reason == Reason::Requested {
                loop_state.published = None;
            }
        }
    }

    /// Waits for a reason to read the network; `None` if the events of the host have ended.
    async fn next_reason(&self, loop_state: &mut LoopState) -> Option<Reason> {
        let again = Instant::now() + loop_state.backoff.as_mut().map_or(RESYNC, Backoff::next_delay);
        loop {
            tokio::select! {
                () = self.store.refresh_requested() => return Some(Reason::Requested),
                () = self.change_lock.wait_until_settled() => return Some(Reason::Settled),
                changes = loop_state.events.next() => {
                    let is_back = changes?.contains(Topic::ServiceBack);
                    // After a failure a change is no reason to read again, only the return of NetworkManager is.
                    if let Some(backoff) = &mut loop_state.backoff {
                        if !is_back {
                            continue;
                        }
                        *backoff = Backoff::new();
                    }
                    return Some(Reason::Change);
                }
                () = sleep_until(again) => return Some(Reason::Change),
            }
        }
    }

    /// Waits for the other events of the same change, and until the CPU budget allows a reading; or for a reason that
    /// does not wait. Meanwhile reads the links: a lost carrier is reported at once, however much CPU time was used
    /// before.
    async fn wait_for_budget(&self, loop_state: &mut LoopState) -> Reason {
        let now = Instant::now();
        let allowed = loop_state.began + loop_state.pace.allowed_at(now - loop_state.began);
        let read_at = allowed.max(now + PAUSE);
        let (mut links_at, mut has_events) = (now + PAUSE, true);
        loop {
            tokio::select! {
                // If both are due, the links come before the whole reading.
                biased;
                () = self.store.refresh_requested() => return Reason::Requested,
                () = self.change_lock.wait_until_settled() => return Reason::Settled,
                () = sleep_until(links_at), if has_events => {
                    self.publish_links(loop_state).await;
                    (links_at, has_events) = (Instant::now() + LINKS_PAUSE, false);
                }
                () = sleep_until(read_at) => return Reason::Change,
                Some(_) = loop_state.events.next(), if !has_events => has_events = true,
            }
        }
    }

    /// Publishes the links if they have changed, with the rest of the last report.
    async fn publish_links(&self, loop_state: &mut LoopState) {
        let Some(published) = &mut loop_state.published else { return };
        // During a change of the engine nothing is read; its end is a reason to read.
        let Some(_guard) = self.change_lock.try_lock().await else { return };
        let _working = self.health.expect("reporter", REPORT_LIMIT);
        let links = self.links(&published.state.0).await;
        if links != published.links {
            published.links = links;
            self.store.publish(published.clone());
        }
    }

    async fn read_and_publish(&self, loop_state: &mut LoopState) {
        let (read, cpu_before, _working) = {
            let _guard = self.change_lock.lock().await;
            let working = self.health.expect("reporter", REPORT_LIMIT);
            self.drop_events(loop_state).await;
            let cpu_before = (self.cpu_time)();
            let limit = HostError::Timeout { operation: Operation::Observe, after: READING_LIMIT };
            (timeout(READING_LIMIT, self.host.observe()).await.unwrap_or(Err(limit)), cpu_before, working)
        };
        match read {
            Ok(state) => {
                if loop_state.backoff.take().is_some() {
                    tracing::info!("the network can be read again");
                }
                let network = self.reported(&state, loop_state).await;
                self.observed.send_replace(Some(Arc::new(state)));
                if loop_state.published.as_ref() != Some(&network) {
                    self.store.publish(network.clone());
                    loop_state.published = Some(network);
                }
            }
            Err(error) => {
                if loop_state.backoff.is_none() {
                    tracing::warn!(%error, "cannot read the network; the last report stays until a reading succeeds");
                }
                loop_state.backoff.get_or_insert_default();
            }
        }
        let cost = (self.cpu_time)().saturating_sub(cpu_before);
        loop_state.pace.spent(loop_state.began.elapsed(), cost);
    }

    /// Drops the events from before a reading: the reading has their changes.
    async fn drop_events(&self, loop_state: &mut LoopState) {
        loop {
            tokio::select! {
                biased;
                Some(_) = loop_state.events.next() => {}
                () = self.change_lock.wait_until_settled() => {}
                () = std::future::ready(()) => return,
            }
        }
    }

    async fn reported(&self, state: &NetworkState, loop_state: &mut LoopState) -> ReportedNetwork {
        let versions = self.host.versions().await;
        if let Some(version) = versions.network_manager {
            loop_state.network_manager_version = version;
        }
        let (state, omitted) = fit(shown(state.sections()), BUDGET);
        ReportedNetwork {
            links: self.links(&state).await,
            set_aside: self.host.set_aside().await.into_iter().map(set_aside).collect(),
            state: State(state),
            omitted,
            nmstate_version: versions.nmstate,
            network_manager_version: loop_state.network_manager_version.clone(),
        }
    }

    /// The links to report beside this state.
    async fn links(&self, shown: &Document) -> Vec<LinkState> {
        let links = self.host.links().await.into_iter();
        let link_state = |Link { name, carrier, active_port }| LinkState { name, carrier, active_port };
        reported(links.map(link_state), shown)
    }
}

fn set_aside(SetAside { time, interfaces, why, file }: SetAside) -> SetAsideChange {
    SetAsideChange { time: Time(time), interfaces, reason: why, file }
}

impl<H, S> std::fmt::Debug for Reporter<H, S> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Reporter").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
