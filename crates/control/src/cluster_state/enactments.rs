//! The enactments of the cluster, as the API server has them and as they will be after the pending writes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use knmstate_api::{
    NodeNetworkConfigurationEnactmentSpec, NodeNetworkConfigurationEnactmentStatus,
    enactment::ProbeOutcome,
    names::{NODE_LABEL, POLICY_LABEL, enactment_name},
    reasons::enactment::{ABORTED, AVAILABLE, FAILING, PROGRESSING},
};
use knmstate_client::watch::{ObjectEvent, is_older};
use knmstate_core::{enactment::is_rolled_back, probes::is_built_in};
use kube::{ResourceExt as _, core::DeserializeGuard};

use super::{Origin, SlimEnactment, name_unreadable};
use crate::metric_labels::OTHER;

/// One enactment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Enactment {
    /// Empty while the enactment has not been created.
    pub uid: String,
    version: String,
    /// The order in the API server.
    spec: Option<Arc<NodeNetworkConfigurationEnactmentSpec>>,
    /// The order that was decided and has not been seen in the API server. It counts, because a write without a response
    /// may have been made.
    decided: Option<Arc<NodeNetworkConfigurationEnactmentSpec>>,
    /// Only what decisions and metrics depend on.
    pub status: NodeNetworkConfigurationEnactmentStatus,
}

impl Enactment {
    /// The order that counts.
    pub(crate) fn order(&self) -> Option<&Arc<NodeNetworkConfigurationEnactmentSpec>> {
        self.decided.as_ref().or(self.spec.as_ref())
    }

    /// The order that is not known to be written.
    #[cfg(test)]
    pub(crate) fn unwritten(&self) -> Option<&Arc<NodeNetworkConfigurationEnactmentSpec>> {
        self.decided.as_ref()
    }
}

/// A result that a handler has reported for one enactment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EnactmentEvent {
    pub policy: String,
    pub node: String,
    pub outcome: EnactmentOutcome,
    /// The probes because of which the change was rolled back, those that are not of the order as [`OTHER`].
    pub failed_probes: BTreeSet<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EnactmentOutcome {
    Available,
    Failed {
        attempts: u32,
    },
    Aborted,
    /// A change was rolled back; the handler may try again.
    RolledBack,
}

impl EnactmentOutcome {
    /// The value of the metric's label.
    pub(crate) fn result(self) -> &'static str {
        match self {
            Self::Available => "available",
            Self::Failed { .. } => "failed",
            Self::Aborted => "aborted",
            Self::RolledBack => "rolled-back",
        }
    }
}

/// All enactments, by policy and node.
#[derive(Debug, Default)]
pub(crate) struct Enactments {
    by_policy: BTreeMap<String, BTreeMap<String, Enactment>>,
    /// The names of those that cannot be read. They keep the value that they had before, if any.
    unreadable: BTreeSet<String>,
    is_listed: bool,
}

impl Enactments {
    /// Whether they have been read at least once.
    pub(crate) fn is_listed(&self) -> bool {
        self.is_listed
    }

    /// Those of one origin, by node.
    pub(crate) fn of<'a>(&'a self, origin: &'a Origin) -> impl Iterator<Item = (&'a String, &'a Enactment)> {
        let only = match origin {
            Origin::Policy(_) => None,
            Origin::NodeState(node) => Some(node),
        };
        let all = self.by_policy.get(origin.label()).into_iter().flatten();
        all.filter(move |(node, _)| only.is_none_or(|only| only == *node))
    }

    pub(crate) fn get(&self, policy: &str, node: &str) -> Option<&Enactment> {
        self.by_policy.get(policy)?.get(node)
    }

    pub(crate) fn origins(&self) -> impl Iterator<Item = Origin> {
        self.by_policy.iter().flat_map(|(policy, nodes)| nodes.keys().map(|node| Origin::of(policy, node)))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&String, &String, &Enactment)> {
        self.by_policy
            .iter()
            .flat_map(|(policy, nodes)| nodes.iter().map(move |(node, one)| (policy, node, one)))
    }

    /// An order was decided. From now on it counts.
    pub(crate) fn decide(
        &mut self,
        policy: &str,
        node: &str,
        order: Arc<NodeNetworkConfigurationEnactmentSpec>,
    ) {
        self.entry(policy, node).decided = Some(order);
    }

    /// An order is not to be written after all. If it already was, the watch reports it.
    pub(crate) fn undecide(&mut self, policy: &str, node: &str) {
        let Some(known) = self.by_policy.get_mut(policy).and_then(|nodes| nodes.get_mut(node)) else {
            return;
        };
        known.decided = None;
        if known.uid.is_empty() {
            self.removed(policy, node);
        }
    }

    /// An order was written. One that was decided since is still pending.
    pub(crate) fn written(
        &mut self,
        policy: &str,
        node: &str,
        order: &Arc<NodeNetworkConfigurationEnactmentSpec>,
        answer: SlimEnactment,
    ) {
        let enactment = self.entry(policy, node);
        if enactment.decided.as_ref() == Some(order) {
            enactment.decided = None;
        }
        let version = answer.resource_version().unwrap_or_default();
        if !is_older(&version, &enactment.version) {
            take_in(enactment, answer);
        }
    }

    /// An enactment was removed, or did not exist.
    pub(crate) fn removed(&mut self, policy: &str, node: &str) {
        if let Some(nodes) = self.by_policy.get_mut(policy) {
            nodes.remove(node);
            if nodes.is_empty() {
                self.by_policy.remove(policy);
            }
        }
    }

    fn entry(&mut self, policy: &str, node: &str) -> &mut Enactment {
        self.by_policy.entry(policy.to_owned()).or_default().entry(node.to_owned()).or_default()
    }

    /// Takes in a watch event. Returns new results, and the origins whose plan may change.
    pub(super) fn observe(
        &mut self,
        seen: ObjectEvent<SlimEnactment>,
    ) -> (Vec<EnactmentEvent>, BTreeSet<Origin>) {
        let mut events = Vec::new();
        let mut affected = BTreeSet::new();
        match seen {
            ObjectEvent::All(all) => {
                self.is_listed = true;
                let before = std::mem::take(&mut self.by_policy);
                let mut unreadable = BTreeSet::new();
                for (policy, node, object) in all.into_iter().filter_map(read) {
                    if let Some(object) = object {
                        take_in(self.entry(&policy, &node), object);
                        continue;
                    }
                    if let Some(known) = before.get(&policy).and_then(|nodes| nodes.get(&node)) {
                        *self.entry(&policy, &node) = known.clone();
                    }
                    unreadable.insert(enactment_name(&node, &policy));
                }
                name_unreadable("an enactment", unreadable.difference(&self.unreadable));
                self.unreadable = unreadable;
                let decided = before.into_iter().flat_map(|(policy, nodes)| {
                    nodes.into_iter().map(move |(node, enactment)| (policy.clone(), node, enactment.decided))
                });
                for (policy, node, decided) in decided.filter(|(_, _, decided)| decided.is_some()) {
                    self.entry(&policy, &node).decided = decided;
                }
            }
            ObjectEvent::Changed(object) => {
                let Some((policy, node, object)) = read(object) else { return (events, affected) };
                let name = enactment_name(&node, &policy);
                let Some(object) = object else {
                    if self.unreadable.insert(name.clone()) {
                        name_unreadable("an enactment", [&name]);
                    }
                    return (events, affected);
                };
                self.unreadable.remove(&name);
                let enactment = self.entry(&policy, &node);
                if is_older(&object.resource_version().unwrap_or_default(), &enactment.version) {
                    return (events, affected);
                }
                let before = enactment.clone();
                take_in(enactment, object);
                if enactment.decided.is_some() && enactment.decided == enactment.spec {
                    enactment.decided = None;
                }
                if was_rolled_back(&before.status, &enactment.status) {
                    let outcome = EnactmentOutcome::RolledBack;
                    let (policy, node) = (policy.clone(), node.clone());
                    events.push(EnactmentEvent { policy, node, outcome, failed_probes: BTreeSet::new() });
                }
                events.extend(new_outcome(&before.status, &enactment.status).map(|outcome| EnactmentEvent {
                    policy: policy.clone(),
                    node: node.clone(),
                    outcome,
                    failed_probes: failed_probes(enactment),
                }));
                if before.order() != enactment.order() || before.status != enactment.status {
                    affected.insert(Origin::of(&policy, &node));
                }
            }
            ObjectEvent::Gone(object) => {
                let version = object.resource_version().unwrap_or_default();
                let Some((policy, node, _)) = read(object) else { return (events, affected) };
                self.unreadable.remove(&enactment_name(&node, &policy));
                let Some(known) = self.get(&policy, &node) else { return (events, affected) };
                // Unless it has been created again since, or is about to be.
                if !is_older(&version, &known.version) {
                    let decided = known.decided.clone();
                    self.removed(&policy, &node);
                    if let Some(decided) = decided {
                        self.decide(&policy, &node, decided);
                    }
                    affected.insert(Origin::of(&policy, &node));
                }
            }
        }
        (events, affected)
    }
}

fn take_in(enactment: &mut Enactment, object: SlimEnactment) {
    enactment.uid = object.uid().unwrap_or_default();
    enactment.version = object.resource_version().unwrap_or_default();
    // Equal orders share their memory, of which the desired state is most.
    if enactment.spec.as_deref() != object.spec.as_ref() {
        enactment.spec = object.spec.map(Arc::new);
    }
    enactment.status = object.status;
}

/// Policy, node and the enactment itself, if it can be read; `None` if its name does not match both.
fn read(object: DeserializeGuard<SlimEnactment>) -> Option<(String, String, Option<SlimEnactment>)> {
    let label = |key: &str| object.labels().get(key).cloned();
    let (policy, node) = match object.0.as_ref().ok().and_then(|object| object.spec.as_ref()) {
        Some(spec) => (spec.policy_name.clone(), spec.node_name.clone()),
        None => (label(POLICY_LABEL)?, label(NODE_LABEL)?),
    };
    (object.name_any() == enactment_name(&node, &policy)).then(|| (policy, node, object.0.ok()))
}

fn new_outcome(
    before: &NodeNetworkConfigurationEnactmentStatus,
    after: &NodeNetworkConfigurationEnactmentStatus,
) -> Option<EnactmentOutcome> {
    let is_new = before.policy_generation != after.policy_generation || before.policy_uid != after.policy_uid;
    let outcome = outcome_of(after)?;
    (is_new || outcome_of(before).is_none_or(|known| known.result() != outcome.result())).then_some(outcome)
}

/// Whether a further attempt has failed and was rolled back.
fn was_rolled_back(
    before: &NodeNetworkConfigurationEnactmentStatus,
    after: &NodeNetworkConfigurationEnactmentStatus,
) -> bool {
    let last = |status: &NodeNetworkConfigurationEnactmentStatus| {
        let message = status.conditions.get(FAILING).map(|failing| failing.message.clone());
        (status.policy_generation, status.policy_uid.clone(), status.retry_count.clone(), message)
    };
    is_rolled_back(&after.conditions) && (!is_rolled_back(&before.conditions) || last(before) != last(after))
}

/// The result of an order; `None` while there is none.
fn outcome_of(status: &NodeNetworkConfigurationEnactmentStatus) -> Option<EnactmentOutcome> {
    let conditions = &status.conditions;
    if conditions.is_true(AVAILABLE) {
        return Some(EnactmentOutcome::Available);
    }
    if conditions.is_true(FAILING) && !conditions.is_true(PROGRESSING) {
        let attempts = status.retry_count.get(&status.policy_generation.to_string());
        let attempts = attempts.and_then(|count| u32::try_from(*count).ok()).unwrap_or(1);
        return Some(EnactmentOutcome::Failed { attempts });
    }
    conditions.is_true(ABORTED).then_some(EnactmentOutcome::Aborted)
}

fn failed_probes(enactment: &Enactment) -> BTreeSet<String> {
    let ordered: BTreeSet<&str> =
        enactment.order().into_iter().flat_map(|order| &order.probes).map(|probe| &*probe.name).collect();
    let failed = enactment.status.probes.iter().filter(|probe| probe.after == Some(ProbeOutcome::Failed));
    let is_known = |name: &str| is_built_in(name) || ordered.contains(name);
    failed.map(|probe| if is_known(&probe.name) { probe.name.clone() } else { OTHER.to_owned() }).collect()
}
