//! The one door to the machine: what its network is like now, what should change, and the way back.
//!
//! Everything else in knmstate reaches a node's network through the trait [`Host`]. Only this crate may name what
//! stands behind it (nmstate, NetworkManager, netlink, D-Bus), and nothing of that shows in its interface: a network
//! is a [`NetworkState`], a failure is a [`HostError`] that says what can be done about it.
//!
//! # The life of a change
//!
//! A change of the network can cut off the very agent that makes it. So the machine itself holds the way back, and
//! a change that nobody settles is undone:
//!
//! ```text
//!            begin(desired, deadline)
//!                      │ refused: Invalid, Unsupported, Busy, Unavailable … nothing was touched
//!                      ▼
//!     noted on disk, checkpoint made, timer set
//!                      │ apply, verify ── does not come out right, or takes longer than deadline ──► as before
//!                      ▼
//!   applied, uncommitted; the timer starts anew
//!          │                │                  │
//!       commit          roll_back       nobody in time (crash, hang, lost power over the node)
//!          ▼                ▼                  ▼
//!       it stays        as before      the machine rolls back by itself: as before
//! ```
//!
//! There is never more than one change at a time; a second `begin` gets [`HostError::Busy`].
//!
//! An agent that is started finds what an earlier life of it has left open by [`Host::open_checkpoints`], and rolls
//! it back. That includes the nasty case in which the machine's network service was restarted while a change was
//! open: the service forgets its timer and silently keeps the change. `commit` says [`HostError::CheckpointGone`]
//! then, [`Guard::Lost`] marks the change in the list, and `roll_back` undoes it by what was noted on disk.
//!
//! # Machines
//!
//! [`network_manager`] is the machine that the process runs on. [`simulated`] is a machine in memory, with faults on
//! demand. [`laws`] is what every implementation has to obey; each one's tests run them.

mod address;
pub mod captures;
mod check;
mod difference;
mod error;
mod events;
mod features;
mod host;
pub mod keyfiles;
pub mod laws;
pub mod network_manager;
mod routing;
mod scalar;
mod secrets;
pub mod simulated;
mod state;
mod unmet;

pub use captures::Resolved;
pub use check::check;
pub use error::{HostError, Place};
pub use events::{Changes, Events, Topic};
pub use features::features;
pub use host::{
    Abilities, Checkpoint, Guard, Host, Link, OpenCheckpoint, Operation, Plan, Versions, Warning,
};
pub use state::{NetworkState, RouteList};
pub use unmet::Unmet;
