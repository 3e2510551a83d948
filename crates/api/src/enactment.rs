//! One policy on one node: the order, and its result.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    ConditionList, NodeNetworkConfigurationEnactmentSpec, State,
    kind::{is_default, kind},
};

// Clients use v1beta1: it is the stored version, and the only one while the cluster still has the definitions of
// kubernetes-nmstate.
kind! {
    /// A NodeNetworkConfigurationEnactment is one policy on one node: the order from the controller, and its result on the
    /// node. Its name is `<node>.<policy>`; if that is longer than 253 characters, its beginning and a hash.
    #[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
    #[x_kube(validation = Rule::new(
        // A longer name cannot be that of an object; it is shortened.
        "!has(self.spec) || self.metadata.name == self.spec.nodeName + '.' + self.spec.policyName || \
        self.spec.nodeName.size() + self.spec.policyName.size() > 252",
    )
    .field_path(".metadata.name")
    .message("an enactment must be called <spec.nodeName>.<spec.policyName>"))]
    NodeNetworkConfigurationEnactment, nodenetworkconfigurationenactments, version "v1beta1", short names &["nnce"];

    /// The order, written by the controller. Enactments made by kubernetes-nmstate have none.
    spec: Option<NodeNetworkConfigurationEnactmentSpec>,

    /// The result, written by the handler of the node.
    status: NodeNetworkConfigurationEnactmentStatus,
}

/// The result of an order on its node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeNetworkConfigurationEnactmentStatus {
    /// The desired network of the node, with captures and defaults filled in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_state: Option<State>,

    /// The origin of desiredState.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_state_meta_info: Option<StateMetaInfo>,

    /// The resolved captures of the policy, by name. They are resolved once; later attempts use these.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub captured_states: BTreeMap<String, CapturedState>,

    /// The generation of the policy that this status is about.
    #[serde(default, skip_serializing_if = "is_default")]
    pub policy_generation: i64,

    /// The UID of the policy that this status is about.
    #[serde(default, rename = "policyUID", skip_serializing_if = "Option::is_none")]
    pub policy_uid: Option<String>,

    /// Available, Failing, Progressing, Pending and Aborted.
    #[serde(default, skip_serializing_if = "ConditionList::is_empty")]
    pub conditions: ConditionList,

    /// The features of nmstate that desiredState uses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<String>,

    /// The number of failed attempts, by generation of the policy.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub retry_count: BTreeMap<String, i32>,

    /// Remarks for the admin, such as a default that this node does not support.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,

    /// How disruptive the change is, or would be:
    /// - NoChange: the network already matches.
    /// - InPlace: settings change, and all links stay up.
    /// - LinkBounce: a link goes down for a moment.
    /// - NodeConnectivity: the default route, the name servers or the path to the API server is affected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disruption: Option<Disruption>,

    /// What a policy in Plan mode would change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Plan>,

    /// Where the network of the node no longer matches the policy that was applied. Absent when there is no difference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<DriftFindings>,

    /// The results of the probes in the last attempt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<ProbeResult>,

    /// How long the last attempt took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timings: Option<Timings>,
}

/// The origin of a state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StateMetaInfo {
    /// The version of its source.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,

    /// When it was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
}

/// A resolved capture.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CapturedState {
    /// The captured part of the node's network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,

    /// Its origin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta_info: Option<StateMetaInfo>,
}

/// How disruptive a change is, in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Disruption {
    /// The network already matches.
    NoChange,
    /// Settings change, and all links stay up.
    InPlace,
    /// A link goes down for a moment.
    LinkBounce,
    /// The default route, the name servers or the path to the API server is affected.
    NodeConnectivity,
}

/// What a policy in Plan mode would change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// When it was computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,

    /// The part of the network that would change, in the format of nmstate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub difference: Option<State>,
}

/// Where the network of a node no longer matches the policy that was applied.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DriftFindings {
    /// When the differences were first seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,

    /// The differences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<Difference>,

    /// How many times the policy was applied again because of them.
    #[serde(default, skip_serializing_if = "is_default")]
    pub corrections: i32,

    /// The earliest time at which the policy is applied again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_correction_time: Option<Time>,
}

/// One value that differs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// The path of the value, such as `interfaces[eth1].mtu`.
    pub path: String,

    /// The desired value. Absent when there should be none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired: Option<String>,

    /// The current value. Absent when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actual: Option<String>,
}

/// The results of a probe before and after a change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProbeResult {
    /// The name of the probe.
    pub name: String,

    /// The result before the change: Passed or Failed. Absent if the probe was not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<ProbeOutcome>,

    /// The result after the change: Passed or Failed. Absent if the probe was not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<ProbeOutcome>,

    /// Why it failed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// Whether a probe passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ProbeOutcome {
    /// It passed.
    Passed,
    /// It failed.
    Failed,
}

/// How long an attempt took, as a whole and by step. A step that was not reached is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Timings {
    /// When it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,

    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,

    /// Resolving captures and comparing with the current network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepare_milliseconds: Option<i64>,

    /// Running the probes before the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline_milliseconds: Option<i64>,

    /// Changing the network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apply_milliseconds: Option<i64>,

    /// Running the probes after the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe_milliseconds: Option<i64>,

    /// Committing the change, or rolling it back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conclude_milliseconds: Option<i64>,

    /// Waiting, after the commit, for dynamic addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_milliseconds: Option<i64>,
}
