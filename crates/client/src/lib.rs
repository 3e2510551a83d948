//! The way to the API server, for everything that speaks to it.
//!
//! - [`call`]: one call, bounded in time, whose failure a person can act on;
//! - [`watch`]: a watch that knows at any time whether the server is there;
//! - [`apply`]: writing a status so that the server has exactly what was said;
//! - [`discovery`]: what a cluster knows of;
//! - [`lease`]: agreeing on which replica leads.

pub mod apply;
pub mod call;
pub mod discovery;
pub mod lease;
pub mod watch;
