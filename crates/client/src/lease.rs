//! Leader election: acquires, renews and releases the Lease that decides which replica of a role leads.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use knmstate_core::lease::{LeaseStep, LeaseTiming, ObservedLease, may_write_until, next_step};
use kube::{Api, Client, ResourceExt as _, api::PostParams, core::DeserializeGuard};
use tokio::{
    sync::{mpsc, watch as channel},
    time::{Instant, sleep, sleep_until, timeout},
};

use crate::{
    call::{CallError, FailureLog, within},
    leadership::{WriteDeadline, time_since_boot},
    parts::{PartEnded, Parts},
    progress::Progress,
    watch::{self, ObjectEvent, Selection, is_older},
};

pub use crate::leadership::Leadership;

/// How long to wait after a failure before the next attempt.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// How long one request may take: several fit into the time in which the lease must be renewed.
const CALL_LIMIT: Duration = Duration::from_secs(3);
/// The election begins a new turn at least this often, also when nothing happens.
const TURN: Duration = Duration::from_secs(20);
/// A turn that takes longer hangs.
const TURN_LIMIT: Duration = Duration::from_mins(1);
/// How many events of the Lease may wait to be handled.
const QUEUE: usize = 16;

/// Which Lease, and under which name this process asks for it.
#[derive(Clone, Debug)]
pub struct LeaseOptions {
    pub namespace: String,
    pub name: String,
    /// Different for every process: two with one identity would both take the lease for theirs.
    pub identity: String,
    pub terms: LeaseTiming,
    /// The clock, for the times in the Lease. They are for readers; no decision depends on them.
    pub now: fn() -> Timestamp,
}

/// Acquires and renews the lease in the background, until dropped.
#[derive(Debug)]
pub struct LeaderElector {
    leadership: Leadership,
    stop: channel::Sender<bool>,
    parts: Parts,
}

impl LeaderElector {
    /// Starts to watch the Lease and to compete for it.
    pub fn start(client: Client, options: LeaseOptions, progress: Progress) -> Self {
        let (until, leadership) = channel::channel(None);
        let (stop, stopped) = channel::channel(false);
        let (sender, events) = mpsc::channel(QUEUE);
        let mut parts = Parts::default();
        let api: Api<DeserializeGuard<Lease>> = Api::namespaced(client.clone(), &options.namespace);
        let watch = watch::follow(
            api,
            Selection::Name(options.name.clone()),
            "watch the lease",
            |_| {},
            // An event that does not fit is dropped: the next one, or the next renewal, shows the Lease as it is.
            move |event| {
                let _ = sender.try_send(event);
            },
        );
        parts.spawn("watch of the lease", watch);
        let api = Api::namespaced(client, &options.namespace);
        let failures = FailureLog::new("renew the lease");
        let election = Election {
            api,
            options,
            until,
            start: Instant::now(),
            lease: LeaseState::Unread,
            renewed: None,
            renewed_since_boot: Duration::ZERO,
            failures,
            progress,
        };
        parts.spawn("leader election", election.run(events, stopped));
        Self { leadership: Leadership::new(leadership, time_since_boot), stop, parts }
    }

    /// Whether this process leads; clones are kept up to date.
    pub fn leadership(&self) -> Leadership {
        self.leadership.clone()
    }

    /// Waits until the election has ended, which it does only by a mistake.
    pub async fn ended(&mut self) -> PartEnded {
        self.parts.ended().await
    }

    /// Releases the lease if this process holds it, so that another replica need not wait until it expires. The caller
    /// must have stopped writing.
    pub async fn release(mut self) {
        self.stop.send_replace(true);
        let _ = timeout(CALL_LIMIT, self.parts.ended()).await;
    }
}

#[derive(Debug)]
enum LeaseState {
    /// Not read yet.
    Unread,
    Missing,
    Present {
        observed: ObservedLease,
        object: Arc<Lease>,
    },
}

struct Election {
    api: Api<Lease>,
    options: LeaseOptions,
    until: channel::Sender<Option<WriteDeadline>>,
    start: Instant,
    lease: LeaseState,
    /// When the last successful renewal began.
    renewed: Option<Duration>,
    /// The same time, on the clock that counts suspension.
    renewed_since_boot: Duration,
    failures: FailureLog,
    progress: Progress,
}

impl Election {
    async fn run(
        mut self,
        mut events: mpsc::Receiver<ObjectEvent<Lease>>,
        mut stopped: channel::Receiver<bool>,
    ) {
        loop {
            let _turn = self.progress.begin("leader election", TURN_LIMIT);
            let next = match &self.lease {
                LeaseState::Unread => LeaseStep::WaitUntil(self.now() + RETRY_DELAY),
                LeaseState::Missing => LeaseStep::Take,
                LeaseState::Present { observed, .. } => next_step(
                    &self.options.terms,
                    Some(observed),
                    &self.options.identity,
                    self.renewed,
                    self.now(),
                ),
            };
            if next == LeaseStep::Take
                && let Err(error) = self.take().await
            {
                self.failures.failed(&error);
                tokio::select! {
                    () = sleep(RETRY_DELAY) => {}
                    _ = stopped.wait_for(|stopped| *stopped) => break,
                }
            }
            let LeaseStep::WaitUntil(time) = next else { continue };
            tokio::select! {
                () = sleep_until((self.start + time).min(Instant::now() + TURN)) => {}
                event = events.recv() => match event {
                    Some(event) => self.handle(event),
                    None => return,
                },
                _ = stopped.wait_for(|stopped| *stopped) => break,
            }
        }
        self.release().await;
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn handle(&mut self, event: ObjectEvent<Lease>) {
        match event {
            ObjectEvent::All(mut all) => match all.pop() {
                Some(object) => self.found(object),
                None => self.missing(),
            },
            ObjectEvent::Changed(object) => self.found(object),
            ObjectEvent::Gone(object) => {
                if !self.is_older(&object.resource_version().unwrap_or_default()) {
                    self.missing();
                }
            }
        }
    }

    fn found(&mut self, object: DeserializeGuard<Lease>) {
        if self.is_older(&object.resource_version().unwrap_or_default()) {
            return;
        }
        let Ok(object) = object.0 else {
            return tracing::warn!("the lease cannot be read");
        };
        self.update(object);
    }

    fn missing(&mut self) {
        self.lease = LeaseState::Missing;
        self.publish();
    }

    fn is_older(&self, version: &str) -> bool {
        matches!(&self.lease, LeaseState::Present { object, .. }
            if is_older(version, &object.resource_version().unwrap_or_default()))
    }

    fn update(&mut self, object: Lease) {
        if let LeaseState::Present { object: known, .. } = &self.lease
            && known.resource_version() == object.resource_version()
        {
            return;
        }
        let spec = object.spec.clone().unwrap_or_default();
        let seconds = u64::try_from(spec.lease_duration_seconds.unwrap_or_default()).unwrap_or_default();
        let observed = ObservedLease {
            holder: spec.holder_identity.unwrap_or_default(),
            duration: Duration::from_secs(seconds),
            since: self.now(),
        };
        self.lease = LeaseState::Present { observed, object: Arc::new(object) };
        self.publish();
    }

    fn publish(&self) {
        let observed = match &self.lease {
            LeaseState::Present { observed, .. } => Some(observed),
            LeaseState::Unread | LeaseState::Missing => None,
        };
        let until = may_write_until(&self.options.terms, observed, &self.options.identity, self.renewed);
        let until = until.map(|until| WriteDeadline {
            instant: self.start + until,
            since_boot: self.renewed_since_boot + self.options.terms.write_within,
        });
        self.until.send_if_modified(|known| {
            if known.is_none() && until.is_some() {
                tracing::info!(identity = self.options.identity, "leading");
            } else if known.is_some() && until.is_none() {
                tracing::info!(identity = self.options.identity, "no longer leading");
            }
            std::mem::replace(known, until) != until
        });
    }

    /// Writes this process as the holder, unless the Lease has changed since it was read.
    async fn take(&mut self) -> Result<(), CallError> {
        let (began, began_since_boot) = (self.now(), time_since_boot());
        let answer = match &self.lease {
            LeaseState::Present { object, .. } => {
                let mut lease = Lease::clone(object);
                let is_holder = holder(&lease) == self.options.identity;
                lease.spec = Some(self.spec(lease.spec.as_ref(), is_holder));
                let name = self.options.name.clone();
                let params = PostParams::default();
                limited(self.api.replace(&name, &params, &lease)).await
            }
            LeaseState::Unread | LeaseState::Missing => {
                let metadata = ObjectMeta { name: Some(self.options.name.clone()), ..ObjectMeta::default() };
                let lease = Lease { metadata, spec: Some(self.spec(None, false)) };
                limited(self.api.create(&PostParams::default(), &lease)).await
            }
        };
        match answer {
            Ok(lease) => {
                self.failures.succeeded();
                self.renewed = Some(began);
                self.renewed_since_boot = began_since_boot;
                self.update(lease);
                self.publish();
                Ok(())
            }
            // On creation, 404 means that the namespace is missing.
            Err(error) if error.code() == Some(404) && !matches!(self.lease, LeaseState::Present { .. }) => {
                Err(error)
            }
            // Another replica was quicker, or the Lease was deleted: read it again.
            Err(error) if matches!(error.code(), Some(409 | 404)) => {
                match limited(self.api.get_opt(&self.options.name)).await? {
                    Some(lease) => self.update(lease),
                    None => self.missing(),
                }
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn spec(&self, before: Option<&LeaseSpec>, is_holder: bool) -> LeaseSpec {
        let now = Some(MicroTime((self.options.now)()));
        let seconds = i32::try_from(self.options.terms.duration.as_secs()).ok();
        let transitions = before.and_then(|before| before.lease_transitions).unwrap_or_default();
        LeaseSpec {
            holder_identity: Some(self.options.identity.clone()),
            lease_duration_seconds: seconds,
            acquire_time: before
                .filter(|_| is_holder)
                .map_or_else(|| now.clone(), |before| before.acquire_time.clone()),
            renew_time: now,
            lease_transitions: Some(if is_holder {
                transitions
            } else {
                transitions + i32::from(before.is_some())
            }),
            ..LeaseSpec::default()
        }
    }

    async fn release(&mut self) {
        self.until.send_replace(None);
        let LeaseState::Present { object, .. } = &self.lease else { return };
        if holder(object) != self.options.identity || self.renewed.is_none() {
            return;
        }
        let mut lease = Lease::clone(object);
        if let Some(spec) = &mut lease.spec {
            spec.holder_identity = Some(String::new());
            // For clients that ignore an empty holder: they wait for this time.
            spec.lease_duration_seconds = Some(1);
        }
        match limited(self.api.replace(&self.options.name, &PostParams::default(), &lease)).await {
            Ok(_) => tracing::info!(identity = self.options.identity, "released the lease"),
            Err(error) => {
                tracing::warn!(
                    "cannot release the lease: {error}; another replica takes it when it has expired"
                );
            }
        }
    }
}

fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

async fn limited<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, CallError> {
    within(CALL_LIMIT, call).await
}
