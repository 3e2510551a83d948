//! The model of a network document, desired or current, in the language of nmstate.
//!
//! A document is JSON. This crate answers the questions about one that need neither nmstate nor a machine, and answers
//! each of them once:
//!
//! | question | module |
//! |---|---|
//! | Does it have the shape of a document, and where does it not? | [`state`], [`place`] |
//! | Which interfaces are the same one, and by which names is one known? | [`mod@interfaces`] |
//! | Which keys hold the name of another interface, and why? | [`references`] |
//! | Which routes are the same one, which rules, and what does a removal match? | [`routing`] |
//! | Do two values mean the same? | [`scalar`], [`address`] |
//! | What does one document ask for that another does not have? | `unmet`, `difference` |
//! | Which values must not be shown? | [`secrets`] |
//! | Which keys run programs as root? | [`programs`] |
//!
//! Nothing here does I/O. Whether nmstate understands a document is not judged here.

pub mod address;
mod difference;
pub mod interfaces;
pub mod place;
pub mod programs;
pub mod references;
pub mod routing;
pub mod scalar;
pub mod secrets;
mod sections;
mod spelling;
pub mod state;
mod unmet;

pub use interfaces::interface_name;
pub use place::{InvalidDocument, Place};
pub use routing::{MAIN_TABLE, is_default_route};
pub use sections::{
    Document, config_routes, config_rules, interfaces, is_absent, is_ignored, objects, running_routes, text,
};
pub use spelling::edit_distance;
pub use state::{NetworkState, RouteList};
pub use unmet::Unmet;
