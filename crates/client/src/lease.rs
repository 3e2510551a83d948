//! Keeping, taking and giving back the lease by which the replicas of a role agree on one.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use knmstate_core::lease::{Seen, Step, Terms, may_write_until, step};
use kube::{Api, Client, ResourceExt as _, api::PostParams, core::DeserializeGuard};
use tokio::{
    sync::{mpsc, watch as channel},
    task::JoinSet,
    time::{Instant, sleep, sleep_until, timeout},
};

use crate::{
    call::{CallError, Trouble, within},
    watch::{self, Seen as Event, Selection, is_older},
};

/// How long to wait after a failure before the next attempt.
const PAUSE: Duration = Duration::from_secs(1);
/// How long one call may take: several fit into the time in which the lease must be renewed.
const CALL_LIMIT: Duration = Duration::from_secs(3);
/// Events of one object that are not yet looked at.
const QUEUE: usize = 16;

/// Which lease, and who wants it.
#[derive(Clone, Debug)]
pub struct Options {
    pub namespace: String,
    pub name: String,
    /// Different for every process: one with the name of another takes its lease away.
    pub identity: String,
    pub terms: Terms,
    /// The clock, for what the lease says of itself. Nobody decides by it.
    pub now: fn() -> Timestamp,
}

/// Whether this process leads, and until when it may write.
#[derive(Clone, Debug)]
pub struct Leadership(channel::Receiver<Option<Instant>>);

impl Leadership {
    /// Until when this process may write; `None` when it must not.
    pub fn may_write_until(&self) -> Option<Instant> {
        self.0.borrow().filter(|until| *until > Instant::now())
    }

    /// Waits until this process leads.
    pub async fn gained(&mut self) {
        while self.may_write_until().is_none() {
            if self.0.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    /// Waits until it no longer does.
    pub async fn lost(&mut self) {
        while let Some(until) = self.may_write_until() {
            tokio::select! {
                changed = self.0.changed() => if changed.is_err() { return },
                () = sleep_until(until) => {}
            }
        }
    }
}

/// Keeps trying to get the lease and to keep it, until dropped.
#[derive(Debug)]
pub struct Keeper {
    leadership: Leadership,
    give_back: channel::Sender<bool>,
    task: JoinSet<()>,
}

impl Keeper {
    pub fn start(client: Client, options: Options) -> Self {
        let (until, leadership) = channel::channel(None);
        let (give_back, wanted_back) = channel::channel(false);
        let (events, seen) = mpsc::channel(QUEUE);
        let mut task = JoinSet::new();
        let api: Api<DeserializeGuard<Lease>> = Api::namespaced(client.clone(), &options.namespace);
        task.spawn(watch::follow(
            api,
            Selection::Name(options.name.clone()),
            "watch the lease",
            |_| {},
            // When there are more than fit, the newest of those that do is as good a reason to look.
            move |event| {
                let _ = events.try_send(event);
            },
        ));
        let api = Api::namespaced(client, &options.namespace);
        let trouble = Trouble::new("renew the lease");
        let state = State {
            api,
            options,
            until,
            start: Instant::now(),
            known: Known::Unasked,
            renewed: None,
            trouble,
        };
        task.spawn(state.run(seen, wanted_back));
        Self { leadership: Leadership(leadership), give_back, task }
    }

    pub fn leadership(&self) -> Leadership {
        self.leadership.clone()
    }

    /// Gives the lease back if we have it, so that another one need not wait. Whoever calls this writes no more.
    pub async fn give_back(mut self) {
        self.give_back.send_replace(true);
        let _ = timeout(CALL_LIMIT, self.task.join_next()).await;
    }
}

#[derive(Debug)]
enum Known {
    /// The server was not asked yet.
    Unasked,
    Nothing,
    Lease {
        seen: Seen,
        object: Arc<Lease>,
    },
}

struct State {
    api: Api<Lease>,
    options: Options,
    until: channel::Sender<Option<Instant>>,
    start: Instant,
    known: Known,
    renewed: Option<Duration>,
    trouble: Trouble,
}

impl State {
    async fn run(
        mut self,
        mut events: mpsc::Receiver<Event<Lease>>,
        mut wanted_back: channel::Receiver<bool>,
    ) {
        loop {
            let next = match &self.known {
                Known::Unasked => Step::WaitUntil(self.now() + PAUSE),
                Known::Nothing => Step::Take,
                Known::Lease { seen, .. } => {
                    step(&self.options.terms, Some(seen), &self.options.identity, self.renewed, self.now())
                }
            };
            if next == Step::Take
                && let Err(error) = self.take().await
            {
                self.trouble.failed(&error);
                tokio::select! {
                    () = sleep(PAUSE) => {}
                    _ = wanted_back.wait_for(|wanted| *wanted) => break,
                }
            }
            let Step::WaitUntil(time) = next else { continue };
            tokio::select! {
                () = sleep_until(self.start + time) => {}
                event = events.recv() => match event {
                    Some(event) => self.see(event),
                    None => return,
                },
                _ = wanted_back.wait_for(|wanted| *wanted) => break,
            }
        }
        self.release().await;
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn see(&mut self, event: Event<Lease>) {
        match event {
            Event::All(mut all) => match all.pop() {
                Some(object) => self.see_object(object),
                None => self.see_nothing(),
            },
            Event::Changed(object) => self.see_object(object),
            Event::Gone(object) => {
                if !self.is_older(&object.resource_version().unwrap_or_default()) {
                    self.see_nothing();
                }
            }
        }
    }

    fn see_object(&mut self, object: DeserializeGuard<Lease>) {
        if self.is_older(&object.resource_version().unwrap_or_default()) {
            return;
        }
        let Ok(object) = object.0 else {
            return tracing::warn!("the lease cannot be read");
        };
        self.learn(object);
    }

    fn see_nothing(&mut self) {
        self.known = Known::Nothing;
        self.publish();
    }

    fn is_older(&self, version: &str) -> bool {
        matches!(&self.known, Known::Lease { object, .. }
            if is_older(version, &object.resource_version().unwrap_or_default()))
    }

    fn learn(&mut self, object: Lease) {
        if let Known::Lease { object: known, .. } = &self.known
            && known.resource_version() == object.resource_version()
        {
            return;
        }
        let spec = object.spec.clone().unwrap_or_default();
        let seconds = u64::try_from(spec.lease_duration_seconds.unwrap_or_default()).unwrap_or_default();
        let seen = Seen {
            holder: spec.holder_identity.unwrap_or_default(),
            duration: Duration::from_secs(seconds),
            since: self.now(),
        };
        self.known = Known::Lease { seen, object: Arc::new(object) };
        self.publish();
    }

    fn publish(&self) {
        let seen = match &self.known {
            Known::Lease { seen, .. } => Some(seen),
            Known::Unasked | Known::Nothing => None,
        };
        let until = may_write_until(&self.options.terms, seen, &self.options.identity, self.renewed);
        let until = until.map(|until| self.start + until);
        self.until.send_if_modified(|known| {
            if known.is_none() && until.is_some() {
                tracing::info!(identity = self.options.identity, "leading");
            } else if known.is_some() && until.is_none() {
                tracing::info!(identity = self.options.identity, "no longer leading");
            }
            std::mem::replace(known, until) != until
        });
    }

    /// Writes our name, if the lease is still as we know it.
    async fn take(&mut self) -> Result<(), CallError> {
        let began = self.now();
        let answer = match &self.known {
            Known::Lease { object, .. } => {
                let mut lease = Lease::clone(object);
                let had_it = holder(&lease) == self.options.identity;
                lease.spec = Some(self.spec(lease.spec.as_ref(), had_it));
                let name = self.options.name.clone();
                let params = PostParams::default();
                limited(self.api.replace(&name, &params, &lease)).await
            }
            Known::Unasked | Known::Nothing => {
                let metadata = ObjectMeta { name: Some(self.options.name.clone()), ..ObjectMeta::default() };
                let lease = Lease { metadata, spec: Some(self.spec(None, false)) };
                limited(self.api.create(&PostParams::default(), &lease)).await
            }
        };
        match answer {
            Ok(lease) => {
                self.trouble.over();
                self.renewed = Some(began);
                self.learn(lease);
                self.publish();
                Ok(())
            }
            // What is made cannot be missing: it is its namespace that is.
            Err(error) if error.code() == Some(404) && !matches!(self.known, Known::Lease { .. }) => {
                Err(error)
            }
            // Somebody else was quicker, or it is gone: look at it as it is now.
            Err(error) if matches!(error.code(), Some(409 | 404)) => {
                let found = limited(self.api.get_opt(&self.options.name)).await?;
                match found {
                    Some(lease) => self.learn(lease),
                    None => self.see_nothing(),
                }
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn spec(&self, before: Option<&LeaseSpec>, had_it: bool) -> LeaseSpec {
        let now = Some(MicroTime((self.options.now)()));
        let seconds = i32::try_from(self.options.terms.duration.as_secs()).ok();
        let transitions = before.and_then(|before| before.lease_transitions).unwrap_or_default();
        LeaseSpec {
            holder_identity: Some(self.options.identity.clone()),
            lease_duration_seconds: seconds,
            acquire_time: before
                .filter(|_| had_it)
                .map_or_else(|| now.clone(), |before| before.acquire_time.clone()),
            renew_time: now,
            lease_transitions: Some(if had_it {
                transitions
            } else {
                transitions + i32::from(before.is_some())
            }),
            ..LeaseSpec::default()
        }
    }

    async fn release(&mut self) {
        self.until.send_replace(None);
        let Known::Lease { object, .. } = &self.known else { return };
        if holder(object) != self.options.identity || self.renewed.is_none() {
            return;
        }
        let mut lease = Lease::clone(object);
        if let Some(spec) = &mut lease.spec {
            spec.holder_identity = Some(String::new());
            // What others wait for at most, should they not look at the name.
            spec.lease_duration_seconds = Some(1);
        }
        match limited(self.api.replace(&self.options.name, &PostParams::default(), &lease)).await {
            Ok(_) => tracing::info!(identity = self.options.identity, "gave the lease back"),
            Err(error) => {
                tracing::warn!("cannot give the lease back: {error}; others take it when it has run out");
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
