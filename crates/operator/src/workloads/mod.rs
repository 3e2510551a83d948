//! The processes: a handler on every node, a controller for the cluster.

pub(crate) mod controller;
pub(crate) mod handler;
mod pod;
