//! The controller: it turns policies into orders for nodes, and the results of nodes into the status of policies.
//!
//! ```text
//!   watches ──► cluster state ──► plan ──► queue ──► writes ──► enactments, statuses of policies, events
//!                    ▲                                  │ responses
//!                    └──────────────────────────────────┘
//! ```
//!
//! One of several controllers leads ([`knmstate_client::lease`]). When it takes over it lists everything again
//! (`sources`), keeps what decisions need in a `cluster_state`, and decides from that alone (`plan`, with the pure
//! rules of `knmstate_core`). Whether a policy is valid is judged on a thread (`judge`). A decision counts from the moment it is made, before the API server has answered
//! (`leader`), so a cache that lags behind cannot make the leader decide twice.
//!
//! Every replica, leader or not, also runs:
//!
//! - `admission`: the webhooks of the API server for policies;
//! - `metrics`: metrics of the cluster and of the leader's own work;
//! - `certificates`: the certificate of the webhook; the leader renews it, all replicas serve it;
//! - `tls`: TLS for both ports;
//! - `health`: a port for kubelet.

#![warn(unreachable_pub)]

mod admission;
mod certificates;
mod cluster_state;
mod connection;
mod connections;
mod controller;
mod controller_metrics;
mod events;
mod health;
mod judge;
mod known_checks;
mod leader;
mod metric_labels;
mod metrics;
mod plan;
mod pool_watch;
mod queue;
mod refusal;
mod sources;
mod tls;
mod tls_listener;
mod writes;

pub use controller::{ControllerError, ControllerOptions, Listeners, ObjectNames, client, run};

pub use certificates::CertificateSource;

// Parts that tests run without the rest of a controller.
pub use admission::{AdmissionServer, PolicyIndex, serve as serve_admission};
pub use certificates::{
    CertificateAuthority, CertificatePair, RotationIntervals, RotationOptions, ServedCertificate,
    WebhookNames, rotate as rotate_certificates,
};
pub use controller_metrics::ControllerMetrics;
pub use tls::Tls;
