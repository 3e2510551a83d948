//! What the network of a node is now.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ConditionList, State, kind::kind};

// Clients speak v1beta1: it is the stored version, and the only one while the cluster still has the definitions of
// kubernetes-nmstate.
kind! {
    /// A NodeNetworkState is what the network of a node is now, reported by that node. It is called like the node.
    #[x_kube(validation = Rule::new(
        "!has(self.spec) || !has(self.spec.nodeName) || self.spec.nodeName == self.metadata.name",
    )
    .field_path(".spec.nodeName")
    .message("must be the name of the node, which is the name of the object"))]
    NodeNetworkState, nodenetworkstates, version "v1beta1", short names &["nns"];

    /// The node, and what its network should be if it is configured here instead of by policies.
    spec: NodeNetworkStateSpec,

    /// What the network is.
    status: NodeNetworkStateStatus,
}

/// The node, and what its network should be if it is configured here instead of by policies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeNetworkStateSpec {
    /// The name of the node; the same as that of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,

    /// Whether desiredState is in force. Only where the NMState object has allowNodeStateConfiguration: true.
    // A default is shown though nobody has written it: an admin who does is in nobody's way.
    #[schemars(extend("default" = false))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed: Option<bool>,

    /// The network that this one node should have, in the format of nmstate. With managed: true it is applied like a
    /// policy for this node alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_state: Option<State>,
}

/// What the network of a node is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeNetworkStateStatus {
    /// Interfaces, routes and name servers, in the format of nmstate. Without what changes all the time, such as
    /// timers and lifetimes, and without the interfaces of pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_state: Option<State>,

    /// What was left out of currentState because the whole would be too large to store. Absent when nothing was.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub omitted: Vec<String>,

    /// What nmstate does not tell of links: those that are up without a carrier, and which port of a bond is in use.
    /// Absent when there is no such thing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<LinkState>,

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

/// How a link is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LinkState {
    /// The name of the interface.
    pub name: String,

    /// Whether there is somebody at the other end: false for a card whose cable is out.
    pub carrier: bool,

    /// The port that carries the traffic of a bond, if that is one at a time and one of them can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_port: Option<String>,
}
