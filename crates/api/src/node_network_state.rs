//! The current network of a node.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ConditionList, State, kind::kind};

// Clients use v1beta1: it is the stored version, and the only one while the cluster still has the definitions of
// kubernetes-nmstate.
kind! {
    /// A NodeNetworkState is the current network of a node, reported by the handler of that node. It has the name of the
    /// node.
    #[x_kube(validation = Rule::new(
        "!has(self.spec) || !has(self.spec.nodeName) || self.spec.nodeName == self.metadata.name",
    )
    .field_path(".spec.nodeName")
    .message("must be the name of the node, which is the name of the object"))]
    NodeNetworkState, nodenetworkstates, version "v1beta1", short names &["nns"];

    /// The node, and its desired network if it is configured here instead of by policies.
    spec: NodeNetworkStateSpec,

    /// The current network.
    status: NodeNetworkStateStatus,
}

/// The node, and its desired network if it is configured here instead of by policies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeNetworkStateSpec {
    /// The name of the node, which is the name of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,

    /// Whether desiredState is applied. Needs allowNodeStateConfiguration: true in the NMState object.
    // The API server stores the default, but without a field manager, so an admin who sets the field has no conflict.
    #[schemars(extend("default" = false))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed: Option<bool>,

    /// The desired network of this node, in the format of nmstate. With managed: true it is applied like a policy that
    /// selects only this node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_state: Option<State>,
}

/// The current network of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeNetworkStateStatus {
    /// Interfaces, routes and name servers, in the format of nmstate; without values that change all the time, such as
    /// timers and lifetimes, and without the interfaces of pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_state: Option<State>,

    /// What was left out of currentState because it would be too large to store. Absent when it is complete.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub omitted: Vec<String>,

    /// State of links that nmstate does not report: links that are up without a carrier, and the active port of each bond.
    /// Absent when there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<LinkState>,

    /// Changes of the network that could not be rolled back and were given up, oldest first: what they changed may still
    /// be there. Absent when there are none. An entry stays until its file is removed from the node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub set_aside: Vec<SetAsideChange>,

    /// When currentState last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_successful_update_time: Option<Time>,

    /// The version of nmstate in the handler.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub handler_nmstate_version: String,

    /// The version of NetworkManager on the node.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub host_network_manager_version: String,

    /// No longer used: the handler has no NetworkManager of its own.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub handler_network_manager_version: String,

    /// Available and Failing.
    #[serde(default, skip_serializing_if = "ConditionList::is_empty")]
    pub conditions: ConditionList,
}

/// State of a link that nmstate does not report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LinkState {
    /// The name of the interface.
    pub name: String,

    /// Whether the link has a carrier: false for a NIC without a cable, for instance.
    pub carrier: bool,

    /// The active port of a bond in a mode with one active port at a time. Absent when none of its ports can be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_port: Option<String>,
}

/// A change of the network that could not be rolled back and was given up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SetAsideChange {
    /// When it was given up.
    pub time: Time,

    /// The interfaces that it may have changed. Absent when they are not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<String>,

    /// Why it could not be rolled back.
    pub reason: String,

    /// The file on the node, readable for root only, with the network before the change and all attempts to restore it.
    pub file: String,
}
