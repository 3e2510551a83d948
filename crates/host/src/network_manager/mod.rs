//! The real machine: nmstate on NetworkManager.
//!
//! ```text
//!  NetworkManagerHost ── bounded queue ──► worker thread ── nmstate ──► kernel, NetworkManager
//!    (any thread)                             │    └─────── service ──► NetworkManager's checkpoints
//!         ▲                                   └──────────── journal ──► disk
//!         └── announcer ◄── watcher thread ── netlink groups, signals of the bus
//! ```
//!
//! nmstate's futures cannot move between threads and its calls must not overlap, so one thread owns it and takes
//! requests one at a time. Every wait has a limit, on the worker's side and on the caller's.
//!
//! NetworkManager keeps the checkpoint, and forgets it when it is restarted: it then silently keeps the change. So
//! the way back is also noted on disk before anything is touched (`journal.rs`), together with *which* NetworkManager
//! held the checkpoint: the names of checkpoints start anew with every start of it, and one name can so mean two things.

mod abilities;
mod ageing;
mod as_before;
mod classify;
mod engine;
mod host;
mod journal;
mod kinds;
mod links;
mod memory_only;
pub(crate) mod misunderstood;
mod options;
mod ownership;
mod preflight;
mod prepare;
mod profiles;
mod readings;
mod restore;
mod service;
mod service_watch;
mod transaction;
mod unchanged;
mod watcher;
mod worker;

pub use host::{NMSTATE_VERSION, NetworkManagerHost};
pub use options::{Limits, Options};
