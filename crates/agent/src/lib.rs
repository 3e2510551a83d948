//! The handler of one node.
//!
//! ```text
//!   store ── orders ──► engine ── begin, commit, roll back ──► host
//!     ▲                   │  probes before and after
//!     ├── what became of each order
//!     └── the network as it is ◄── report ◄── events ── host
//! ```
//!
//! The parts know each other by few words: a [`store::Store`] gives orders and takes results, a
//! [`Host`](knmstate_host::Host) is the machine, [`steady::Steady`] keeps the report from showing a half-applied change.

pub mod agent;
pub mod cpu_clock;
pub mod durable;
pub mod engine;
pub mod health;
pub mod ledger;
pub mod lock_file;
pub mod probes;
pub mod report;
pub mod single;
pub mod steady;
pub mod store;
pub mod stores;
pub mod work_lock;
pub mod yaml;
