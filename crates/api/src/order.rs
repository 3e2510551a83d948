//! The order of one node: everything its handler needs to carry out one policy.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Drift, Duration, Mode, OnDelete, Probe, State, kind::is_default, rules};

/// The order of one node, written by the controller. Values and node facts are filled in; captures are not, as only
/// the node knows its present network.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new(
        "(has(self.policyUID) ? self.policyUID : '') != (has(oldSelf.policyUID) ? oldSelf.policyUID : '') || \
        self.policyGeneration >= oldSelf.policyGeneration",
    )
    .field_path(".policyGeneration")
    .message("an order cannot go back to an older generation of its policy"),
    // A write that was given up by its writer and lands late must not take back what was permitted since.
    validation = Rule::new(
        "self.permit == oldSelf.permit || self.permit == 'Restore' || !(oldSelf.permit in ['Apply', 'Abort']) || \
        self.policyGeneration != oldSelf.policyGeneration || \
        (has(self.policyUID) ? self.policyUID : '') != (has(oldSelf.policyUID) ? oldSelf.policyUID : '')",
    )
    .field_path(".permit")
    .message("a permit cannot be taken back within a generation of the policy"),
    validation = Rule::new("self.permit != 'Apply' || !has(self.mode) || self.mode != 'Plan'")
        .field_path(".permit")
        .message("an order in Plan mode cannot be permitted to Apply"),
)]
pub struct NodeNetworkConfigurationEnactmentSpec {
    /// The node that the order is for.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("an order cannot move to another node"))]
    pub node_name: String,

    /// The policy that the order comes from.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("an order cannot move to another policy"))]
    pub policy_name: String,

    /// The UID of that policy: one that was deleted and created anew counts its generations from the beginning.
    #[schemars(length(max = 64))]
    #[serde(default, rename = "policyUID", skip_serializing_if = "Option::is_none")]
    pub policy_uid: Option<String>,

    /// The generation of the policy that the order was made from.
    #[schemars(range(min = 1))]
    pub policy_generation: i64,

    /// What the node may do now:
    /// - Wait: nothing yet; it is not its turn.
    /// - Apply: make its network what desiredState says.
    /// - Restore: put back what was there before the policy.
    /// - Abort: nothing any more; the rollout stopped before it was its turn.
    pub permit: Permit,

    /// When the permit was given, for the deadline of the rollout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permit_time: Option<Time>,

    /// Whether the order changes the node (Apply, the default) or only works out what it would change (Plan).
    #[serde(default, skip_serializing_if = "is_default")]
    pub mode: Mode,

    /// The network that the node should have, in the format of nmstate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_state: Option<State>,

    /// The captures of the policy, which desiredState refers to.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub capture: BTreeMap<String, String>,

    /// The probes of the policy.
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".to_owned()]), validation = rules::built_in_probes_once())]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<Probe>,

    /// How long the steps may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadlines: Option<Deadlines>,

    /// What happens when the network of the node no longer is what the order made it: Ignore, Report (the default) or
    /// Correct.
    #[serde(default, skip_serializing_if = "is_default")]
    pub drift: Drift,

    /// What happens to the network of the node when the policy is deleted: Keep (the default) or Restore. With
    /// Restore the node remembers what was there before.
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_delete: OnDelete,
}

/// How long the steps of an order may take.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(
    "!has(self.probes) || !has(self.transaction) || duration(self.probes) < duration(self.transaction)",
).message("the deadline of the probes must be shorter than that of the transaction"))]
pub struct Deadlines {
    /// The time from the first change to the commit, such as "8m". When it is over the node puts everything back by
    /// itself, even if the handler is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transaction: Option<Duration>,

    /// The time in which all probes must have passed after the change, such as "2m".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probes: Option<Duration>,
}

/// What a node may do now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Permit {
    /// Nothing yet.
    #[default]
    Wait,
    /// Make its network what the order says.
    Apply,
    /// Put back what was there before the policy.
    Restore,
    /// Nothing any more: the rollout stopped before it was its turn.
    Abort,
}
