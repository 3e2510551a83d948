//! The work of the controller that leads: whenever the world has changed, decide, and write what follows.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use jiff::Timestamp;
use knmstate_api::{NodeNetworkConfigurationPolicyStatus, reasons::policy::PROGRESSING};
use knmstate_client::{
    apply::exact_merge,
    call::{CallError, Trouble},
    lease::Leadership,
};
use kube::Client;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until, timeout},
};

use crate::{
    events,
    measures::Measures,
    plan::{Plan, plan},
    queue::{About, Queue},
    sources::{self, LiveWorld},
    world::{Origin, What, World},
    writes::{Write, Written},
};

/// How many writes are under way at once: enough to keep the server busy, few enough not to crowd out others.
const AT_ONCE: usize = 16;
/// How long one write may take, while the lease allows it.
const WRITE_LIMIT: Duration = Duration::from_secs(4);
/// A write is not begun with less time than this: it would most likely be cut off.
const LEAST: Duration = Duration::from_millis(500);
/// How long what is under way may take to end when this process is asked to.
const FAREWELL: Duration = Duration::from_secs(2);

/// What the leader works with.
#[derive(Clone)]
pub struct Options {
    pub client: Client,
    /// Where the pods of handlers are.
    pub namespace: String,
    pub now: fn() -> Timestamp,
}

impl fmt::Debug for Options {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Options").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

/// Leads until the lease is lost or `stop` comes. Everything that it knows and has not written is gone then; the next
/// leader finds out by itself.
pub async fn lead(
    options: &Options,
    world: &LiveWorld,
    measures: &Measures,
    mut leadership: Leadership,
    stop: impl Future<Output = ()>,
) {
    world.forget();
    let _watches = sources::watch(&options.client, &options.namespace, world, options.now);
    let mut leader = Leader {
        options,
        world,
        measures,
        leadership: leadership.clone(),
        queue: Queue::default(),
        writes: JoinSet::new(),
        timers: BTreeMap::new(),
        trouble: Trouble::new("write what was decided"),
    };
    let mut stop = std::pin::pin!(stop);
    loop {
        tokio::select! {
            () = leadership.lost() => return,
            () = &mut stop => break,
            () = leader.something_happens() => {}
        }
        let began = Instant::now();
        if leader.decide() {
            measures.decided(began.elapsed());
        }
        leader.begin_writes();
        measures.queue_depth(leader.queue.waiting());
    }
    let _ = timeout(FAREWELL, leader.end_writes()).await;
}

type Outcome = (About, Write, Result<Written, CallError>);

struct Leader<'a> {
    options: &'a Options,
    world: &'a LiveWorld,
    measures: &'a Measures,
    leadership: Leadership,
    queue: Queue,
    writes: JoinSet<Outcome>,
    /// When to decide anew though nothing has happened.
    timers: BTreeMap<Origin, Instant>,
    trouble: Trouble,
}

impl Leader<'_> {
    async fn something_happens(&mut self) {
        let next = self.timers.values().copied().chain(self.queue.next()).min();
        let at_next = async {
            match next {
                Some(next) => sleep_until(next).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Some(outcome) = self.writes.join_next() => {
                if let Ok(outcome) = outcome {
                    self.written(outcome);
                }
            }
            () = self.world.changed() => {}
            () = at_next => {}
        }
        // Whatever else has ended by now is taken into account in the same decision.
        while let Some(Ok(outcome)) = self.writes.try_join_next() {
            self.written(outcome);
        }
    }

    /// Decides about what has changed; false if nothing has.
    fn decide(&mut self) -> bool {
        let now = (self.options.now)();
        let instant = Instant::now();
        let mut world = self.world.lock();
        if !world.is_known() {
            return false;
        }
        let due: Vec<Origin> =
            self.timers.iter().filter(|(_, at)| **at <= instant).map(|(origin, _)| origin.clone()).collect();
        for origin in due {
            self.timers.remove(&origin);
            world.reconsider(origin);
        }
        let concerned = world.take_concerned();
        let has_changed = !concerned.is_empty();
        for origin in concerned {
            let plan = plan(&world, &origin, now);
            self.timers.remove(&origin);
            if let Some(again_at) = plan.again_at {
                let wait = Duration::try_from(again_at.duration_since(now)).unwrap_or_default();
                // A moment later rather than a moment too soon.
                self.timers.insert(origin.clone(), instant + wait + Duration::from_millis(10));
            }
            put_in_queue(&mut self.queue, &mut world, &origin, plan, now);
        }
        for happening in self.world.take_happenings() {
            match happening.what {
                What::RolledBack => self.measures.rolled_back(),
                what => self.measures.result(what.result()),
            }
            for probe in &happening.failed_probes {
                self.measures.probe_failed(probe);
            }
            let policy = world.policies.get(&happening.policy);
            let event = policy.and_then(|policy| events::of_node(&happening, &policy.uid, now));
            if let Some(event) = event {
                self.queue.put(Write::Event(Box::new(event)));
            }
        }
        has_changed
    }

    fn begin_writes(&mut self) {
        let Some(until) = self.leadership.may_write_until() else { return };
        let limit = until.saturating_duration_since(Instant::now()).min(WRITE_LIMIT);
        if limit < LEAST {
            return;
        }
        while self.writes.len() < AT_ONCE
            && let Some((about, write)) = self.queue.take(Instant::now())
        {
            let client = self.options.client.clone();
            let measures = self.measures.clone();
            self.writes.spawn(async move {
                let began = Instant::now();
                let result = write.execute(client, limit).await;
                measures.written(write.object(), began.elapsed(), result.is_ok());
                (about, write, result)
            });
        }
    }

    fn written(&mut self, (about, write, result): Outcome) {
        let now = Instant::now();
        let written = match result {
            Ok(written) => {
                self.trouble.over();
                self.queue.done(&about, now);
                written
            }
            Err(error) => {
                self.trouble.failed(&error);
                self.queue.failed(about, write, now);
                return;
            }
        };
        let mut world = self.world.lock();
        match (write, written) {
            (Write::Order { order, .. }, Written::Order(answer)) => {
                let (policy, node) = (&order.policy_name, &order.node_name);
                world.enactments.written(policy, node, &order, *answer);
                let origin = Origin::of(policy, node);
                world.reconsider(origin);
            }
            (Write::Removal { policy, node, uid }, Written::Removal) => {
                if world.enactments.get(&policy, &node).is_some_and(|known| known.uid == uid) {
                    world.enactments.removed(&policy, &node);
                }
                world.reconsider(Origin::of(&policy, &node));
            }
            (Write::Status { policy, status, then, rollout_took, .. }, Written::Status(Some(version))) => {
                if let Some(took) = rollout_took {
                    self.measures.rollout_ended(took);
                }
                if let Some(event) = then {
                    self.queue.put(Write::Event(event));
                }
                world.status_written(&policy, *status, version);
                world.reconsider(Origin::Policy(policy));
            }
            _ => {}
        }
    }

    async fn end_writes(&mut self) {
        while self.writes.join_next().await.is_some() {}
    }
}

/// How long a policy was progressing that no longer is.
fn rollout_took(
    before: &NodeNetworkConfigurationPolicyStatus,
    after: &NodeNetworkConfigurationPolicyStatus,
    now: Timestamp,
) -> Option<Duration> {
    let progressing =
        before.conditions.get(PROGRESSING).filter(|_| before.conditions.is_true(PROGRESSING))?;
    let since =
        progressing.last_transition_time.as_ref().filter(|_| !after.conditions.is_true(PROGRESSING))?;
    Duration::try_from(now.duration_since(since.0)).ok()
}

fn put_in_queue(queue: &mut Queue, world: &mut World, origin: &Origin, plan: Plan, now: Timestamp) {
    let policy = origin.label();
    queue.drop_removals(policy, |node| {
        Origin::of(policy, node) == *origin && !plan.removals.contains_key(node)
    });
    for (node, uid) in plan.removals {
        queue.drop_about(&About::Enactment { policy: policy.to_owned(), node: node.clone() });
        world.enactments.undecide(policy, &node);
        if !uid.is_empty() {
            queue.put(Write::Removal { policy: policy.to_owned(), node, uid });
        }
    }
    for (node, order) in plan.orders {
        let Some(owner) = world.nodes.get(&node).map(|node| node.uid.clone()) else { continue };
        world.enactments.decide(policy, &node, Arc::clone(&order));
        queue.put(Write::Order { order, owner });
    }
    let Origin::Policy(name) = origin else { return };
    match (plan.status, world.policies.get(name)) {
        (Some(status), Some(known)) => {
            let patch = exact_merge(&known.status, &status);
            // Known now: the watch may show the new status before the write is answered.
            let then = events::of_success(name, &known.uid, &known.status, &status, now).map(Box::new);
            let rollout_took = rollout_took(&known.status, &status, now);
            let (policy, status) = (name.clone(), Box::new(status));
            queue.put(Write::Status { policy, status, patch, then, rollout_took });
        }
        _ => queue.drop_about(&About::Policy(name.clone())),
    }
}
