//! What the API server asks before it stores a policy.
//!
//! Three questions are those of kubernetes-nmstate, at the same paths: each changes a little. The fourth refuses what
//! needs nmstate, or the other policies, to be judged. Everything that the API server can judge by itself stands in the
//! CustomResourceDefinitions, and is not asked here.
//!
//! [`review`] takes the question apart, [`mutation`] and [`validation`] answer it, [`server`] listens.

pub mod mutation;
pub mod review;
pub mod server;
pub mod validation;

pub use server::{Questions, serve};
