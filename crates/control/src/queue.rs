//! The writes that the leader still has to make, most urgent first: an [`Outbox`] with at most one write per object.

use std::time::Duration;

use knmstate_api::Permit;
use knmstate_client::outbox::{Outbox, Schedule, Urgency};
use tokio::time::Instant;

use crate::writes::Write;

/// What a write changes. Of two writes with the same target only one is ever under way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WriteTarget {
    Enactment {
        policy: String,
        node: String,
    },
    Policy(String),
    /// Events are numbered.
    Event(u64),
}

/// How many events may wait to be written.
const MAX_EVENTS: usize = 256;
/// The status of a policy is not written more often than this, however quickly its nodes finish.
const MIN_STATUS_INTERVAL: Duration = Duration::from_secs(1);

/// The leader's outbox.
#[derive(Debug, Default)]
pub(crate) struct WriteQueue {
    outbox: Outbox<WriteTarget, Write>,
    /// How many events there were so far.
    events: u64,
}

impl WriteQueue {
    /// Adds a write, or replaces the pending one with the same target.
    pub(crate) fn put(&mut self, write: Write) {
        let target = match &write {
            Write::Order { order, .. } => {
                WriteTarget::Enactment { policy: order.policy_name.clone(), node: order.node_name.clone() }
            }
            Write::Removal { policy, node, .. } => {
                WriteTarget::Enactment { policy: policy.clone(), node: node.clone() }
            }
            Write::Status { policy, .. } => WriteTarget::Policy(policy.clone()),
            Write::Event(_) => {
                self.events += 1;
                WriteTarget::Event(self.events)
            }
        };
        if matches!(target, WriteTarget::Event(_)) && self.pending_events() >= MAX_EVENTS {
            tracing::debug!("too many events; one is left out");
            return;
        }
        let min_interval = match &target {
            WriteTarget::Policy(_) => MIN_STATUS_INTERVAL,
            WriteTarget::Enactment { .. } | WriteTarget::Event(_) => Duration::ZERO,
        };
        let schedule = Schedule { urgency: urgency(&write), not_before: None, min_interval };
        self.outbox.put(target, write, schedule);
    }

    /// Removes the pending write with this target.
    pub(crate) fn cancel(&mut self, target: &WriteTarget) {
        self.outbox.cancel(target);
    }

    /// Removes the pending removals of a policy's enactments on the nodes for which `stays` is true.
    pub(crate) fn cancel_removals(&mut self, policy: &str, stays: impl Fn(&str) -> bool) {
        self.outbox.retain(|_, write| match write {
            Write::Removal { policy: of, node, .. } => of != policy || !stays(node),
            Write::Order { .. } | Write::Status { .. } | Write::Event(_) => true,
        });
    }

    /// The next write that can be made now. It is under way until [`done`](Self::done) or [`failed`](Self::failed).
    pub(crate) fn take(&mut self, now: Instant) -> Option<(WriteTarget, Write)> {
        self.outbox.take(now)
    }

    /// When the next write can be made that cannot be made now, unless one that is under way ends before.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.outbox.next_at()
    }

    /// How many writes are pending.
    pub(crate) fn pending(&self) -> usize {
        self.outbox.len()
    }

    pub(crate) fn done(&mut self, target: &WriteTarget) {
        self.outbox.done(target);
    }

    /// A write has failed. It is tried again after a pause, unless there is a newer one with the same target.
    pub(crate) fn failed(&mut self, target: WriteTarget, write: Write, now: Instant) {
        match target {
            // An event is not worth a second attempt.
            WriteTarget::Event(_) => self.outbox.done(&target),
            WriteTarget::Enactment { .. } | WriteTarget::Policy(_) => self.outbox.failed(target, write, now),
        }
    }

    fn pending_events(&self) -> usize {
        // They come last: no write is less urgent, and no target is greater.
        self.outbox.keys().rev().take_while(|target| matches!(target, WriteTarget::Event(_))).count()
    }
}

fn urgency(write: &Write) -> Urgency {
    match write {
        Write::Removal { .. } => Urgency::Now,
        Write::Order { order, .. } if order.permit != Permit::Wait => Urgency::Now,
        Write::Order { .. } => Urgency::Soon,
        Write::Status { .. } | Write::Event(_) => Urgency::Later,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use knmstate_api::{NodeNetworkConfigurationEnactmentSpec, NodeNetworkConfigurationPolicyStatus};
    use serde_json::json;

    use super::*;

    fn order(node: &str, permit: Permit) -> Write {
        let order = NodeNetworkConfigurationEnactmentSpec {
            node_name: node.to_owned(),
            policy_name: "p".to_owned(),
            permit,
            ..Default::default()
        };
        Write::Order { order: Arc::new(order), owner: String::new() }
    }

    fn status() -> Write {
        let status = Box::new(NodeNetworkConfigurationPolicyStatus::default());
        Write::Status { policy: "p".to_owned(), status, patch: json!({}), then: None, rollout_took: None }
    }

    fn removal(node: &str) -> Write {
        Write::Removal { policy: "p".to_owned(), node: node.to_owned(), uid: "u".to_owned() }
    }

    fn take(queue: &mut WriteQueue) -> Option<(WriteTarget, String)> {
        queue.take(Instant::now()).map(|(target, write)| {
            let what = match &write {
                Write::Order { order, .. } => format!("{:?} {}", order.permit, order.node_name),
                Write::Removal { node, .. } => format!("remove {node}"),
                other => other.object().to_owned(),
            };
            (target, what)
        })
    }

    fn what(taken: Option<(WriteTarget, String)>) -> Option<String> {
        taken.map(|(_, what)| what)
    }

    #[tokio::test(start_paused = true)]
    async fn permits_come_first_and_what_only_readers_need_last() {
        let mut queue = WriteQueue::default();
        for write in [status(), order("a", Permit::Wait), order("b", Permit::Apply), removal("c")] {
            queue.put(write);
        }
        let taken: Vec<String> = std::iter::from_fn(|| what(take(&mut queue))).collect();
        assert_eq!(taken, ["Apply b", "remove c", "Wait a", "status"]);
    }

    #[tokio::test(start_paused = true)]
    async fn two_writes_of_one_object_are_one_after_the_other() {
        let mut queue = WriteQueue::default();
        queue.put(order("a", Permit::Wait));
        let (target, _) = take(&mut queue).unwrap();
        queue.put(order("a", Permit::Wait));
        queue.put(order("a", Permit::Apply));
        assert_eq!(queue.pending(), 1, "the newer one replaces the one before");
        assert_eq!(what(take(&mut queue)), None, "not before the first is done");
        queue.done(&target);
        assert_eq!(what(take(&mut queue)).as_deref(), Some("Apply a"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_failed_is_tried_again_unless_there_is_a_newer_one() {
        let mut queue = WriteQueue::default();
        queue.put(order("a", Permit::Apply));
        let (target, write) = queue.take(Instant::now()).unwrap();
        queue.failed(target, write, Instant::now());
        assert_eq!(what(take(&mut queue)), None, "after a pause");
        tokio::time::advance(Duration::from_secs(30)).await;
        let (target, write) = queue.take(Instant::now()).unwrap();
        queue.put(removal("a"));
        queue.failed(target, write, Instant::now());
        assert_eq!(what(take(&mut queue)).as_deref(), Some("remove a"));
        assert_eq!(queue.pending(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_status_is_written_once_a_second_at_most() {
        let mut queue = WriteQueue::default();
        queue.put(status());
        let (target, _) = take(&mut queue).unwrap();
        queue.put(status());
        queue.done(&target);
        assert_eq!(what(take(&mut queue)), None);
        assert_eq!(queue.next_at(), Some(Instant::now() + MIN_STATUS_INTERVAL));
        tokio::time::advance(MIN_STATUS_INTERVAL).await;
        assert_eq!(what(take(&mut queue)).as_deref(), Some("status"));
    }

    #[tokio::test(start_paused = true)]
    async fn what_stays_after_all_is_not_removed() {
        let mut queue = WriteQueue::default();
        queue.put(removal("a"));
        queue.put(removal("b"));
        queue.put(order("c", Permit::Apply));
        queue.cancel_removals("p", |node| node == "a");
        let taken: Vec<String> = std::iter::from_fn(|| what(take(&mut queue))).collect();
        assert_eq!(taken, ["remove b", "Apply c"]);
    }
}
