//! The order: everything that the handler of one node needs to apply one policy.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Drift, Duration, Mode, OnDelete, Probe, State, kind::is_default, rules};

/// The order for one node, written by the controller. References to values and to the node are filled in; captures are
/// not, because only the node knows its current network.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new(
        "(has(self.policyUID) ? self.policyUID : '') != (has(oldSelf.policyUID) ? oldSelf.policyUID : '') || \
        self.policyGeneration >= oldSelf.policyGeneration",
    )
    .field_path(".policyGeneration")
    .message("an order cannot go back to an older generation of its policy"),
    // A write whose sender has timed out and that arrives late must not revoke a permit that was granted since.
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

    /// The UID of that policy. A policy that was deleted and created again starts with generation 1.
    #[schemars(length(max = 64))]
    #[serde(default, rename = "policyUID", skip_serializing_if = "Option::is_none")]
    pub policy_uid: Option<String>,

    /// The generation of the policy that the order was made from.
    #[schemars(range(min = 1))]
    pub policy_generation: i64,

    /// What the node may do now:
    /// - Wait: nothing yet; other nodes come first.
    /// - Apply: apply desiredState.
    /// - Restore: restore the configuration from before the policy.
    /// - Abort: nothing; the rollout stopped before the node could begin.
    pub permit: Permit,

    /// When the permit was granted; the progress deadline of the rollout starts here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permit_time: Option<Time>,

    /// Whether the order changes the node (Apply, the default) or only reports what it would change (Plan).
    #[serde(default, skip_serializing_if = "is_default")]
    pub mode: Mode,

    /// The desired network of the node, in the format of nmstate.
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

    /// What happens when the network of the node no longer matches the order that was applied: Ignore, Report (the
    /// default) or Correct.
    #[serde(default, skip_serializing_if = "is_default")]
    pub drift: Drift,

    /// What happens to the network of the node when the policy is deleted: Keep (the default) or Restore. With Restore
    /// the node saves the configuration from before the policy.
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
    /// The time from the beginning of the change to its commit, such as "8m". After that NetworkManager rolls the change
    /// back, even if the handler is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transaction: Option<Duration>,

    /// The time within which all probes must pass after the change, such as "2m".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probes: Option<Duration>,
}

/// What a node may do now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Permit {
    /// Nothing yet: other nodes come first.
    #[default]
    Wait,
    /// Apply the desired state of the order.
    Apply,
    /// Restore the configuration from before the policy.
    Restore,
    /// Nothing: the rollout stopped before the node could begin.
    Abort,
}
