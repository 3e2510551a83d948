//! Types and reasons of conditions, by kind. Users' tools match on them.

/// Conditions of a `NodeNetworkConfigurationPolicy`.
pub mod policy {
    /// Every selected node is configured as the policy says.
    pub const AVAILABLE: &str = "Available";
    /// At least one node failed or was given up.
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
    /// A node failed or was given up.
    pub const FAILED_TO_CONFIGURE: &str = "FailedToConfigure";
    /// No node is selected.
    pub const NO_MATCHING_NODE: &str = "NoMatchingNode";
}

/// Conditions of a `NodeNetworkConfigurationEnactment`.
pub mod enactment {
    /// The node is configured as the policy says.
    pub const AVAILABLE: &str = "Available";
    /// The last attempt failed; with `Progressing` there will be another one.
    pub const FAILING: &str = "Failing";
    /// The node is being configured.
    pub const PROGRESSING: &str = "Progressing";
    /// The node waits for its turn.
    pub const PENDING: &str = "Pending";
    /// The rollout stopped before it was the node's turn.
    pub const ABORTED: &str = "Aborted";

    /// All types, in the order of a new list.
    pub const TYPES: [&str; 5] = [AVAILABLE, FAILING, PROGRESSING, PENDING, ABORTED];

    /// The node is being configured.
    pub const CONFIGURATION_PROGRESSING: &str = "ConfigurationProgressing";
    /// The node is configured.
    pub const SUCCESSFULLY_CONFIGURED: &str = "SuccessfullyConfigured";
    /// The last attempt failed and there will be no other one.
    pub const FAILED_TO_CONFIGURE: &str = "FailedToConfigure";
    /// The last attempt failed and there will be another one.
    pub const RETRYING: &str = "Retrying";
    /// As many nodes as allowed are being configured already.
    pub const MAX_UNAVAILABLE_LIMIT_REACHED: &str = "MaxUnavailableLimitReached";
    /// Too many other nodes failed.
    pub const CONFIGURATION_ABORTED: &str = "ConfigurationAborted";
}

/// Conditions of an `NMState`.
pub mod nmstate {
    /// All parts are deployed and ready.
    pub const AVAILABLE: &str = "Available";
    /// Parts are still being deployed.
    pub const PROGRESSING: &str = "Progressing";
    /// Something could not be deployed as asked.
    pub const DEGRADED: &str = "Degraded";

    /// All types, in the order of a new list.
    pub const TYPES: [&str; 3] = [AVAILABLE, PROGRESSING, DEGRADED];

    /// Parts are still being deployed.
    pub const DEPLOYING: &str = "Deploying";
    /// All parts are deployed and ready.
    pub const SUCCESSFULLY_DEPLOYED: &str = "SuccessfullyDeployed";
    /// The cluster's TLS profile could only be followed in part.
    pub const TLS_PROFILE_NOT_FULLY_HONORED: &str = "TLSProfileNotFullyHonored";
    /// A part could not be deployed at all.
    pub const INTERNAL_ERROR: &str = "InternalError";
}

/// Conditions of a `NodeNetworkState`.
pub mod node_network_state {
    /// The reported state is that of the node.
    pub const AVAILABLE: &str = "Available";
    /// The node could not report its state.
    pub const FAILING: &str = "Failing";

    /// The state was reported.
    pub const SUCCESSFULLY_CONFIGURED: &str = "SuccessfullyConfigured";
    /// The state could not be reported.
    pub const FAILED_TO_CONFIGURE: &str = "FailedToConfigure";
}
