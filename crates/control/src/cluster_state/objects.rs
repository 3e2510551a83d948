//! Objects with only the fields that are needed, so that the rest is never held in memory. What is not needed need not
//! be readable either.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Node, Pod},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use knmstate_api::{
    ConditionList, NodeNetworkConfigurationEnactment, NodeNetworkConfigurationEnactmentSpec,
    NodeNetworkConfigurationEnactmentStatus, NodeNetworkConfigurationPolicy,
    NodeNetworkConfigurationPolicySpec, NodeNetworkConfigurationPolicyStatus, NodeNetworkState,
    NodeNetworkStateSpec, enactment::ProbeResult,
};
use knmstate_client::{
    raw::{Part, metadata},
    reads_like,
};
use serde::{Deserialize, Deserializer, de::IgnoredAny};

use super::network::CurrentState;

/// A node: its metadata, and whether it is Ready and schedulable.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct SlimNode {
    #[serde(deserialize_with = "metadata")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    spec: NodeSpec,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct NodeSpec {
    #[serde(default)]
    unschedulable: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Status {
    #[serde(default)]
    conditions: Vec<Condition>,
}

impl Status {
    fn ready(&self) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.type_ == "Ready")
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Condition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    #[serde(default)]
    last_transition_time: Option<Time>,
}

impl SlimNode {
    pub(crate) fn is_unschedulable(&self) -> bool {
        self.spec.unschedulable
    }

    /// Whether it is Ready, and since when.
    pub(crate) fn readiness(&self) -> (bool, Option<Timestamp>) {
        let ready = self.status.ready();
        let since = ready.and_then(|condition| condition.last_transition_time.as_ref());
        (ready.is_some_and(|condition| condition.status == "True"), since.map(|time| time.0))
    }
}

/// A pod: the node that it runs on, and whether it is ready.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct SlimPod {
    #[serde(deserialize_with = "metadata")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    spec: PodSpec,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodSpec {
    #[serde(default)]
    node_name: Option<String>,
}

impl SlimPod {
    pub(crate) fn is_ready(&self) -> bool {
        self.status.ready().is_some_and(|condition| condition.status == "True")
    }

    pub(crate) fn node(&self) -> Option<&str> {
        self.spec.node_name.as_deref()
    }
}

/// A policy. Its status is there even if its spec cannot be read.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct SlimPolicy {
    #[serde(deserialize_with = "metadata")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: Part<NodeNetworkConfigurationPolicySpec>,
    #[serde(default)]
    pub status: NodeNetworkConfigurationPolicyStatus,
}

/// An enactment. Of what the handler has written, it has only what decisions and metrics depend on.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct SlimEnactment {
    #[serde(deserialize_with = "metadata")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: Option<NodeNetworkConfigurationEnactmentSpec>,
    #[serde(default, deserialize_with = "result")]
    pub status: NodeNetworkConfigurationEnactmentStatus,
}

/// How many features of an enactment count: several times those that nmstate has.
const MAX_FEATURES: usize = 64;

/// The part of an enactment's status that matters to the controller.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct EnactmentResult {
    policy_generation: i64,
    #[serde(rename = "policyUID")]
    policy_uid: Option<String>,
    conditions: ConditionList,
    features: Vec<String>,
    retry_count: BTreeMap<String, i32>,
    probes: Vec<ProbeResult>,
}

fn result<'de, D>(deserializer: D) -> Result<NodeNetworkConfigurationEnactmentStatus, D::Error>
where
    D: Deserializer<'de>,
{
    let EnactmentResult { policy_generation, policy_uid, conditions, mut features, retry_count, probes } =
        EnactmentResult::deserialize(deserializer)?;
    features.truncate(MAX_FEATURES);
    Ok(NodeNetworkConfigurationEnactmentStatus {
        policy_generation,
        policy_uid,
        conditions,
        features,
        retry_count,
        probes,
        ..NodeNetworkConfigurationEnactmentStatus::default()
    })
}

/// A NodeNetworkState. What it asks for is there even if what the handler has reported cannot be read.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct SlimNodeState {
    #[serde(deserialize_with = "metadata")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: NodeNetworkStateSpec,
    #[serde(default)]
    status: NodeStateStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeStateStatus {
    #[serde(default)]
    current_state: Part<CurrentState>,
    #[serde(default)]
    set_aside: Part<Vec<IgnoredAny>>,
}

impl SlimNodeState {
    /// The network that the handler has reported; `None` if it cannot be read.
    pub(crate) fn current_state(&self) -> Option<&CurrentState> {
        self.status.current_state.0.as_ref().ok()
    }

    /// How many changes the node could not roll back.
    pub(crate) fn set_aside(&self) -> usize {
        self.status.set_aside.0.as_ref().map_or(0, Vec::len)
    }
}

reads_like!(SlimNode, Node);
reads_like!(SlimPod, Pod);
reads_like!(SlimPolicy, NodeNetworkConfigurationPolicy);
reads_like!(SlimEnactment, NodeNetworkConfigurationEnactment);
reads_like!(SlimNodeState, NodeNetworkState);
