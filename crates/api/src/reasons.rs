//! Types and reasons of conditions, by kind. Users' tools match them.

/// Conditions of a `NodeNetworkConfigurationPolicy`.
pub mod policy {
    /// The policy is applied on every selected node.
    pub const AVAILABLE: &str = "Available";
    /// At least one node failed or was aborted.
    pub const DEGRADED: &str = "Degraded";
    /// Nodes are still being configured.
    pub const PROGRESSING: &str = "Progressing";
    /// The policy selects no node.
    pub const IGNORED: &str = "Ignored";

    /// All types, in the order of a new list.
    pub const TYPES: [&str; 4] = [AVAILABLE, DEGRADED, PROGRESSING, IGNORED];

    /// Nodes are still being configured.
    pub const CONFIGURATION_PROGRESSING: &str = "ConfigurationProgressing";
    /// All nodes are configured.
    pub const SUCCESSFULLY_CONFIGURED: &str = "SuccessfullyConfigured";
    /// A node failed or was aborted.
    pub const FAILED_TO_CONFIGURE: &str = "FailedToConfigure";
    /// No node is selected.
    pub const NO_MATCHING_NODE: &str = "NoMatchingNode";
}

/// Conditions of a `NodeNetworkConfigurationEnactment`.
pub mod enactment {
    /// The policy is applied on the node.
    pub const AVAILABLE: &str = "Available";
    /// The last attempt failed; if `Progressing` is true as well, another one follows.
    pub const FAILING: &str = "Failing";
    /// The node is being configured.
    pub const PROGRESSING: &str = "Progressing";
    /// The node waits for its permit.
    pub const PENDING: &str = "Pending";
    /// The rollout stopped before the node could begin.
    pub const ABORTED: &str = "Aborted";

    /// All types, in the order of a new list.
    pub const TYPES: [&str; 5] = [AVAILABLE, FAILING, PROGRESSING, PENDING, ABORTED];

    /// The node is being configured.
    pub const CONFIGURATION_PROGRESSING: &str = "ConfigurationProgressing";
    /// The node is configured.
    pub const SUCCESSFULLY_CONFIGURED: &str = "SuccessfullyConfigured";
    /// The last attempt failed, and no other one follows.
    pub const FAILED_TO_CONFIGURE: &str = "FailedToConfigure";
    /// The last attempt failed, and another one follows.
    pub const RETRYING: &str = "Retrying";
    /// As many nodes as maxUnavailable allows are being configured already.
    pub const MAX_UNAVAILABLE_LIMIT_REACHED: &str = "MaxUnavailableLimitReached";
    /// Too many other nodes failed.
    pub const CONFIGURATION_ABORTED: &str = "ConfigurationAborted";
}

/// Conditions of an `NMState`.
pub mod nmstate {
    /// All components are deployed and ready.
    pub const AVAILABLE: &str = "Available";
    /// Components are still being deployed.
    pub const PROGRESSING: &str = "Progressing";
    /// Something could not be deployed as requested.
    pub const DEGRADED: &str = "Degraded";

    /// All types, in the order of a new list.
    pub const TYPES: [&str; 3] = [AVAILABLE, PROGRESSING, DEGRADED];

    /// Components are still being deployed.
    pub const DEPLOYING: &str = "Deploying";
    /// All components are deployed and ready.
    pub const SUCCESSFULLY_DEPLOYED: &str = "SuccessfullyDeployed";
    /// The TLS profile of the cluster could only be applied in part.
    pub const TLS_PROFILE_NOT_FULLY_HONORED: &str = "TLSProfileNotFullyHonored";
    /// A component could not be deployed.
    pub const INTERNAL_ERROR: &str = "InternalError";
}

/// Conditions of a `NodeNetworkState`.
pub mod node_network_state {
    /// The reported state is the current state of the node.
    pub const AVAILABLE: &str = "Available";
    /// The node could not report its state.
    pub const FAILING: &str = "Failing";

    /// The state was reported.
    pub const SUCCESSFULLY_CONFIGURED: &str = "SuccessfullyConfigured";
    /// The state could not be reported.
    pub const FAILED_TO_CONFIGURE: &str = "FailedToConfigure";
}
