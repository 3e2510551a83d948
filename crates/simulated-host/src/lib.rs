//! A machine in memory, for tests and for fleets of thousands.
//!
//! It behaves like nmstate with NetworkManager where it matters to an agent: partial documents are merged,
//! what cannot be is refused before anything is touched, a change is verified, guarded by a timer and undone
//! exactly. It misbehaves like them, too, on demand: see [`Fault`] and [`ApplyFault`].
//!
//! What it does not have, it refuses: Open vSwitch, interfaces that are identified by a MAC or PCI address. No server
//! answers DHCP or router solicitations, and interfaces have no link-local addresses. Unlike
//! nmstate, it shows the routes to directly connected networks among the running ones, so that no caller mistakes the
//! running routes for the configured ones.

mod checkpoint;
mod desired;
mod faults;
mod host;
mod interface;
mod ip;
mod kind;
pub mod laws;
mod machine;
mod names;
mod network;
mod routes;
mod rules;
mod topology;

pub use faults::{ApplyFault, Fault, Strikes};
pub use host::SimulatedHost;
pub use kind::Kind;
pub use machine::{Builder, SimulatedMachine};
