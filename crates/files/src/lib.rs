//! How the programs of knmstate write files.
//!
//! A crate of its own because its users have nothing else in common: the agent and the command line, which link
//! nmstate, and the generator of the manifests in `deploy`, which must build without it. `knmstate-api` is no place for
//! this: it does no I/O.

pub mod durable;
pub mod lock;
pub mod yaml;
