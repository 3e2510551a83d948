//! The handlers of nodes: who has one, and whether it does its work.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use knmstate_client::watch::Seen;
use kube::{ResourceExt as _, core::DeserializeGuard};

use super::{Part, SlimPod, World};

/// A handler that has gone is missed only after this time: pods are replaced, and that is no reason to count anew.
const HANDLER_GRACE: jiff::SignedDuration = jiff::SignedDuration::from_secs(60);

/// Whether a node runs a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handler {
    Runs,
    /// It has gone, and another one is expected.
    Replaced {
        since: Timestamp,
        until: Timestamp,
    },
    Gone {
        since: Option<Timestamp>,
    },
}

impl World {
    /// Whether a node runs a handler, and if not, since when.
    pub fn handler(&self, node: &str, now: Timestamp) -> Handler {
        if self.pods.values().any(|of| of == node) {
            return Handler::Runs;
        }
        match self.bereft.get(node) {
            Some(since) => match since.checked_add(HANDLER_GRACE) {
                Ok(until) if until > now => Handler::Replaced { since: *since, until },
                _ => Handler::Gone { since: Some(*since) },
            },
            None => self.no_handler(),
        }
    }

    /// What is to be said of a node that was never seen to run one.
    pub const fn no_handler(&self) -> Handler {
        Handler::Gone { since: self.handlers_since }
    }

    /// The nodes that run a handler or did so a moment ago.
    pub fn handlers(&self, now: Timestamp) -> BTreeMap<&str, Handler> {
        let running = self.pods.values().map(|node| (&**node, Handler::Runs));
        let bereft = self.bereft.keys().map(|node| (&**node, self.handler(node, now)));
        bereft.chain(running).collect()
    }

    /// The Ready nodes that have a handler or once had one, and whether it reports.
    pub fn reporting(&self) -> impl Iterator<Item = (&String, bool)> {
        let mut handled: BTreeMap<&str, bool> = BTreeMap::new();
        for (pod, node) in &self.pods {
            *handled.entry(node).or_default() |= self.ready_pods.contains(pod);
        }
        self.nodes.iter().filter(|(_, node)| node.is_ready).filter_map(move |(name, _)| {
            let has_state = self.networks.contains_key(name);
            match handled.get(&**name) {
                Some(is_ready) => Some((name, *is_ready && has_state)),
                None => has_state.then_some((name, false)),
            }
        })
    }

    pub fn see_handlers(&mut self, seen: Seen<SlimPod>, now: Timestamp) {
        let before: BTreeSet<String> = self.pods.values().cloned().collect();
        match seen {
            Seen::All(all) => {
                self.listed.insert(Part::Handlers);
                self.handlers_since.get_or_insert(now);
                self.pods.clear();
                self.ready_pods.clear();
                for object in all {
                    self.see_handler(object);
                }
            }
            Seen::Changed(object) => self.see_handler(object),
            Seen::Gone(object) => {
                self.pods.remove(&object.name_any());
                self.ready_pods.remove(&object.name_any());
            }
        }
        let after: BTreeSet<String> = self.pods.values().cloned().collect();
        for node in &after {
            self.bereft.remove(node);
        }
        for node in before.difference(&after) {
            self.bereft.insert(node.clone(), now);
        }
        self.everything_concerned |= before != after;
    }

    fn see_handler(&mut self, object: DeserializeGuard<SlimPod>) {
        let Some((pod, node, is_ready)) = read_pod(object) else { return };
        if is_ready {
            self.ready_pods.insert(pod.clone());
        } else {
            self.ready_pods.remove(&pod);
        }
        self.pods.insert(pod, node);
    }
}

fn read_pod(object: DeserializeGuard<SlimPod>) -> Option<(String, String, bool)> {
    let object = object.0.ok()?;
    Some((object.name_any(), object.node()?.to_owned(), object.is_ready()))
}
