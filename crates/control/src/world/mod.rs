//! What the leader knows of the cluster, as little of it as decisions need.
//!
//! It is fed by watches and by the answers to its own writes. Whatever changes something that a decision could depend on
//! marks the policies concerned; they are decided about anew.

mod enactments;
mod handlers;
mod network;
mod objects;
pub mod pools;
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
use knmstate_client::watch::{Seen, is_older};
use kube::{ResourceExt as _, core::DeserializeGuard};

pub use self::{
    enactments::{Enactment, Enactments, Happening, What},
    handlers::Handler,
    network::Network,
    objects::{SlimNode, SlimPod},
};

/// What asks for something of nodes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// A policy, by its name.
    Policy(String),
    /// What an admin wrote into the state of this node.
    NodeState(String),
}

impl Origin {
    /// The policy that the enactments are labelled with.
    pub fn label(&self) -> &str {
        match self {
            Self::Policy(name) => name,
            Self::NodeState(_) => NODE_STATE_POLICY,
        }
    }

    /// What an enactment comes from.
    pub fn of(policy: &str, node: &str) -> Self {
        if policy == NODE_STATE_POLICY {
            Self::NodeState(node.to_owned())
        } else {
            Self::Policy(policy.to_owned())
        }
    }
}

/// What is asked of nodes, and what is said of that.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    pub uid: String,
    pub generation: i64,
    pub created: Option<Timestamp>,
    pub spec: Arc<NodeNetworkConfigurationPolicySpec>,
    /// What the server has, or will have once our last write is done.
    pub status: NodeNetworkConfigurationPolicyStatus,
    version: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub uid: String,
    pub labels: Arc<BTreeMap<String, String>>,
    pub is_ready: bool,
    /// Since when it is Ready or not.
    pub since: Option<Timestamp>,
    pub created: Option<Timestamp>,
    pub is_unschedulable: bool,
    /// Whether OpenShift's machine-config operator says that it is done with it.
    pub is_updated: bool,
}

/// Which parts of the world have been listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    Policies,
    Nodes,
    Handlers,
    Enactments,
    NodeStates,
    Settings,
}

const PARTS: [Part; 6] =
    [Part::Policies, Part::Nodes, Part::Handlers, Part::Enactments, Part::NodeStates, Part::Settings];

/// What the NMState of the cluster says to the controller.
#[derive(Clone, Debug, PartialEq)]
struct Settings {
    created: Option<Timestamp>,
    allow_node_state_configuration: bool,
    self_sign: Option<SelfSignConfiguration>,
}

/// What the leader knows.
#[derive(Debug, Default)]
pub struct World {
    listed: BTreeSet<Part>,
    pub policies: BTreeMap<String, Policy>,
    pub nodes: BTreeMap<String, Node>,
    /// The node of each pod of a handler.
    pods: BTreeMap<String, String>,
    /// Those of them that are ready.
    ready_pods: BTreeSet<String>,
    /// Since when a node that had a handler has none.
    bereft: BTreeMap<String, Timestamp>,
    /// When the handlers were first listed. One that was missing then may have been for long, or never have been there.
    handlers_since: Option<Timestamp>,
    pub enactments: Enactments,
    /// What admins have written into the states of nodes, by node.
    node_states: BTreeMap<String, Policy>,
    /// What the networks of nodes consist of, by node.
    pub networks: BTreeMap<String, Network>,
    settings: BTreeMap<String, Settings>,
    pools: pools::Known,
    /// Whose decision may have become another one.
    concerned: BTreeSet<Origin>,
    everything_concerned: bool,
}

impl World {
    /// Whether everything has been read at least once. Nothing may be decided before that.
    pub fn is_known(&self) -> bool {
        PARTS.iter().all(|part| self.listed.contains(part))
    }

    /// What has to be decided about anew.
    pub fn take_concerned(&mut self) -> BTreeSet<Origin> {
        let mut concerned = std::mem::take(&mut self.concerned);
        if !concerned.is_empty() {
            concerned.extend(self.through_pools());
        }
        if std::mem::take(&mut self.everything_concerned) { self.origins() } else { concerned }
    }

    /// Asks for a new decision though nothing has changed, as when time has come.
    pub fn reconsider(&mut self, origin: Origin) {
        self.concerned.insert(origin);
    }

    /// Everything that asks for something of nodes, or once did.
    pub fn origins(&self) -> BTreeSet<Origin> {
        let policies = self.policies.keys().cloned().map(Origin::Policy);
        let states = self.node_states.keys().cloned().map(Origin::NodeState);
        policies.chain(states).chain(self.enactments.origins()).collect()
    }

    /// What an origin asks for; `None` when it asks for nothing (any more).
    pub fn policy(&self, origin: &Origin) -> Option<&Policy> {
        match origin {
            Origin::Policy(name) => self.policies.get(name),
            Origin::NodeState(node) => {
                let allowed = self.settings().is_some_and(|settings| settings.allow_node_state_configuration);
                self.node_states.get(node).filter(|_| allowed)
            }
        }
    }

    pub fn see_policies(&mut self, seen: Seen<NodeNetworkConfigurationPolicy>) {
        match seen {
            Seen::All(all) => {
                self.listed.insert(Part::Policies);
                self.everything_concerned = true;
                let mut before = std::mem::take(&mut self.policies);
                for object in all {
                    let name = object.name_any();
                    // One that cannot be read goes on as it was: its nodes must not be left without.
                    if let Some(policy) = read_policy(object).or_else(|| before.remove(&name)) {
                        self.policies.insert(name, policy);
                    }
                }
            }
            Seen::Changed(object) => {
                let name = object.name_any();
                let Some(mut policy) = read_policy(object) else { return };
                match self.policies.get(&name) {
                    Some(known) if is_older(&policy.version, &known.version) => return,
                    Some(known) if known.uid == policy.uid && known.generation == policy.generation => {
                        if known.status != policy.status {
                            self.concerned.insert(Origin::Policy(name.clone()));
                        }
                        policy.spec = known.spec.clone();
                    }
                    // It can be in the way of others, or no longer.
                    _ => self.everything_concerned = true,
                }
                self.policies.insert(name, policy);
            }
            Seen::Gone(object) => {
                self.policies.remove(&object.name_any());
                self.everything_concerned = true;
            }
        }
    }

    /// The status of a policy was written, which made this version.
    pub fn status_written(
        &mut self,
        name: &str,
        status: NodeNetworkConfigurationPolicyStatus,
        version: String,
    ) {
        if let Some(policy) = self.policies.get_mut(name)
            && !is_older(&version, &policy.version)
        {
            policy.status = status;
            policy.version = version;
        }
    }

    pub fn see_nodes(&mut self, seen: Seen<SlimNode>) {
        match seen {
            Seen::All(all) => {
                self.listed.insert(Part::Nodes);
                self.everything_concerned = true;
                self.nodes = all.into_iter().filter_map(read_node).collect();
            }
            Seen::Changed(object) => {
                let Some((name, node)) = read_node(object) else { return };
                if self.nodes.get(&name) != Some(&node) {
                    self.everything_concerned = true;
                    self.nodes.insert(name, node);
                }
            }
            Seen::Gone(object) => {
                self.everything_concerned |= self.nodes.remove(&object.name_any()).is_some();
            }
        }
    }

    pub fn see_node_states(&mut self, seen: Seen<NodeNetworkState>) {
        match seen {
            Seen::All(all) => {
                self.listed.insert(Part::NodeStates);
                self.everything_concerned = true;
                self.node_states.clear();
                self.networks.clear();
                for object in all {
                    self.see_node_state(object);
                }
            }
            Seen::Changed(object) => self.see_node_state(object),
            Seen::Gone(object) => {
                let node = object.name_any();
                self.networks.remove(&node);
                if self.node_states.remove(&node).is_some() {
                    self.concerned.insert(Origin::NodeState(node));
                }
            }
        }
    }

    fn see_node_state(&mut self, object: DeserializeGuard<NodeNetworkState>) {
        let node = object.name_any();
        let Ok(object) = object.0 else { return };
        self.networks.insert(node.clone(), Network::of(&object.status));
        let wanted = (object.spec.managed == Some(true)).then(|| asked_of_one(&object)).flatten();
        let known = self.node_states.get(&node);
        let is_same = match (&wanted, known) {
            (None, None) => true,
            (Some(wanted), Some(known)) => (&wanted.uid, wanted.generation) == (&known.uid, known.generation),
            _ => false,
        };
        if !is_same {
            self.concerned.insert(Origin::NodeState(node.clone()));
            match wanted {
                Some(wanted) => self.node_states.insert(node, wanted),
                None => self.node_states.remove(&node),
            };
        }
    }

    pub fn see_settings(&mut self, seen: Seen<NMState>) {
        let read = |object: DeserializeGuard<NMState>| {
            let object = object.0.ok()?;
            let settings = Settings {
                created: object.creation_timestamp().map(|time| time.0),
                allow_node_state_configuration: object.spec.allow_node_state_configuration,
                self_sign: object.spec.self_sign_configuration.clone(),
            };
            Some((object.name_any(), settings))
        };
        match seen {
            Seen::All(all) => {
                self.listed.insert(Part::Settings);
                self.settings = all.into_iter().filter_map(read).collect();
            }
            Seen::Changed(object) => self.settings.extend(read(object)),
            Seen::Gone(object) => {
                self.settings.remove(&object.name_any());
            }
        }
        let states: Vec<Origin> = self.node_states.keys().cloned().map(Origin::NodeState).collect();
        self.concerned.extend(states);
    }

    /// Of several, the oldest counts.
    fn settings(&self) -> Option<&Settings> {
        self.settings
            .iter()
            .min_by_key(|(name, settings)| (settings.created, *name))
            .map(|(_, settings)| settings)
    }

    /// How often certificates are replaced; `None` before it is known.
    pub fn self_sign(&self) -> Option<Option<&SelfSignConfiguration>> {
        let is_known = self.listed.contains(&Part::Settings);
        is_known.then(|| self.settings().and_then(|settings| settings.self_sign.as_ref()))
    }

    /// What has happened to enactments, for those who tell about it.
    pub fn see_enactments(
        &mut self,
        seen: Seen<knmstate_api::NodeNetworkConfigurationEnactment>,
    ) -> Vec<Happening> {
        if matches!(seen, Seen::All(_)) {
            self.listed.insert(Part::Enactments);
            self.everything_concerned = true;
        }
        let (happenings, concerned) = self.enactments.see(seen);
        self.concerned.extend(concerned);
        happenings
    }
}

fn read_policy(object: DeserializeGuard<NodeNetworkConfigurationPolicy>) -> Option<Policy> {
    let name = object.name_any();
    let Ok(object) = object.0 else {
        tracing::warn!(policy = name, "this version does not understand a policy; it is left as it is");
        return None;
    };
    Some(Policy {
        uid: object.uid().unwrap_or_default(),
        generation: object.metadata.generation.unwrap_or_default(),
        created: object.creation_timestamp().map(|time| time.0),
        version: object.resource_version().unwrap_or_default(),
        spec: Arc::new(object.spec),
        status: object.status,
    })
}

/// What an admin asks of one node, as a policy would.
fn asked_of_one(object: &NodeNetworkState) -> Option<Policy> {
    let spec = NodeNetworkConfigurationPolicySpec {
        desired_state: Some(object.spec.desired_state.clone()?),
        ..NodeNetworkConfigurationPolicySpec::default()
    };
    Some(Policy {
        uid: object.uid().unwrap_or_default(),
        generation: object.metadata.generation.unwrap_or_default(),
        created: object.creation_timestamp().map(|time| time.0),
        version: object.resource_version().unwrap_or_default(),
        spec: Arc::new(spec),
        status: NodeNetworkConfigurationPolicyStatus::default(),
    })
}

fn read_node(object: DeserializeGuard<SlimNode>) -> Option<(String, Node)> {
    let object = object.0.ok()?;
    let (is_ready, since) = object.readiness();
    let uid = object.uid().unwrap_or_default();
    let node = Node {
        uid,
        is_ready,
        since,
        created: object.creation_timestamp().map(|time| time.0),
        is_unschedulable: object.is_unschedulable(),
        is_updated: object.annotations().get(pools::STATE_ANNOTATION).is_some_and(|state| state == "Done"),
        labels: Arc::new(object.metadata.labels.clone().unwrap_or_default()),
    };
    Some((object.name_any(), node))
}

#[cfg(test)]
mod handler_tests;
#[cfg(test)]
mod tests;
