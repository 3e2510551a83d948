//! Fields of a policy that are copied to the order of each node unchanged.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether a policy changes nodes or only reports what it would change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Mode {
    /// Configure the nodes.
    #[default]
    Apply,
    /// Report the changes and how disruptive they would be; change nothing.
    Plan,
}

/// What happens when the network of a node no longer matches the policy that was applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Drift {
    /// Nothing: differences are not looked for.
    Ignore,
    /// The differences are reported in the status of the enactment.
    #[default]
    Report,
    /// The policy is applied again, at increasing intervals when another program keeps reverting it.
    Correct,
}

/// What happens to the network of the nodes when the policy is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum OnDelete {
    /// It stays as it is.
    #[default]
    Keep,
    /// The configuration from before the policy is restored, with probes and rollback like any other change.
    Restore,
}
