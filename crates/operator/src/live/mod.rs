//! The operator at work: it sees what the cluster is like, makes what the NMState asks for, and says how far it is.
//!
//! ```text
//!   watches ──► view ──► converge ──► objects of the cluster
//!     ▲                     │
//!     └── what is there ◄───┘──► status of the NMState
//! ```
//!
//! Whatever happens, everything is looked at anew and only what differs is written; so nothing depends on having seen an
//! event, and an operator that dies half-way leaves nothing that the next one does not finish.

mod addresses;
mod converge;
mod exact;
mod finalizer;
mod obsolete;
pub mod operator;
pub mod removal;
mod sources;
mod surroundings;
mod view;
