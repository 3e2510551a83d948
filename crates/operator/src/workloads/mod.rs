//! The processes: a handler on every node, a controller for the cluster.

pub mod controller;
pub mod handler;
mod pod;
