//! Which nodes have a handler, and whether it reports.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use knmstate_client::{store::Store, watch::ObjectEvent};

use super::{ClusterState, SlimPod};

/// A missing handler counts only after this time, because pods get replaced.
const HANDLER_GRACE: jiff::SignedDuration = jiff::SignedDuration::from_secs(60);

/// Whether a node runs a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handler {
    Runs,
    /// Its pod is gone and its replacement is expected until then.
    Replaced {
        since: Timestamp,
        until: Timestamp,
    },
    Gone {
        since: Option<Timestamp>,
    },
}

impl ClusterState {
    /// Whether a node runs a handler, and if not, since when.
    pub(crate) fn handler(&self, node: &str, now: Timestamp) -> Handler {
        if self.pods.values().any(|pod| pod.node == node) {
            return Handler::Runs;
        }
        match self.missing_handlers.get(node) {
            Some(since) => match since.checked_add(HANDLER_GRACE) {
                Ok(until) if until > now => Handler::Replaced { since: *since, until },
                _ => Handler::Gone { since: Some(*since) },
            },
            None => self.no_handler(),
        }
    }

    /// The state of a node that has not been seen to run one.
    pub(crate) const fn no_handler(&self) -> Handler {
        Handler::Gone { since: self.handlers_since }
    }

    /// The nodes that run a handler or have run one.
    pub(crate) fn handlers(&self, now: Timestamp) -> BTreeMap<&str, Handler> {
        let running = self.pods.values().map(|pod| (&*pod.node, Handler::Runs));
        let missing_handlers = self.missing_handlers.keys().map(|node| (&**node, self.handler(node, now)));
        missing_handlers.chain(running).collect()
    }

    /// The Ready nodes that have a handler or a NodeNetworkState, and whether the handler reports.
    pub(crate) fn reporting(&self) -> impl Iterator<Item = (&String, bool)> {
        let mut handled: BTreeMap<&str, bool> = BTreeMap::new();
        for pod in self.pods.values() {
            *handled.entry(&pod.node).or_default() |= pod.is_ready;
        }
        self.nodes.iter().filter(|(_, node)| node.is_ready).filter_map(move |(name, _)| {
            let has_state = self.node_states.contains_key(name);
            match handled.get(&**name) {
                Some(is_ready) => Some((name, *is_ready && has_state)),
                None => has_state.then_some((name, false)),
            }
        })
    }

    pub(crate) fn observe_handlers(&mut self, event: ObjectEvent<SlimPod>, now: Timestamp) {
        let nodes = |pods: &Store<HandlerPod>| -> BTreeSet<String> {
            pods.values().map(|pod| pod.node.clone()).collect()
        };
        let before = nodes(&self.pods);
        let changes = self.pods.apply(event, |pod, _| HandlerPod::of(&pod));
        super::name_unreadable("the pod of a handler", &changes.unreadable);
        if changes.listed {
            self.handlers_since.get_or_insert(now);
        }
        let after = nodes(&self.pods);
        for node in &after {
            self.missing_handlers.remove(node);
        }
        for node in before.difference(&after) {
            self.missing_handlers.insert(node.clone(), now);
        }
        self.all_affected |= before != after;
    }
}

/// A pod of a handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HandlerPod {
    node: String,
    is_ready: bool,
}

impl HandlerPod {
    /// `None` while the pod has no node.
    fn of(pod: &SlimPod) -> Option<Self> {
        Some(Self { node: pod.node()?.to_owned(), is_ready: pod.is_ready() })
    }
}
