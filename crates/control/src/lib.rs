//! The controller: from policies to the orders of nodes, and back to what policies say of themselves.
//!
//! ```text
//!   watches ──► world ──► plan ──► writes ──► enactments, statuses of policies, events
//!                 ▲                  │ what was written
//!                 └──────────────────┘
//! ```
//!
//! One of several controllers leads ([`knmstate_client::lease`]). It reads everything anew when it takes over ([`sources`]), keeps what
//! matters of it in a [`world`], and decides from that alone ([`plan`], over the pure rules of `knmstate_core`). What
//! it has decided counts as done from that moment, whether the server has answered or not ([`leader`]); so
//! a cache that lags behind cannot make it decide twice.
//!
//! What every one of them does:
//!
//! - [`admission`]: what the API server asks before it stores a policy, answered from a [`catalogue`] of the cluster;
//! - [`metrics`]: what the leader knows in figures, and what it measures of its own work;
//! - [`certificates`]: how the API server knows that it asks the right one; the leader keeps them, all serve them;
//! - [`tls`]: how both are spoken to.

pub mod admission;
pub mod catalogue;
pub mod certificates;
pub mod controller;
pub mod events;
pub mod judgement;
pub mod leader;
pub mod measures;
pub mod metrics;
pub mod plan;
pub mod pool_watch;
pub mod queue;
pub mod sources;
pub mod tls;
pub mod tls_listener;
pub mod world;
pub mod writes;
