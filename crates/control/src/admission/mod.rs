//! The admission webhooks for policies.
//!
//! Three of them mutate, at the same paths as in kubernetes-nmstate. The fourth validates what needs nmstate or the other
//! policies; everything that the API server can check without help is in the CustomResourceDefinitions.
//!
//! [`review`] parses a request, [`mutation`] and [`validation`] answer it, [`server`] serves HTTPS. [`policy_index`] has
//! the policies and nodes that a new policy is compared with.

mod mutation;
pub(crate) mod policy_index;
mod review;
mod server;
mod validation;

pub use policy_index::PolicyIndex;
pub use server::{AdmissionServer, serve};
