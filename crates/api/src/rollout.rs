//! How a policy spreads over its nodes.

use k8s_openapi::apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Duration, kind::is_default};

/// How a policy spreads over its nodes, beyond `maxUnavailable`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rollout {
    /// How many nodes may fail without stopping the rollout: it stops when more than this have failed. A number such
    /// as 2, or a percentage of the selected nodes such as "5%", rounded down; 0 stops at the first failure.
    ///
    /// When absent, the rollout stops when as many nodes have failed as maxUnavailable allows at once.
    #[schemars(schema_with = "crate::schema::count_or_percent")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_failures: Option<IntOrString>,

    /// Nodes that go first. All of them must succeed, and stay well for the soak time, before any other node is
    /// touched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canary: Option<Canary>,

    /// Lets no further node begin while true. Nodes that have begun finish.
    #[serde(default, skip_serializing_if = "is_default")]
    pub paused: bool,

    /// What happens to the nodes already changed when the rollout stops because of failures:
    /// - Halt: they keep the new configuration. This is the default.
    /// - Revert: what was there before is put back on them.
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_failure: OnFailure,

    /// What else the rollout goes through:
    /// - MachineConfigPool: on OpenShift, nodes begin in the order of their MachineConfigPool (by zone, the oldest
    ///   first) and within its maxUnavailable, where nodes count that are not Ready, not schedulable or being updated;
    ///   none begins while the pool is paused, and none that is in no pool. maxUnavailable of the policy holds in
    ///   addition if it is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub through: Option<Through>,

    /// How long a node that may begin has to report its result, such as "15m". After that the rollout no longer
    /// waits for it, so that a node that went down does not hold up the others. When absent, the controller's own
    /// limit holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress_deadline: Option<Duration>,
}

/// What a rollout goes through besides its own terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Through {
    /// The pool of machines that a node is in.
    MachineConfigPool,
}

/// The nodes that go first, by number or by label.
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

    /// How long these nodes must stay well before the others follow, such as "10m". When absent, the others follow at
    /// once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soak: Option<Duration>,
}

/// What happens to the nodes already changed when a rollout stops because of failures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum OnFailure {
    /// They keep the new configuration.
    #[default]
    Halt,
    /// What was there before is put back.
    Revert,
}
