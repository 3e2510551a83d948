//! The certificates by which the API server knows that it speaks to our webhook.
//!
//! On plain Kubernetes we are our own authority. The leader keeps two Secrets and the `caBundle` of the webhook
//! configurations ([`keeper`], which does what [`plan`] says); every replica serves what the Secret holds ([`serving`]).
//! Where something else makes the certificates (service-ca of OpenShift, cert-manager.io), the keeper is not run.
//!
//! ```text
//!   nmstate-ca          ca.crt, ca.key: the authority; previous.crt: those before it that have not ended yet
//!   caBundle            the authority and the previous ones: whom the API server trusts
//!   nmstate-webhook     tls.crt, tls.key: what is served
//! ```
//!
//! A new authority is trusted for a while before anything that it has signed is served, and an old one stays trusted
//! until it ends. Each step is found anew from what is there, so it does not matter where the one before was cut off.

pub mod authority;
mod bundles;
pub mod certificate;
pub mod intervals;
pub mod keeper;
pub mod plan;
pub mod serving;
mod wake;

pub use intervals::{Intervals, intervals};
pub use keeper::keep;
pub use serving::{Serving, Source};
