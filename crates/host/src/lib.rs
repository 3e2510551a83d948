//! The interface to a host's network: reading it, changing it, and rolling a change back.
//!
//! The rest of knmstate reaches a node's network only through the trait [`Host`]. Its interface has nothing of what
//! implements it (nmstate, NetworkManager, netlink, D-Bus): a network is a [`NetworkState`], and a failure is a
//! [`HostError`] that says what can be done about it.
//!
//! # The steps of a change
//!
//! A change of the network can cut off the agent that makes it. So the rollback does not depend on the agent: a change
//! that is neither committed nor rolled back in time is rolled back by NetworkManager.
//!
//! ```text
//!            begin(desired, deadline)
//!                      │ refused: Invalid, Unsupported, Busy, Unavailable … nothing was touched
//!                      ▼
//!     written to the journal, checkpoint made, timer set
//!                      │ apply, verify ── fails, or takes longer than the deadline ──► as before
//!                      ▼
//!   applied, uncommitted; the timer restarts
//!          │                │                  │
//!       commit          roll_back       neither in time (crash, hang, agent cut off)
//!          ▼                ▼                  ▼
//!       permanent       as before      NetworkManager rolls back: as before
//! ```
//!
//! There is never more than one change at a time; a second `begin` gets [`HostError::Busy`].
//!
//! A new agent finds the changes that an earlier process has left open by [`Host::open_checkpoints`], and rolls them
//! back. That includes a restart of NetworkManager during a change: NetworkManager then loses its timer and silently
//! keeps the change. `commit` returns [`HostError::CheckpointGone`], [`Guard::Lost`] marks the change in the list, and
//! `roll_back` undoes it from the journal.
//!
//! What cannot be rolled back is given up after some attempts ([`set_aside`]): `roll_back` returns
//! [`HostError::SetAside`], the change is not open any more, and [`Host::set_aside`] lists it for the admin.
//!
//! # Implementations
//!
//! [`NetworkManagerHost`] is the host that the process runs on. The crate `knmstate-simulated-host` has one in memory,
//! with faults on demand, and the laws: the tests that every implementation has to pass.

mod error;
mod events;
mod host;
mod network_manager;
pub mod set_aside;

pub use error::HostError;
pub use events::{Announcer, Changes, Events, Topic};
pub use host::{
    Abilities, Checkpoint, Guard, Host, Link, OpenCheckpoint, Operation, Plan, Versions, Warning,
};
// What the trait takes and returns.
pub use knmstate_document::{NetworkState, Place, RouteList};
pub use network_manager::{NMSTATE_VERSION, NetworkManagerHost, NetworkManagerLimits, NetworkManagerOptions};
pub use set_aside::SetAside;
