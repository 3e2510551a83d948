//! The `nmstate.io` API: what users write, what the cluster answers, and the names both rely on.
//!
//! Four cluster-scoped kinds, the same as those of kubernetes-nmstate, so that existing manifests, scripts and
//! dashboards work unchanged:
//!
//! | kind | written by | module |
//! |---|---|---|
//! | [`NMState`] | the admin, to switch node networking on | [`nmstate`] |
//! | [`NodeNetworkConfigurationPolicy`] | the admin: what the network of some nodes should be | [`policy`] |
//! | [`NodeNetworkConfigurationEnactment`] | the controller: one order for one node; its status by that node | [`enactment`] |
//! | [`NodeNetworkState`] | each node: what its network is now | [`node_network_state`] |
//!
//! Each kind is served in two versions of one shape, so one Rust type serves both; what differs (defaults,
//! deprecation, which one is stored) is said in [`crds`], which assembles the `CustomResourceDefinition`s.
//!
//! This crate holds types and nothing else: it does no I/O, reads no clock and no environment, and knows no client.
//! Time comes in as an argument.

#![warn(missing_docs)]

pub mod condition;
pub mod crds;
pub mod duration;
pub mod enactment;
mod kind;
pub mod modes;
pub mod names;
pub mod nmstate;
pub mod node_network_state;
pub mod order;
pub mod policy;
pub mod probe;
pub mod reasons;
pub mod rollout;
mod rules;
mod schema;
pub mod state;

pub use condition::{Condition, ConditionList, ConditionStatus};
pub use duration::Duration;
pub use enactment::{NodeNetworkConfigurationEnactment, NodeNetworkConfigurationEnactmentStatus};
pub use modes::{Drift, Mode, OnDelete};
pub use nmstate::{NMState, NMStateSpec, NMStateStatus, Persistence};
pub use node_network_state::{NodeNetworkState, NodeNetworkStateSpec, NodeNetworkStateStatus};
pub use order::{NodeNetworkConfigurationEnactmentSpec, Permit};
pub use policy::{
    NodeNetworkConfigurationPolicy, NodeNetworkConfigurationPolicySpec, NodeNetworkConfigurationPolicyStatus,
};
pub use probe::Probe;
pub use rollout::Rollout;
pub use state::State;
