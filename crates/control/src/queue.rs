//! What the leader still has to write: at most one thing for each object, the urgent ones first, each at its time.

use std::{collections::BTreeMap, time::Duration};

use knmstate_api::Permit;
use knmstate_client::call::Pauses;
use tokio::time::Instant;

use crate::writes::Write;

/// What a write is about. Two that are about the same are never under way at once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum About {
    Enactment {
        policy: String,
        node: String,
    },
    Policy(String),
    /// Events are numbered.
    Event(u64),
}

/// How soon a write matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Urgency {
    /// A node is to leave off, or to begin.
    Now,
    /// A node is to know that it waits.
    Soon,
    /// People want to know.
    Later,
}

#[derive(Debug)]
struct Entry {
    write: Write,
    from: Option<Instant>,
    pauses: Pauses,
}

/// How many events may wait to be written.
const MOST_EVENTS: usize = 256;

#[derive(Debug, Default)]
pub struct Queue {
    entries: BTreeMap<(Urgency, About), Entry>,
    /// With the pauses between attempts so far.
    under_way: BTreeMap<About, Pauses>,
    /// When the status of a policy may be written again.
    peace: BTreeMap<String, Instant>,
    events: u64,
}

/// The status of a policy is not written more often than this, however quickly its nodes are done.
const PEACE: Duration = Duration::from_secs(1);

impl Queue {
    /// Puts a write in the place of the one about the same, if there is one.
    pub fn put(&mut self, write: Write) {
        let about = match &write {
            Write::Order { order, .. } => {
                About::Enactment { policy: order.policy_name.clone(), node: order.node_name.clone() }
            }
            Write::Removal { policy, node, .. } => {
                About::Enactment { policy: policy.clone(), node: node.clone() }
            }
            Write::Status { policy, .. } => About::Policy(policy.clone()),
            Write::Event(_) => {
                self.events += 1;
                About::Event(self.events)
            }
        };
        if matches!(about, About::Event(_)) && self.events_waiting() >= MOST_EVENTS {
            tracing::debug!("too many events; one is left out");
            return;
        }
        self.drop_about(&about);
        let from = match &about {
            About::Policy(policy) => self.peace.get(policy).copied(),
            _ => None,
        };
        self.entries.insert((urgency(&write), about), Entry { write, from, pauses: Pauses::new() });
    }

    /// Nothing is to be written about this after all.
    pub fn drop_about(&mut self, about: &About) {
        for urgency in [Urgency::Now, Urgency::Soon, Urgency::Later] {
            self.entries.remove(&(urgency, about.clone()));
        }
    }

    /// Enactments of a policy that are not to go after all.
    pub fn drop_removals(&mut self, policy: &str, stays: impl Fn(&str) -> bool) {
        let first = About::Enactment { policy: policy.to_owned(), node: String::new() };
        let of_policy = self.entries.range((Urgency::Now, first)..).take_while(
            |((urgency, about), _)| matches!(about, About::Enactment { policy: of, .. } if *urgency == Urgency::Now && of == policy),
        );
        let dropped = of_policy.filter_map(|(key, entry)| match &entry.write {
            Write::Removal { node, .. } if stays(node) => Some(key.clone()),
            _ => None,
        });
        for key in dropped.collect::<Vec<_>>() {
            self.entries.remove(&key);
        }
    }

    /// The next write that can be made now. It is under way until [`done`](Self::done) or [`failed`](Self::failed).
    pub fn take(&mut self, now: Instant) -> Option<(About, Write)> {
        let is_ready = |(_, about): &(Urgency, About), entry: &Entry| {
            !self.under_way.contains_key(about) && entry.from.is_none_or(|from| from <= now)
        };
        let key =
            self.entries.iter().find(|(key, entry)| is_ready(key, entry)).map(|(key, _)| key.clone())?;
        let entry = self.entries.remove(&key)?;
        let (_, about) = key;
        self.under_way.insert(about.clone(), entry.pauses);
        if let About::Policy(policy) = &about {
            self.peace.insert(policy.clone(), now + PEACE);
        }
        Some((about, entry.write))
    }

    /// When the next write can be made that cannot be made now, unless something ends before.
    pub fn next(&self) -> Option<Instant> {
        let waiting = self.entries.iter().filter(|((_, about), _)| !self.under_way.contains_key(about));
        waiting.filter_map(|(_, entry)| entry.from).min()
    }

    /// How many writes wait.
    pub fn waiting(&self) -> usize {
        self.entries.len()
    }

    pub fn done(&mut self, about: &About, now: Instant) {
        self.under_way.remove(about);
        if let About::Policy(policy) = about
            && let Some(entry) = self.entries.get_mut(&(Urgency::Later, about.clone()))
        {
            entry.from = self.peace.get(policy).copied();
        }
        self.peace.retain(|_, until| *until > now);
    }

    /// A write has failed. It is tried again after a pause, unless there is a newer one about the same.
    pub fn failed(&mut self, about: About, write: Write, now: Instant) {
        let mut pauses = self.under_way.remove(&about).unwrap_or_default();
        let is_superseded = [Urgency::Now, Urgency::Soon, Urgency::Later]
            .iter()
            .any(|urgency| self.entries.contains_key(&(*urgency, about.clone())));
        // Nobody misses an event for long.
        if is_superseded || matches!(about, About::Event(_)) {
            return;
        }
        let from = Some(now + pauses.longer());
        self.entries.insert((urgency(&write), about), Entry { write, from, pauses });
    }

    fn events_waiting(&self) -> usize {
        let last = (Urgency::Later, About::Event(0));
        self.entries.range(last..).count()
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

    fn take(queue: &mut Queue) -> Option<(About, String)> {
        queue.take(Instant::now()).map(|(about, write)| {
            let what = match &write {
                Write::Order { order, .. } => format!("{:?} {}", order.permit, order.node_name),
                Write::Removal { node, .. } => format!("remove {node}"),
                other => other.object().to_owned(),
            };
            (about, what)
        })
    }

    fn what(taken: Option<(About, String)>) -> Option<String> {
        taken.map(|(_, what)| what)
    }

    #[tokio::test(start_paused = true)]
    async fn who_may_begin_comes_first_and_people_last() {
        let mut queue = Queue::default();
        for write in [status(), order("a", Permit::Wait), order("b", Permit::Apply), removal("c")] {
            queue.put(write);
        }
        let taken: Vec<String> = std::iter::from_fn(|| what(take(&mut queue))).collect();
        assert_eq!(taken, ["Apply b", "remove c", "Wait a", "status"]);
    }

    #[tokio::test(start_paused = true)]
    async fn two_writes_about_the_same_are_one_after_the_other() {
        let mut queue = Queue::default();
        queue.put(order("a", Permit::Wait));
        let (about, _) = take(&mut queue).unwrap();
        queue.put(order("a", Permit::Wait));
        queue.put(order("a", Permit::Apply));
        assert_eq!(queue.waiting(), 1, "the newer one takes the place of the one before");
        assert_eq!(what(take(&mut queue)), None, "not before the first is done");
        queue.done(&about, Instant::now());
        assert_eq!(what(take(&mut queue)).as_deref(), Some("Apply a"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_failed_is_tried_again_unless_there_is_a_newer_one() {
        let mut queue = Queue::default();
        queue.put(order("a", Permit::Apply));
        let (about, write) = queue.take(Instant::now()).unwrap();
        queue.failed(about, write, Instant::now());
        assert_eq!(what(take(&mut queue)), None, "after a pause");
        tokio::time::advance(Duration::from_secs(30)).await;
        let (about, write) = queue.take(Instant::now()).unwrap();
        queue.put(removal("a"));
        queue.failed(about, write, Instant::now());
        assert_eq!(what(take(&mut queue)).as_deref(), Some("remove a"));
        assert_eq!(queue.waiting(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_status_is_written_once_a_second_at_most() {
        let mut queue = Queue::default();
        queue.put(status());
        let (about, _) = take(&mut queue).unwrap();
        queue.put(status());
        queue.done(&about, Instant::now());
        assert_eq!(what(take(&mut queue)), None);
        assert_eq!(queue.next(), Some(Instant::now() + PEACE));
        tokio::time::advance(PEACE).await;
        assert_eq!(what(take(&mut queue)).as_deref(), Some("status"));
    }

    #[tokio::test(start_paused = true)]
    async fn what_stays_after_all_is_not_removed() {
        let mut queue = Queue::default();
        queue.put(removal("a"));
        queue.put(removal("b"));
        queue.put(order("c", Permit::Apply));
        queue.drop_removals("p", |node| node == "a");
        let taken: Vec<String> = std::iter::from_fn(|| what(take(&mut queue))).collect();
        assert_eq!(taken, ["remove b", "Apply c"]);
    }
}
