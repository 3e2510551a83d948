//! What nmstate makes of a document without a machine.
//!
//! This crate uses nmstate's parser, policy language and writer of files, and nothing else of it: no NetworkManager, no
//! D-Bus, no netlink. The controller and the offline commands of the command line need no more than that.
//!
//! | task | module |
//! |---|---|
//! | Refuse a document that no machine can apply | [`check`] |
//! | Find the key that nmstate's parser does not understand | [`parser`] |
//! | Resolve captures in a given state | [`captures`] |
//! | Name the features of nmstate that a document uses | [`features`](features()) |
//! | Write a document as files of NetworkManager | [`keyfiles`] |

pub mod captures;
mod check;
mod features;
pub mod keyfiles;
pub mod parser;

pub use check::check;
pub use features::features;
