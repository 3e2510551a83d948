//! The enactments of the cluster: what the server has, and what it will have once our writes are done.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use knmstate_api::{
    NodeNetworkConfigurationEnactment, NodeNetworkConfigurationEnactmentSpec,
    NodeNetworkConfigurationEnactmentStatus,
    enactment::ProbeOutcome,
    names::{NODE_LABEL, POLICY_LABEL, enactment_name},
    reasons::enactment::{ABORTED, AVAILABLE, FAILING, PROGRESSING},
};
use knmstate_client::watch::{Seen, is_older};
use knmstate_core::enactment::is_rolled_back;
use kube::{ResourceExt as _, core::DeserializeGuard};

use super::Origin;

/// One enactment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Enactment {
    /// Empty while it is not there yet.
    pub uid: String,
    version: String,
    /// The order at the server.
    spec: Option<Arc<NodeNetworkConfigurationEnactmentSpec>>,
    /// The order that was decided and is not yet known to be there. It counts: nobody can tell whether a write without
    /// an answer was made.
    decided: Option<Arc<NodeNetworkConfigurationEnactmentSpec>>,
    /// Without the network that it talks about.
    pub status: NodeNetworkConfigurationEnactmentStatus,
}

impl Enactment {
    /// The order that counts.
    pub fn order(&self) -> Option<&Arc<NodeNetworkConfigurationEnactmentSpec>> {
        self.decided.as_ref().or(self.spec.as_ref())
    }

    /// The order that is still to be written.
    pub fn unwritten(&self) -> Option<&Arc<NodeNetworkConfigurationEnactmentSpec>> {
        self.decided.as_ref()
    }
}

/// Something that happened on a node and that people are told about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happening {
    pub policy: String,
    pub node: String,
    pub what: What,
    /// Probes that had the change rolled back.
    pub failed_probes: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Available,
    Failed {
        attempts: u32,
    },
    Aborted,
    /// A change was rolled back; that may have been the last attempt, or not.
    RolledBack,
}

impl What {
    /// In one word.
    pub fn result(self) -> &'static str {
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
pub struct Enactments(BTreeMap<String, BTreeMap<String, Enactment>>);

impl Enactments {
    /// Those of one origin, by node.
    pub fn of<'a>(&'a self, origin: &'a Origin) -> impl Iterator<Item = (&'a String, &'a Enactment)> {
        let only = match origin {
            Origin::Policy(_) => None,
            Origin::NodeState(node) => Some(node),
        };
        let all = self.0.get(origin.label()).into_iter().flatten();
        all.filter(move |(node, _)| only.is_none_or(|only| only == *node))
    }

    pub fn get(&self, policy: &str, node: &str) -> Option<&Enactment> {
        self.0.get(policy)?.get(node)
    }

    pub fn origins(&self) -> impl Iterator<Item = Origin> {
        self.0.iter().flat_map(|(policy, nodes)| nodes.keys().map(|node| Origin::of(policy, node)))
    }

    pub fn iter(&self) -> impl Iterator<Item = (&String, &String, &Enactment)> {
        self.0.iter().flat_map(|(policy, nodes)| nodes.iter().map(move |(node, one)| (policy, node, one)))
    }

    /// An order was decided; from now on it counts.
    pub fn decide(&mut self, policy: &str, node: &str, order: Arc<NodeNetworkConfigurationEnactmentSpec>) {
        self.entry(policy, node).decided = Some(order);
    }

    /// An order is not to be written after all. Should it be on its way already, the watch will tell.
    pub fn undecide(&mut self, policy: &str, node: &str) {
        let Some(known) = self.0.get_mut(policy).and_then(|nodes| nodes.get_mut(node)) else { return };
        known.decided = None;
        if known.uid.is_empty() {
            self.removed(policy, node);
        }
    }

    /// An order was written. One that was decided since then still has to be.
    pub fn written(
        &mut self,
        policy: &str,
        node: &str,
        order: &Arc<NodeNetworkConfigurationEnactmentSpec>,
        answer: NodeNetworkConfigurationEnactment,
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

    /// An enactment was removed, or was not there.
    pub fn removed(&mut self, policy: &str, node: &str) {
        if let Some(nodes) = self.0.get_mut(policy) {
            nodes.remove(node);
            if nodes.is_empty() {
                self.0.remove(policy);
            }
        }
    }

    fn entry(&mut self, policy: &str, node: &str) -> &mut Enactment {
        self.0.entry(policy.to_owned()).or_default().entry(node.to_owned()).or_default()
    }

    /// Takes in what a watch has seen: what people are told about it, and whose decision may change.
    pub(super) fn see(
        &mut self,
        seen: Seen<NodeNetworkConfigurationEnactment>,
    ) -> (Vec<Happening>, BTreeSet<Origin>) {
        let mut happenings = Vec::new();
        let mut concerned = BTreeSet::new();
        match seen {
            Seen::All(all) => {
                let before = std::mem::take(&mut self.0);
                for (policy, node, object) in all.into_iter().filter_map(read) {
                    take_in(self.entry(&policy, &node), object);
                }
                let decided = before.into_iter().flat_map(|(policy, nodes)| {
                    nodes.into_iter().map(move |(node, enactment)| (policy.clone(), node, enactment.decided))
                });
                for (policy, node, decided) in decided.filter(|(_, _, decided)| decided.is_some()) {
                    self.entry(&policy, &node).decided = decided;
                }
            }
            Seen::Changed(object) => {
                let Some((policy, node, object)) = read(object) else { return (happenings, concerned) };
                let enactment = self.entry(&policy, &node);
                if is_older(&object.resource_version().unwrap_or_default(), &enactment.version) {
                    return (happenings, concerned);
                }
                let before = enactment.clone();
                take_in(enactment, object);
                if enactment.decided.is_some() && enactment.decided == enactment.spec {
                    enactment.decided = None;
                }
                if was_rolled_back(&before.status, &enactment.status) {
                    let what = What::RolledBack;
                    let (policy, node) = (policy.clone(), node.clone());
                    happenings.push(Happening { policy, node, what, failed_probes: Vec::new() });
                }
                happenings.extend(what_happened(&before.status, &enactment.status).map(|what| Happening {
                    policy: policy.clone(),
                    node: node.clone(),
                    what,
                    failed_probes: failed_probes(&enactment.status),
                }));
                if before.order() != enactment.order() || before.status != enactment.status {
                    concerned.insert(Origin::of(&policy, &node));
                }
            }
            Seen::Gone(object) => {
                let version = object.resource_version().unwrap_or_default();
                let Some((policy, node, _)) = read(object) else { return (happenings, concerned) };
                let Some(known) = self.get(&policy, &node) else { return (happenings, concerned) };
                // Unless it has been made anew since, or is about to be.
                if !is_older(&version, &known.version) {
                    let decided = known.decided.clone();
                    self.removed(&policy, &node);
                    if let Some(decided) = decided {
                        self.decide(&policy, &node, decided);
                    }
                    concerned.insert(Origin::of(&policy, &node));
                }
            }
        }
        (happenings, concerned)
    }
}

fn take_in(enactment: &mut Enactment, object: NodeNetworkConfigurationEnactment) {
    enactment.uid = object.uid().unwrap_or_default();
    enactment.version = object.resource_version().unwrap_or_default();
    // Equal orders share their memory, of which the desired state is most.
    if enactment.spec.as_deref() != object.spec.as_ref() {
        enactment.spec = object.spec.map(Arc::new);
    }
    enactment.status = object.status;
    enactment.status.desired_state = None;
    enactment.status.captured_states = BTreeMap::new();
}

/// Policy, node and the enactment itself. What is not called after both is nobody's.
fn read(
    object: DeserializeGuard<NodeNetworkConfigurationEnactment>,
) -> Option<(String, String, NodeNetworkConfigurationEnactment)> {
    let object = object.0.ok()?;
    let label = |key: &str| object.labels().get(key).cloned();
    let (policy, node) = match &object.spec {
        Some(spec) => (spec.policy_name.clone(), spec.node_name.clone()),
        None => (label(POLICY_LABEL)?, label(NODE_LABEL)?),
    };
    (object.name_any() == enactment_name(&node, &policy)).then_some((policy, node, object))
}

fn what_happened(
    before: &NodeNetworkConfigurationEnactmentStatus,
    after: &NodeNetworkConfigurationEnactmentStatus,
) -> Option<What> {
    let is_new = before.policy_generation != after.policy_generation || before.policy_uid != after.policy_uid;
    let what = end_of(after)?;
    (is_new || end_of(before).is_none_or(|known| known.result() != what.result())).then_some(what)
}

/// Whether an attempt has failed and was rolled back since.
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

/// What has become of an order, once that is said.
fn end_of(status: &NodeNetworkConfigurationEnactmentStatus) -> Option<What> {
    let conditions = &status.conditions;
    if conditions.is_true(AVAILABLE) {
        return Some(What::Available);
    }
    if conditions.is_true(FAILING) && !conditions.is_true(PROGRESSING) {
        let attempts = status.retry_count.get(&status.policy_generation.to_string());
        let attempts = attempts.and_then(|count| u32::try_from(*count).ok()).unwrap_or(1);
        return Some(What::Failed { attempts });
    }
    conditions.is_true(ABORTED).then_some(What::Aborted)
}

fn failed_probes(status: &NodeNetworkConfigurationEnactmentStatus) -> Vec<String> {
    let failed = status.probes.iter().filter(|probe| probe.after == Some(ProbeOutcome::Failed));
    failed.map(|probe| probe.name.clone()).collect()
}
