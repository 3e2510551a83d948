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
//! NetworkManager keeps the checkpoint, and forgets it when it is restarted: it then silently keeps the change. So the
//! way back is also noted on disk before anything is touched (`journal.rs`), together with *which* NetworkManager held
//! the checkpoint: the names of checkpoints are counted from 1 again after each start of it, so one name can mean two
//! checkpoints.

mod abilities;
mod ageing;
mod as_before;
mod aside;
mod change;
mod classify;
mod host;
mod journal;
mod kinds;
mod links;
mod memory_only;
mod nmstate_calls;
mod options;
mod ownership;
mod planning;
mod preflight;
mod profiles;
mod readings;
mod restore;
mod scripts;
mod service;
mod service_watch;
mod unchanged;
mod undo;
mod watcher;
mod worker;

pub use host::{NMSTATE_VERSION, NetworkManagerHost};
pub use options::{NetworkManagerLimits, NetworkManagerOptions};
