//! Choices of a policy that go into the order of each node unchanged.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether a policy changes nodes or only says what it would change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Mode {
    /// Configure the nodes.
    #[default]
    Apply,
    /// Work out the changes and how disruptive they are, and touch nothing.
    Plan,
}

/// What happens when the network of a node no longer is what the policy made it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Drift {
    /// Nobody looks.
    Ignore,
    /// The differences are shown in the enactment.
    #[default]
    Report,
    /// The policy is applied again, ever more slowly when another program keeps undoing it.
    Correct,
}

/// What happens to the network of the nodes when the policy is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum OnDelete {
    /// It stays as the policy made it.
    #[default]
    Keep,
    /// What was there before the policy is put back, guarded like any other change.
    Restore,
}
