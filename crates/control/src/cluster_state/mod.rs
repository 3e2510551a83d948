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
    NMState, NodeNetworkConfigurationPolicy, NodeNetworkConfigurationPolicySpec,
    NodeNetworkConfigurationPolicyStatus, NodeNetworkState, names::NODE_STATE_POLICY,
    nmstate::SelfSignConfiguration,
};
use knmstate_client::{store::Store, watch::ObjectEvent};
use kube::ResourceExt as _;

use self::handlers::HandlerPod;
pub(crate) use self::{
    enactments::{Enactment, EnactmentEvent, EnactmentOutcome, Enactments},
    handlers::Handler,
    network::Network,
    objects::{SlimNode, SlimPod},
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
    pub spec: Arc<NodeNetworkConfigurationPolicySpec>,
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

    pub(crate) fn observe_policies(&mut self, event: ObjectEvent<NodeNetworkConfigurationPolicy>) {
        let changes = self.policies.apply(event, |object, known| {
            let policy = Policy::of(object);
            // Equal specs share their memory.
            Some(match known.filter(|known| known.is_same_request(&policy)) {
                Some(known) => Policy { spec: known.spec.clone(), ..policy },
                None => policy,
            })
        });
        for policy in &changes.unreadable {
            // Its nodes must not be left without it.
            tracing::warn!(policy, "cannot parse a policy; keeping its last known spec");
        }
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
        self.all_affected |= !changes.is_empty();
    }

    pub(crate) fn observe_node_states(&mut self, event: ObjectEvent<NodeNetworkState>) {
        let changes = self.node_states.apply(event, |object, _| {
            let network = Network::of(&object.status);
            let is_managed = object.spec.managed == Some(true);
            Some(NodeState { network, desired: is_managed.then(|| node_policy(&object)).flatten() })
        });
        self.all_affected |= changes.listed;
        for (node, before) in changes.changed {
            let before = before.and_then(|state| state.desired);
            let is_same =
                match (&before, self.node_states.get(&node).and_then(|state| state.desired.as_ref())) {
                    (None, None) => true,
                    (Some(before), Some(desired)) => before.is_same_request(desired),
                    _ => false,
                };
            if !is_same {
                self.affected.insert(Origin::NodeState(node));
            }
        }
    }

    pub(crate) fn observe_nmstates(&mut self, event: ObjectEvent<NMState>) {
        self.settings.apply(event, |object, _| {
            Some(NMStateSettings {
                created: object.creation_timestamp().map(|time| time.0),
                allow_node_state_configuration: object.spec.allow_node_state_configuration,
                self_sign: object.spec.self_sign_configuration,
            })
        });
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
    pub(crate) fn observe_enactments(
        &mut self,
        event: ObjectEvent<knmstate_api::NodeNetworkConfigurationEnactment>,
    ) -> Vec<EnactmentEvent> {
        self.all_affected |= matches!(event, ObjectEvent::All(_));
        let (events, affected) = self.enactments.observe(event);
        self.affected.extend(affected);
        events
    }
}

impl Policy {
    fn of(object: NodeNetworkConfigurationPolicy) -> Self {
        Self {
            uid: object.uid().unwrap_or_default(),
            generation: object.metadata.generation.unwrap_or_default(),
            created: object.creation_timestamp().map(|time| time.0),
            spec: Arc::new(object.spec),
            status: object.status,
        }
    }

    /// Whether both ask for the same: they are of one object, whose spec has not changed in between.
    fn is_same_request(&self, other: &Self) -> bool {
        (&self.uid, self.generation) == (&other.uid, other.generation)
    }
}

/// The desired state in a NodeNetworkState, as a policy for one node.
fn node_policy(object: &NodeNetworkState) -> Option<Policy> {
    let spec = NodeNetworkConfigurationPolicySpec {
        desired_state: Some(object.spec.desired_state.clone()?),
        ..NodeNetworkConfigurationPolicySpec::default()
    };
    Some(Policy {
        uid: object.uid().unwrap_or_default(),
        generation: object.metadata.generation.unwrap_or_default(),
        created: object.creation_timestamp().map(|time| time.0),
        spec: Arc::new(spec),
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
