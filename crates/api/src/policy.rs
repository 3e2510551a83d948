//! What an admin writes: the network that some nodes should have.

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
    /// A NodeNetworkConfigurationPolicy says what the network of some nodes should be. On each selected node it is
    /// applied as one transaction, which is rolled back when the node would lose its connections.
    #[x_kube(
        // Only on creation. That the name has the shape of a label value follows from its being a valid name at all.
        validation = Rule::new("oldSelf.hasValue() || size(self.metadata.name) <= 63")
            .optional_old_self(true)
            .field_path(".metadata.name")
            .message(Message::Expression(
                "'invalid policy name: \"' + self.metadata.name + \
                '\": must be no more than 63 characters or match label value format'".to_owned(),
            )),
        // Adding and removing it; changing it is refused at the field itself.
        validation = Rule::new(
            "(has(self.spec) && has(self.spec.capture)) == (has(oldSelf.spec) && has(oldSelf.spec.capture))",
        )
        .field_path(".spec.capture")
        .message(CAPTURE_IS_FIXED),
    )]
    NodeNetworkConfigurationPolicy, nodenetworkconfigurationpolicies, version "v1", short names &["nncp"];

    /// What the network should be, on which nodes, and how to get there.
    spec: NodeNetworkConfigurationPolicySpec,

    /// How far that is.
    status: NodeNetworkConfigurationPolicyStatus,
}

/// What the network should be, on which nodes, and how to get there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeNetworkConfigurationPolicySpec {
    /// Labels that a node must have, each with exactly this value, for the policy to hold for it. When absent or
    /// empty, it holds for every node.
    #[schemars(schema_with = "crate::schema::node_selector")]
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,

    /// Requirements on the labels of a node, with matchLabels and matchExpressions, for the policy to hold for it.
    /// Given together with nodeSelector, a node must meet both.
    #[schemars(schema_with = "crate::schema::label_selector")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_label_selector: Option<LabelSelector>,

    /// Parts of a node's present network, by name, as nmpolicy expressions; desiredState refers to them, for
    /// instance to put a bridge over whatever carries the default route. They are resolved once per node and cannot be
    /// changed: delete the policy and create it anew instead.
    #[x_kube(validation = Rule::new("self == oldSelf").message(CAPTURE_IS_FIXED))]
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub capture: BTreeMap<String, String>,

    /// The network that the nodes should have, in the format of nmstate (see nmstate.io). What it does not
    /// mention is left alone. It may refer to captures ("{{ capture.default-gw.interfaces.0.name }}"), to values
    /// ("{{ values.address }}") and to the node itself ("{{ node.name }}").
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_state: Option<State>,

    /// Values for desiredState, the same on every node; used where nodeValues does not say otherwise. A value may be
    /// of any type: a text, a number, a list and so on.
    #[schemars(schema_with = "crate::schema::values")]
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, Value>,

    /// Values for desiredState by name of the node, for instance the address of each node.
    #[schemars(schema_with = "crate::schema::values_by_node")]
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_values: BTreeMap<String, BTreeMap<String, Value>>,

    /// How many of the selected nodes may be reconfigured at once: a number such as 2, or a percentage such as "25%",
    /// rounded up; never fewer than one. When absent, "50%". A node that failed counts until the policy is changed, so
    /// that a bad policy stops by itself.
    ///
    /// A text that is not a percentage, such as "2" in quotes, is refused; kubernetes-nmstate silently takes "50%" for
    /// it. A policy that has such a text from that time keeps working the same way until the field is changed.
    #[schemars(schema_with = "crate::schema::count_or_percent")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<IntOrString>,

    /// How the policy spreads over its nodes, beyond maxUnavailable: nodes that go first, when to stop, what to do
    /// then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Rollout>,

    /// What must work on a node after the change for it to stay, in addition to the probes that are run for every
    /// policy (API server, node readiness, default gateway, name servers).
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".to_owned()]), validation = rules::built_in_probes_once())]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<Probe>,

    /// What happens when the network of a node no longer is what the policy made it:
    /// - Ignore: nothing.
    /// - Report: the differences are shown in the status of the enactment. This is the default.
    /// - Correct: the policy is applied again, ever more slowly when another program keeps undoing it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub drift: Drift,

    /// What happens to the network of the nodes when the policy is deleted:
    /// - Keep: it stays as the policy made it. This is the default.
    /// - Restore: what was there before is put back, rolled back like any other change if a node would lose its
    ///   connections.
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_delete: OnDelete,

    /// Whether the policy changes nodes:
    /// - Apply: it does. This is the default.
    /// - Plan: it only works out, for each node, what it would change and how disruptive that would be; see the
    ///   status of the enactments.
    #[serde(default, skip_serializing_if = "is_default")]
    pub mode: Mode,
}

/// How far a policy is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeNetworkConfigurationPolicyStatus {
    /// Available, Degraded, Progressing and Ignored: at most one of them is true.
    #[serde(default, skip_serializing_if = "ConditionList::is_empty")]
    pub conditions: ConditionList,

    /// How many nodes are being reconfigured, or have failed, by generation of the policy.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unavailable_node_count_map: BTreeMap<String, i32>,

    /// No longer used; see unavailableNodeCountMap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unavailable_node_count: Option<i32>,

    /// No longer used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_unavailable_node_count_update: Option<Time>,
}
