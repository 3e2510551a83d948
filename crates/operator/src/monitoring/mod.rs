//! Alerts for Prometheus and a dashboard for Grafana.
//!
//! Both use the controller's metrics by name. A test in `crates/control/src/metrics` checks that those exist.

mod alerts;
mod dashboard;

pub use alerts::{ALERTS, Alert, AlertSeverity, prometheus_rule};
pub use dashboard::DASHBOARD;
pub(crate) use dashboard::dashboard;
