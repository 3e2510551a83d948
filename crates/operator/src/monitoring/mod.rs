//! What Prometheus and Grafana are told: which figures are a reason to wake somebody, and how to look at them.
//!
//! All of it speaks of the controller's metrics by name. That those exist is tested beside them, in
//! `knmstate_control::metrics`.

pub mod alerts;
pub mod dashboard;

pub use alerts::rules;
pub use dashboard::dashboard;
