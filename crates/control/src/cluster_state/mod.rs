//! The leader's copy of the cluster: the fields that decisions depend on.
//!
//! It is updated from watches and from the responses to the leader's own writes. Each change marks the policies whose plan
//! may change with it, and only those are planned again.

mod enactments;
mod handlers;
mod network;
mod objects;
pub(crate) mod pools;
#[cfg(test)]
pub(crate) mod testing;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use knmstate_api::{
    NMState, NodeNetworkConfigurationPolicySpec, NodeNetworkConfigurationPolicyStatus,
    names::NODE_STATE_POLICY, nmstate::SelfSignConfiguration,
};
use knmstate_client::{raw::Unreadable, store::Store, watch::ObjectEvent};
use kube::ResourceExt as _;

use self::handlers::HandlerPod;
pub(crate) use self::{
    enactments::{Enactment, EnactmentEvent, EnactmentOutcome, Enactments},
    handlers::Handler,
    network::Network,
    objects::{SlimEnactment, SlimNode, SlimNodeState, SlimPod, SlimPolicy},
};

/// Where orders come from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Origin {
    /// The policy of this name.
    Policy(String),
    /// The NodeNetworkState of this node, in which an admin has written a desired state.
    NodeState(String),
}

impl Origin {
    /// The policy name in the label of its enactments.
    pub(crate) fn label(&self) -> &str {
        match self {
            Self::Policy(name) => name,
            Self::NodeState(_) => NODE_STATE_POLICY,
        }
    }

    /// The origin of the enactment of this policy on this node.
    pub(crate) fn of(policy: &str, node: &str) -> Self {
        if policy == NODE_STATE_POLICY {
            Self::NodeState(node.to_owned())
        } else {
            Self::Policy(policy.to_owned())
        }
    }
}

/// A desired state and its status: a policy, or what an admin has written in a NodeNetworkState.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Policy {
    pub uid: String,
    pub generation: i64,
    pub created: Option<Timestamp>,
    /// If it cannot be read, the last one that could.
    pub spec: Arc<NodeNetworkConfigurationPolicySpec>,
    /// Why its spec cannot be read.
    pub unreadable: Option<Unreadable>,
    /// As the API server has it, or will have it after the last write.
    pub status: NodeNetworkConfigurationPolicyStatus,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    pub uid: String,
    pub labels: Arc<BTreeMap<String, String>>,
    pub is_ready: bool,
    /// Since when it is Ready, or not Ready.
    pub since: Option<Timestamp>,
    pub created: Option<Timestamp>,
    pub is_unschedulable: bool,
    /// Whether OpenShift's machine-config operator reports that it has finished updating the node.
    pub is_updated: bool,
}

/// The fields of an NMState that matter to the controller.
#[derive(Clone, Debug, PartialEq)]
struct NMStateSettings {
    created: Option<Timestamp>,
    allow_node_state_configuration: bool,
    self_sign: Option<SelfSignConfiguration>,
}

/// What a node reports, and what an admin asks of it in its `NodeNetworkState`.
#[derive(Clone, Debug, PartialEq)]
struct NodeState {
    network: Network,
    desired: Option<Policy>,
}

/// The leader's copy of the cluster.
#[derive(Debug, Default)]
pub(crate) struct ClusterState {
    pub policies: Store<Policy>,
    pub nodes: Store<Node>,
    /// The pods of handlers.
    pods: Store<HandlerPod>,
    /// Nodes that had a handler and have none, and since when.
    missing_handlers: BTreeMap<String, Timestamp>,
    /// When the handlers were first listed. It is not known how long one that was missing then has been missing.
    handlers_since: Option<Timestamp>,
    pub enactments: Enactments,
    node_states: Store<NodeState>,
    settings: Store<NMStateSettings>,
    pools: pools::KnownPools,
    /// Origins whose plan may have changed.
    affected: BTreeSet<Origin>,
    all_affected: bool,
}

impl ClusterState {
    /// Whether every kind has been listed at least once. Nothing may be decided before that.
    pub(crate) fn is_complete(&self) -> bool {
        self.policies.is_listed()
            && self.nodes.is_listed()
            && self.pods.is_listed()
            && self.enactments.is_listed()
            && self.node_states.is_listed()
            && self.settings.is_listed()
    }

    /// The numbers of interfaces and routes, by node.
    pub(crate) fn networks(&self) -> impl Iterator<Item = (&String, &Network)> {
        self.node_states.iter().map(|(node, state)| (node, &state.network))
    }

    /// The origins to plan again, which are reset.
    pub(crate) fn take_affected(&mut self) -> BTreeSet<Origin> {
        let mut affected = std::mem::take(&mut self.affected);
        if !affected.is_empty() {
            affected.extend(self.through_pools());
        }
        if std::mem::take(&mut self.all_affected) { self.origins() } else { affected }
    }

    /// Marks an origin to be planned again although no object has changed, such as when a time has come.
    pub(crate) fn mark_affected(&mut self, origin: Origin) {
        self.affected.insert(origin);
    }

    /// All origins, including those that only have enactments left.
    pub(crate) fn origins(&self) -> BTreeSet<Origin> {
        let policies = self.policies.keys().cloned().map(Origin::Policy);
        let managed = self.node_states.iter().filter(|(_, state)| state.desired.is_some());
        let states = managed.map(|(node, _)| Origin::NodeState(node.clone()));
        policies.chain(states).chain(self.enactments.origins()).collect()
    }

    /// The desired state of an origin; `None` if it has none or no longer has one.
    pub(crate) fn policy(&self, origin: &Origin) -> Option<&Policy> {
        match origin {
            Origin::Policy(name) => self.policies.get(name),
            Origin::NodeState(node) => {
                let allowed = self.settings().is_some_and(|settings| settings.allow_node_state_configuration);
                self.node_states.get(node)?.desired.as_ref().filter(|_| allowed)
            }
        }
    }

    /// Whether an origin exists and cannot be read. Its nodes keep what they have: it must not look like a deleted one.
    pub(crate) fn is_unreadable(&self, origin: &Origin) -> bool {
        match origin {
            Origin::Policy(name) => {
                self.policies.is_unreadable(name)
                    || self.policies.get(name).is_some_and(|policy| policy.unreadable.is_some())
            }
            Origin::NodeState(node) => {
                let is_allowed_unknown =
                    self.settings.is_empty() && self.settings.unreadable().next().is_some();
                self.node_states.is_unreadable(node) || is_allowed_unknown
            }
        }
    }

    pub(crate) fn observe_policies(&mut self, event: ObjectEvent<SlimPolicy>) {
        let changes = self.policies.apply(event, |object, known| {
            let name = object.name_any();
            let policy = Policy::of(object, known);
            if let Some(why) =
                policy.unreadable.filter(|_| known.is_none_or(|known| known.unreadable.is_none()))
            {
                tracing::warn!(
                    policy = name,
                    "cannot read the spec of a policy: {why}; its nodes keep what they have"
                );
            }
            Some(policy)
        });
        name_unreadable("a policy", &changes.unreadable);
        self.all_affected |= changes.listed;
        for (name, before) in changes.changed {
            match (before, self.policies.get(&name)) {
                (Some(before), Some(policy)) if before.is_same_request(policy) => {
                    self.affected.insert(Origin::Policy(name));
                }
                // It can be in conflict with others, or no longer.
                _ => self.all_affected = true,
            }
        }
    }

    /// The status of a policy was written; the response has this resource version.
    pub(crate) fn status_written(
        &mut self,
        name: &str,
        status: NodeNetworkConfigurationPolicyStatus,
        version: String,
    ) {
        self.policies.written(&name.to_owned(), version, |policy| policy.status = status);
    }

    pub(crate) fn observe_nodes(&mut self, event: ObjectEvent<SlimNode>) {
        let changes = self.nodes.apply(event, |object, _| Some(Node::of(&object)));
        name_unreadable("a Node", &changes.unreadable);
        self.all_affected |= !changes.is_empty();
    }

    pub(crate) fn observe_node_states(&mut self, event: ObjectEvent<SlimNodeState>) {
        let changes = self.node_states.apply(event, |object, _| {
            let counted = object.current_state().map(Network::of).unwrap_or_default();
            let set_aside = u64::try_from(object.set_aside()).unwrap_or(u64::MAX);
            let network = Network { set_aside, ..counted };
            let is_managed = object.spec.managed == Some(true);
            Some(NodeState { network, desired: is_managed.then(|| node_policy(&object)).flatten() })
        });
        name_unreadable("a NodeNetworkState", &changes.unreadable);
        self.all_affected |= changes.listed;
        for (node, before) in changes.changed {
            let after = self.node_states.get(&node);
            let desired = before.as_ref().and_then(|state| state.desired.as_ref());
            let is_same = match (desired, after.and_then(|state| state.desired.as_ref())) {
                (None, None) => true,
                (Some(before), Some(after)) => before.is_same_request(after),
                _ => false,
            };
            // Without any difference, it is one that could not be read before.
            if !is_same || before.as_ref() == after {
                self.affected.insert(Origin::NodeState(node));
            }
        }
    }

    pub(crate) fn observe_nmstates(&mut self, event: ObjectEvent<NMState>) {
        let changes = self.settings.apply(event, |object, _| {
            Some(NMStateSettings {
                created: object.creation_timestamp().map(|time| time.0),
                allow_node_state_configuration: object.spec.allow_node_state_configuration,
                self_sign: object.spec.self_sign_configuration,
            })
        });
        name_unreadable("an NMState", &changes.unreadable);
        let managed = self.node_states.iter().filter(|(_, state)| state.desired.is_some());
        self.affected.extend(managed.map(|(node, _)| Origin::NodeState(node.clone())));
    }

    /// Of several NMStates, the oldest counts.
    fn settings(&self) -> Option<&NMStateSettings> {
        self.settings
            .iter()
            .min_by_key(|(name, settings)| (settings.created, *name))
            .map(|(_, settings)| settings)
    }

    /// Whether the NMStates have been listed; until then their settings are not known.
    pub(crate) fn has_settings(&self) -> bool {
        self.settings.is_listed()
    }

    /// The configured intervals of certificates, if any are.
    pub(crate) fn self_sign(&self) -> Option<&SelfSignConfiguration> {
        self.settings().and_then(|settings| settings.self_sign.as_ref())
    }

    /// Takes in a watch event, and returns the results that have changed, for Kubernetes Events and metrics.
    pub(crate) fn observe_enactments(&mut self, event: ObjectEvent<SlimEnactment>) -> Vec<EnactmentEvent> {
        self.all_affected |= matches!(event, ObjectEvent::All(_));
        let (events, affected) = self.enactments.observe(event);
        self.affected.extend(affected);
        events
    }
}

impl Policy {
    fn of(object: SlimPolicy, known: Option<&Self>) -> Self {
        let mut policy = Self {
            uid: object.uid().unwrap_or_default(),
            generation: object.metadata.generation.unwrap_or_default(),
            created: object.creation_timestamp().map(|time| time.0),
            spec: Arc::default(),
            unreadable: None,
            status: object.status,
        };
        match (object.spec.0, known) {
            // Equal specs share their memory.
            (Ok(_), Some(known)) if known.unreadable.is_none() && known.is_same_request(&policy) => {
                policy.spec = known.spec.clone();
            }
            (Ok(spec), _) => policy.spec = Arc::new(spec),
            (Err(why), known) => {
                policy.unreadable = Some(why);
                let same = known.filter(|known| known.uid == policy.uid);
                policy.spec = same.map(|known| known.spec.clone()).unwrap_or_default();
            }
        }
        policy
    }

    /// Whether both ask for the same: they are of one object, whose spec has not changed in between.
    fn is_same_request(&self, other: &Self) -> bool {
        (&self.uid, self.generation) == (&other.uid, other.generation)
    }
}

/// Logs the names of objects that cannot be read.
fn name_unreadable<'a>(kind: &str, names: impl IntoIterator<Item = &'a String>) {
    for name in names {
        tracing::warn!(name, "cannot read {kind}; what was known of it before stays in force");
    }
}

/// The desired state in a NodeNetworkState, as a policy for one node.
fn node_policy(object: &SlimNodeState) -> Option<Policy> {
    let spec = NodeNetworkConfigurationPolicySpec {
        desired_state: Some(object.spec.desired_state.clone()?),
        ..NodeNetworkConfigurationPolicySpec::default()
    };
    Some(Policy {
        uid: object.uid().unwrap_or_default(),
        generation: object.metadata.generation.unwrap_or_default(),
        created: object.creation_timestamp().map(|time| time.0),
        spec: Arc::new(spec),
        unreadable: None,
        status: NodeNetworkConfigurationPolicyStatus::default(),
    })
}

impl Node {
    fn of(object: &SlimNode) -> Self {
        let (is_ready, since) = object.readiness();
        let state = object.annotations().get(pools::STATE_ANNOTATION);
        Self {
            uid: object.uid().unwrap_or_default(),
            is_ready,
            since,
            created: object.creation_timestamp().map(|time| time.0),
            is_unschedulable: object.is_unschedulable(),
            is_updated: state.is_some_and(|state| state == "Done"),
            labels: Arc::new(object.metadata.labels.clone().unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod missing_handler_tests;
#[cfg(test)]
mod tests;
