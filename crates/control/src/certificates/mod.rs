//! The certificate of the webhook, by which the API server authenticates it.
//!
//! On plain Kubernetes the controllers have a certificate authority of their own. The leader writes two Secrets and a
//! ConfigMap ([`rotation`], in the steps of [`next_step`]); every replica serves the certificate in the Secret
//! ([`served`]). The operator copies the ConfigMap into the `caBundle` of the webhook configurations, which the controllers
//! may not write; where no operator runs, the leader does it with `--inject-ca-bundle`. Where service-ca of OpenShift or
//! cert-manager.io makes the certificate, no rotation runs.
//!
//! ```text
//!   nmstate-ca          ca.crt, ca.key: the authority; previous.crt: earlier ones that have not expired
//!   nmstate-ca-bundle   ca-bundle.crt: the authority and the earlier ones, as they are to be trusted
//!   caBundle            the same: the roots that the API server does trust
//!   nmstate-webhook     tls.crt, tls.key: what is served
//! ```
//!
//! A new authority is seen in every `caBundle`, and is trusted for a while, before it replaces a certificate that is
//! trusted, and an old one stays trusted until it expires. Each step follows from the objects as they are, so a rotation
//! may be interrupted anywhere.

mod authority;
mod bundles;
mod certificate;
mod changes;
mod intervals;
mod next_step;
mod rotation;
mod served;

pub use authority::{CertificateAuthority, WebhookNames};
pub use certificate::CertificatePair;
pub use intervals::RotationIntervals;
pub(crate) use intervals::parse_intervals;
pub use rotation::{RotationOptions, rotate};
pub use served::{CertificateSource, ServedCertificate};
