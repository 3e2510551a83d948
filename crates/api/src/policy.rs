//! The policy: the desired network of some nodes.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::{
    apis::meta::v1::{LabelSelector, Time},
    util::intstr::IntOrString,
};
use kube::KubeSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    ConditionList, Drift, Mode, OnDelete, Probe, Rollout, State,
    kind::{is_default, kind},
    rules,
};

const CAPTURE_IS_FIXED: &str = "invalid policy operation: capture field cannot be modified";

kind! {
    /// A NodeNetworkConfigurationPolicy has the desired network of some nodes. On each selected node it is applied as one
    /// transaction, which is rolled back if the node fails its probes afterwards.
    #[x_kube(
        // Only on creation. A valid object name of this length is a valid label value, too.
        validation = Rule::new("oldSelf.hasValue() || size(self.metadata.name) <= 63")
            .optional_old_self(true)
            .field_path(".metadata.name")
            .message(Message::Expression(
                "'invalid policy name: \"' + self.metadata.name + \
                '\": must be no more than 63 characters or match label value format'".to_owned(),
            )),
        // Adding and removing it; the rule at the field itself refuses changes.
        validation = Rule::new(
            "(has(self.spec) && has(self.spec.capture)) == (has(oldSelf.spec) && has(oldSelf.spec.capture))",
        )
        .field_path(".spec.capture")
        .message(CAPTURE_IS_FIXED),
    )]
    NodeNetworkConfigurationPolicy, nodenetworkconfigurationpolicies, version "v1", short names &["nncp"];

    /// The desired network, the nodes that it is for, and how it is rolled out.
    spec: NodeNetworkConfigurationPolicySpec,

    /// The progress of the rollout.
    status: NodeNetworkConfigurationPolicyStatus,
}

/// The desired network, the nodes that it is for, and how it is rolled out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeNetworkConfigurationPolicySpec {
    /// Labels that a node must have, each with exactly this value, to be selected. When absent or empty, every node is
    /// selected.
    #[schemars(schema_with = "crate::schema::node_selector")]
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,

    /// Requirements on the labels of a node, with matchLabels and matchExpressions, to be selected. Together with
    /// nodeSelector, a node must meet both.
    #[schemars(schema_with = "crate::schema::label_selector")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_label_selector: Option<LabelSelector>,

    /// Captures: parts of the current network of a node, by name, as nmpolicy expressions. desiredState refers to them, for
    /// instance to put a bridge over the interface of the default route. They are resolved once per node and cannot be
    /// changed: delete the policy and create it again instead.
    #[x_kube(validation = Rule::new("self == oldSelf").message(CAPTURE_IS_FIXED))]
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub capture: BTreeMap<String, String>,

    /// The desired network of the nodes, in the format of nmstate (see nmstate.io). What it does not mention is left
    /// unchanged. It may refer to captures ("{{ capture.default-gw.interfaces.0.name }}"), to values
    /// ("{{ values.address }}") and to the node itself ("{{ node.name }}").
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_state: Option<State>,

    /// Values for desiredState that are the same on every node; nodeValues overrides them. A value may be of any type:
    /// a string, a number, a list and so on.
    #[schemars(schema_with = "crate::schema::values")]
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, Value>,

    /// Values for desiredState by node name, for instance the address of each node.
    #[schemars(schema_with = "crate::schema::values_by_node")]
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_values: BTreeMap<String, BTreeMap<String, Value>>,

    /// How many of the selected nodes may be configured at the same time: a number such as 2, or a percentage such as
    /// "25%", rounded up; at least one. When absent, "50%". A node that failed counts until the policy is changed, so
    /// that a bad policy stops.
    ///
    /// A string that is not a percentage, such as "2" in quotes, is refused; kubernetes-nmstate treats it as "50%". A
    /// policy that was stored with such a string keeps working like that until the field is changed.
    #[schemars(schema_with = "crate::schema::count_or_percent")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<IntOrString>,

    /// How the policy is rolled out, beyond maxUnavailable: canary nodes, when to stop, and what to do then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Rollout>,

    /// Probes: what must work on a node after the change, or it is rolled back. They run in addition to the probes of
    /// every policy (API server, node readiness, default gateway, name servers).
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".to_owned()]), validation = rules::built_in_probes_once())]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<Probe>,

    /// What happens when the network of a node no longer matches the policy that was applied:
    /// - Ignore: nothing.
    /// - Report: the differences are reported in the status of the enactment. This is the default.
    /// - Correct: the policy is applied again, at increasing intervals when another program keeps reverting it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub drift: Drift,

    /// What happens to the network of the nodes when the policy is deleted:
    /// - Keep: it stays as it is. This is the default.
    /// - Restore: the configuration from before the policy is restored, with probes and rollback like any other change.
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_delete: OnDelete,

    /// Whether the policy changes nodes:
    /// - Apply: it does. This is the default.
    /// - Plan: the status of the enactments reports, for each node, what would change and how disruptive that would be.
    ///   Nothing is changed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub mode: Mode,
}

/// The progress of a policy's rollout.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeNetworkConfigurationPolicyStatus {
    /// Available, Degraded, Progressing and Ignored: at most one of them is true.
    #[serde(default, skip_serializing_if = "ConditionList::is_empty")]
    pub conditions: ConditionList,

    /// The number of nodes that are being configured or have failed, by generation of the policy.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unavailable_node_count_map: BTreeMap<String, i32>,

    /// No longer used; see unavailableNodeCountMap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unavailable_node_count: Option<i32>,

    /// No longer used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_unavailable_node_count_update: Option<Time>,
}
