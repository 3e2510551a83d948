//! The work of the controller that leads: whenever the cluster has changed, it decides and writes what follows.

use std::{collections::BTreeMap, fmt, panic::resume_unwind, sync::Arc, time::Duration};

use jiff::Timestamp;
use knmstate_api::{NodeNetworkConfigurationPolicyStatus, reasons::policy::PROGRESSING};
use knmstate_client::{
    apply::exact_merge,
    call::{CallError, FailureLog},
    lease::Leadership,
    parts::PartEnded,
    progress::Progress,
};
use kube::Client;
use tokio::{
    task::{JoinError, JoinSet},
    time::{Instant, sleep_until, timeout},
};

use crate::{
    cluster_state::{ClusterState, EnactmentOutcome, Origin},
    controller_metrics::ControllerMetrics,
    events,
    judge::{Judge, Verdict},
    known_checks::KnownChecks,
    plan::{PolicyPlan, plan_policy, question},
    queue::{WriteQueue, WriteTarget},
    sources::{self, SharedClusterState},
    writes::{Write, Written},
};

/// How many writes are under way at once: enough to keep the server busy, few enough to leave room for other clients.
const MAX_CONCURRENT_WRITES: usize = 16;
/// How long one write may take, while the lease allows it.
const WRITE_LIMIT: Duration = Duration::from_secs(4);
/// A write is not begun with less time than this: it would most likely be cut off.
const MIN_WRITE_LIMIT: Duration = Duration::from_millis(500);
/// How long to wait at least before looking again for a write that can be begun.
const MIN_WAIT: Duration = Duration::from_millis(50);
/// How long the writes under way may take to end when this process is asked to stop.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);

/// What the leader needs.
#[derive(Clone)]
pub(crate) struct LeaderOptions {
    pub client: Client,
    /// Where the pods of handlers are.
    pub namespace: String,
    pub now: fn() -> Timestamp,
    pub known_checks: KnownChecks,
    pub progress: Progress,
}

impl fmt::Debug for LeaderOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("LeaderOptions").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

/// The loop begins a new turn at least this often, also when nothing happens.
const TURN: Duration = Duration::from_secs(20);
/// A turn that takes longer hangs.
const TURN_LIMIT: Duration = Duration::from_mins(1);

/// Leads until the lease is lost or `stop` completes; fails if a watch ends. What it has read and decided and not written
/// is dropped then; the next leader reads and decides again.
pub(crate) async fn lead(
    options: &LeaderOptions,
    cluster: &SharedClusterState,
    metrics: &ControllerMetrics,
    mut leadership: Leadership,
    stop: impl Future<Output = ()>,
) -> Result<(), PartEnded> {
    cluster.forget();
    let mut watches = sources::watch(&options.client, &options.namespace, cluster, options.now);
    let mut leader = Leader {
        options,
        cluster,
        metrics,
        leadership: leadership.clone(),
        queue: WriteQueue::default(),
        judge: Judge::new(options.known_checks.clone()),
        lacks_time: false,
        writes: JoinSet::new(),
        timers: BTreeMap::new(),
        failures: FailureLog::new("write what was decided"),
    };
    let mut stop = std::pin::pin!(stop);
    loop {
        let _turn = options.progress.begin("leader", TURN_LIMIT);
        tokio::select! {
            () = leadership.lost() => return Ok(()),
            () = &mut stop => break,
            ended = watches.ended() => return Err(ended),
            () = leader.next_event() => {}
        }
        let began = Instant::now();
        if leader.decide() {
            metrics.observe_decision(began.elapsed());
        }
        leader.begin_writes();
        metrics.set_queue_depth(leader.queue.pending());
    }
    let _ = timeout(SHUTDOWN_GRACE, leader.end_writes()).await;
    Ok(())
}

type Outcome = (WriteTarget, Write, Result<Written, CallError>);

struct Leader<'a> {
    options: &'a LeaderOptions,
    cluster: &'a SharedClusterState,
    metrics: &'a ControllerMetrics,
    leadership: Leadership,
    queue: WriteQueue,
    judge: Judge,
    /// Whether the lease ends too soon for a write.
    lacks_time: bool,
    writes: JoinSet<Outcome>,
    /// When to decide again although nothing has changed.
    timers: BTreeMap<Origin, Instant>,
    failures: FailureLog,
}

impl Leader<'_> {
    async fn next_event(&mut self) {
        // A write that is due and was not begun waits for another one to end, or for the lease to be renewed.
        let next_write = if self.lacks_time && self.queue.pending() > 0 {
            Some(Instant::now())
        } else {
            self.queue.next_at()
        };
        let next_write = next_write.map(|time| time.max(Instant::now() + MIN_WAIT));
        let next_turn = Instant::now() + TURN;
        let next = self.timers.values().copied().chain(next_write).fold(next_turn, Instant::min);
        tokio::select! {
            Some(ended) = self.writes.join_next() => self.ended(ended),
            Some(judged) = self.judge.next() => self.cluster.lock().mark_affected(judged),
            () = self.cluster.changed() => {}
            () = sleep_until(next) => {}
        }
        // Writes that have also ended by now are part of the same decision.
        while let Some(ended) = self.writes.try_join_next() {
            self.ended(ended);
        }
    }

    fn ended(&mut self, write: Result<Outcome, JoinError>) {
        match write {
            Ok(outcome) => self.written(outcome),
            // The object would never be written again. The next leader writes it.
            Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
            Err(_) => {}
        }
    }

    /// Decides about what has changed; false if nothing has.
    fn decide(&mut self) -> bool {
        let now = (self.options.now)();
        let instant = Instant::now();
        let mut cluster = self.cluster.lock();
        if !cluster.is_complete() {
            return false;
        }
        let due: Vec<Origin> =
            self.timers.iter().filter(|(_, at)| **at <= instant).map(|(origin, _)| origin.clone()).collect();
        for origin in due {
            self.timers.remove(&origin);
            cluster.mark_affected(origin);
        }
        let affected = cluster.take_affected();
        let has_changed = !affected.is_empty();
        for origin in affected {
            let verdict = self.judge.verdict(&origin, question(&cluster, &origin));
            let Verdict::Known { refusal, again_at: judged_again_at } = verdict else {
                // Until there is a verdict, everything stays as it is.
                continue;
            };
            let plan = plan_policy(&cluster, &origin, refusal, now);
            let planned_again_at = plan.again_at.map(|again_at| {
                let wait = Duration::try_from(again_at.duration_since(now)).unwrap_or_default();
                // A moment later rather than a moment too soon.
                instant + wait + Duration::from_millis(10)
            });
            self.timers.remove(&origin);
            self.timers.extend(
                planned_again_at
                    .into_iter()
                    .chain(judged_again_at)
                    .min()
                    .map(|again_at| (origin.clone(), again_at)),
            );
            put_in_queue(&mut self.queue, &mut cluster, &origin, plan, now);
        }
        for event in self.cluster.take_events() {
            match event.outcome {
                EnactmentOutcome::RolledBack => self.metrics.count_rollback(),
                outcome => self.metrics.count_result(outcome.result()),
            }
            for probe in &event.failed_probes {
                self.metrics.count_probe_failure(probe);
            }
            let policy = cluster.policies.get(&event.policy);
            let event = policy.and_then(|policy| events::of_node(&event, &policy.uid, now));
            if let Some(event) = event {
                self.queue.put(Write::Event(Box::new(event)));
            }
        }
        has_changed
    }

    fn begin_writes(&mut self) {
        let Some(until) = self.leadership.may_write_until() else { return };
        let limit = until.saturating_duration_since(Instant::now()).min(WRITE_LIMIT);
        self.lacks_time = limit < MIN_WRITE_LIMIT;
        if self.lacks_time {
            return;
        }
        while self.writes.len() < MAX_CONCURRENT_WRITES
            && let Some((target, write)) = self.queue.take(Instant::now())
        {
            let client = self.options.client.clone();
            let metrics = self.metrics.clone();
            self.writes.spawn(async move {
                let began = Instant::now();
                let result = write.execute(client, limit).await;
                metrics.observe_write(write.object(), began.elapsed(), result.is_ok());
                (target, write, result)
            });
        }
    }

    fn written(&mut self, (target, write, result): Outcome) {
        let now = Instant::now();
        let written = match result {
            Ok(written) => {
                self.failures.succeeded();
                self.queue.done(&target);
                written
            }
            Err(error) => {
                self.failures.failed(&error);
                self.queue.failed(target, write, now);
                return;
            }
        };
        let mut cluster = self.cluster.lock();
        match (write, written) {
            (Write::Order { order, .. }, Written::Order(answer)) => {
                let (policy, node) = (&order.policy_name, &order.node_name);
                cluster.enactments.written(policy, node, &order, *answer);
                let origin = Origin::of(policy, node);
                cluster.mark_affected(origin);
            }
            (Write::Removal { policy, node, uid }, Written::Removal) => {
                if cluster.enactments.get(&policy, &node).is_some_and(|known| known.uid == uid) {
                    cluster.enactments.removed(&policy, &node);
                }
                cluster.mark_affected(Origin::of(&policy, &node));
            }
            (Write::Status { policy, status, then, rollout_took, .. }, Written::Status(Some(version))) => {
                if let Some(took) = rollout_took {
                    self.metrics.observe_rollout(took);
                }
                if let Some(event) = then {
                    self.queue.put(Write::Event(event));
                }
                cluster.status_written(&policy, *status, version);
                cluster.mark_affected(Origin::Policy(policy));
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

fn put_in_queue(
    queue: &mut WriteQueue,
    cluster: &mut ClusterState,
    origin: &Origin,
    plan: PolicyPlan,
    now: Timestamp,
) {
    let policy = origin.label();
    queue.cancel_removals(policy, |node| {
        Origin::of(policy, node) == *origin && !plan.removals.contains_key(node)
    });
    for (node, uid) in plan.removals {
        queue.cancel(&WriteTarget::Enactment { policy: policy.to_owned(), node: node.clone() });
        cluster.enactments.undecide(policy, &node);
        if !uid.is_empty() {
            queue.put(Write::Removal { policy: policy.to_owned(), node, uid });
        }
    }
    for (node, order) in plan.orders {
        let Some(owner) = cluster.nodes.get(&node).map(|node| node.uid.clone()) else { continue };
        cluster.enactments.decide(policy, &node, Arc::clone(&order));
        queue.put(Write::Order { order, owner });
    }
    let Origin::Policy(name) = origin else { return };
    match (plan.status, cluster.policies.get(name)) {
        (Some(status), Some(known)) => {
            let patch = exact_merge(&known.status, &status);
            // Computed now: the watch may show the new status before the response to the write.
            let then = events::of_success(name, &known.uid, &known.status, &status, now).map(Box::new);
            let rollout_took = rollout_took(&known.status, &status, now);
            let (policy, status) = (name.clone(), Box::new(status));
            queue.put(Write::Status { policy, status, patch, then, rollout_took });
        }
        _ => queue.cancel(&WriteTarget::Policy(name.clone())),
    }
}
