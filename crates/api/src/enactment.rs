//! One policy on one node: the order, and what the node says of it.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    ConditionList, NodeNetworkConfigurationEnactmentSpec, State,
    kind::{is_default, kind},
};

// Clients speak v1beta1: it is the stored version, and the only one while the cluster still has the definitions of
// kubernetes-nmstate.
kind! {
    /// A NodeNetworkConfigurationEnactment is one policy on one node: the order that the controller gives, and how the
    /// node carried it out. It is called `<node>.<policy>`.
    #[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
    #[x_kube(validation = Rule::new(
        "!has(self.spec) || self.metadata.name == self.spec.nodeName + '.' + self.spec.policyName",
    )
    .field_path(".metadata.name")
    .message("an enactment must be called <spec.nodeName>.<spec.policyName>"))]
    NodeNetworkConfigurationEnactment, nodenetworkconfigurationenactments, version "v1beta1", short names &["nnce"];

    /// The order, written by the controller. Enactments made by kubernetes-nmstate have none.
    spec: Option<NodeNetworkConfigurationEnactmentSpec>,

    /// How the node carried it out, written by the handler of that node.
    status: NodeNetworkConfigurationEnactmentStatus,
}

/// How a node carried out its order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeNetworkConfigurationEnactmentStatus {
    /// The network that the node should have, with captures and defaults filled in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_state: Option<State>,

    /// Where desiredState comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_state_meta_info: Option<StateMetaInfo>,

    /// What the captures of the policy resolved to, by name. They are resolved once and used again from here.
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

    /// How many attempts have failed, by generation of the policy.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub retry_count: BTreeMap<String, i32>,

    /// What a person should know about how it was carried out, such as a default that this node cannot have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,

    /// How disruptive the change is, or would be:
    /// - NoChange: the network already is as it should be.
    /// - InPlace: settings change while every link stays up.
    /// - LinkBounce: a link goes down for a moment.
    /// - NodeConnectivity: the default route, the name servers or the path to the API server is affected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disruption: Option<Disruption>,

    /// What a policy in Plan mode would change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Plan>,

    /// Where the network of the node no longer is what the policy made it. Absent when there is no difference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<DriftFindings>,

    /// The probes of the last attempt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<ProbeResult>,

    /// How long the last attempt took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timings: Option<Timings>,
}

/// Where a state comes from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StateMetaInfo {
    /// The version of its source.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,

    /// When it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
}

/// What a capture resolved to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CapturedState {
    /// The captured part of the node's network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,

    /// Where it comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta_info: Option<StateMetaInfo>,
}

/// How disruptive a change is, from not at all to most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Disruption {
    /// The network already is as it should be.
    NoChange,
    /// Settings change while every link stays up.
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
    /// When it was worked out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,

    /// What would change, in the format of nmstate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub difference: Option<State>,
}

/// Where the network of a node no longer is what its policy made it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DriftFindings {
    /// When the difference was first seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,

    /// The differences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<Difference>,

    /// How many times the policy was applied again because of it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub corrections: i32,

    /// When the policy is applied again at the earliest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_correction_time: Option<Time>,
}

/// One value that differs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// Where, such as `interfaces[eth1].mtu`.
    pub path: String,

    /// What it should be. Absent when it should not be there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired: Option<String>,

    /// What it is. Absent when it is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actual: Option<String>,
}

/// What came of a probe.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProbeResult {
    /// The name of the probe.
    pub name: String,

    /// Before the change: Passed or Failed. Absent if it was not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<ProbeOutcome>,

    /// After the change: Passed or Failed. Absent if it was not run.
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

    /// Resolving captures and comparing with the present network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepare_milliseconds: Option<i64>,

    /// Running probes before the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline_milliseconds: Option<i64>,

    /// Changing the network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apply_milliseconds: Option<i64>,

    /// Running probes after the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe_milliseconds: Option<i64>,

    /// Committing the change, or rolling it back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conclude_milliseconds: Option<i64>,

    /// Waiting, after the commit, for addresses that others lend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_milliseconds: Option<i64>,
}
