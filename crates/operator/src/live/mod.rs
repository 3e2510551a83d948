//! The operator as a process: it watches the cluster, applies what the NMState asks for, and writes the NMState's status.
//!
//! ```text
//!   watches ──► view ──► reconcile ──► objects of the cluster
//!     ▲                      │
//!     └── existing objects ◄─┘──► status of the NMState
//! ```
//!
//! On each event everything is compared and only what differs is written. So nothing depends on having seen a particular
//! event, and an operator that is killed half-way leaves nothing that the next one does not finish.

mod addresses;
mod exact;
mod finalizer;
mod obsolete;
mod operator;
mod reconcile;
mod removal;
mod sources;
mod surroundings;
mod view;

pub use operator::{OperatorError, OperatorOptions, client, run};
pub use removal::{RemovalError, remove_all};
