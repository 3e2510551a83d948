//! How a policy is rolled out over its nodes.

use k8s_openapi::apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Duration, kind::is_default};

/// How a policy is rolled out over its nodes, beyond `maxUnavailable`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rollout {
    /// How many nodes may fail: the rollout stops when more have failed. A number such as 2, or a percentage of the
    /// selected nodes such as "5%", rounded down; 0 stops at the first failure.
    ///
    /// When absent, the rollout stops when as many nodes have failed as maxUnavailable allows at the same time.
    #[schemars(schema_with = "crate::schema::count_or_percent")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_failures: Option<IntOrString>,

    /// Nodes that go first. All of them must succeed, and stay available for the soak time, before any other node
    /// begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canary: Option<Canary>,

    /// While true, no further node begins. Nodes that have begun finish.
    #[serde(default, skip_serializing_if = "is_default")]
    pub paused: bool,

    /// What happens to the nodes that were changed already when the rollout stops because of failures:
    /// - Halt: they keep the new configuration. This is the default.
    /// - Revert: their configuration from before is restored.
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_failure: OnFailure,

    /// Which other limits the rollout follows:
    /// - MachineConfigPool: on OpenShift, nodes begin in the order of their MachineConfigPool (by zone, the oldest
    ///   first) and within its maxUnavailable. Nodes that are not Ready, not schedulable or being updated count as
    ///   unavailable. No node begins while its pool is paused, or if it is in no pool. maxUnavailable of the policy
    ///   applies in addition if it is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub through: Option<Through>,

    /// How long a node that may begin has time to report its result, such as "15m". After that the rollout no longer
    /// waits for it, so that a node that is down does not block the others. When absent, the rollout waits for every node
    /// that is healthy, and 10 minutes for one that is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress_deadline: Option<Duration>,
}

/// Limits that a rollout follows in addition to its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Through {
    /// Those of the MachineConfigPool of each node.
    MachineConfigPool,
}

/// The nodes that go first, by count or by label.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.count) != has(self.selector)")
    .message("canary must have either count or selector, and not both"))]
pub struct Canary {
    /// How many of the selected nodes go first; the first ones by name.
    #[schemars(range(min = 1))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<i32>,

    /// Which of the selected nodes go first.
    #[schemars(schema_with = "crate::schema::label_selector")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,

    /// How long these nodes must stay available before the others follow, such as "10m". When absent, the others follow
    /// at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soak: Option<Duration>,
}

/// What happens to the nodes that were changed already when a rollout stops because of failures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum OnFailure {
    /// They keep the new configuration.
    #[default]
    Halt,
    /// Their configuration from before is restored.
    Revert,
}
