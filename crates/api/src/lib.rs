//! The `nmstate.io` API: the four kinds, their conditions, and the names that users and tools rely on.
//!
//! Four cluster-scoped kinds, the same as those of kubernetes-nmstate, so that existing manifests, scripts and
//! dashboards work unchanged:
//!
//! | kind | written by | module |
//! |---|---|---|
//! | [`NMState`] | the admin, to install node networking | [`nmstate`] |
//! | [`NodeNetworkConfigurationPolicy`] | the admin: the desired network of some nodes | `policy` |
//! | [`NodeNetworkConfigurationEnactment`] | the controller: the order for one node; its status: that node | [`enactment`] |
//! | [`NodeNetworkState`] | each node: its current network | [`node_network_state`] |
//!
//! Each kind is served in two versions with the same schema, so one Rust type is enough for both. What differs
//! (defaults, deprecation, which one is stored) is in [`crds`], which assembles the `CustomResourceDefinition`s.
//!
//! This crate has types and nothing else: it does no I/O, reads no clock and no environment, and knows no client.
//! Time is an argument.

#![warn(missing_docs)]

mod condition;
pub mod crds;
mod duration;
pub mod enactment;
mod kind;
mod modes;
pub mod names;
pub mod nmstate;
pub mod node_network_state;
mod order;
mod policy;
pub mod probe;
pub mod reasons;
pub mod rollout;
mod rules;
mod schema;
mod state;

pub use condition::{Condition, ConditionList, ConditionStatus, whole_second};
pub use duration::{Duration, InvalidDuration};
pub use enactment::{NodeNetworkConfigurationEnactment, NodeNetworkConfigurationEnactmentStatus};
pub use modes::{Drift, Mode, OnDelete};
pub use nmstate::{NMState, NMStateSpec, NMStateStatus, Persistence};
pub use node_network_state::{NodeNetworkState, NodeNetworkStateSpec, NodeNetworkStateStatus};
pub use order::{Deadlines, NodeNetworkConfigurationEnactmentSpec, Permit};
pub use policy::{
    NodeNetworkConfigurationPolicy, NodeNetworkConfigurationPolicySpec, NodeNetworkConfigurationPolicyStatus,
};
pub use probe::Probe;
pub use rollout::Rollout;
pub use state::State;
