//! Which step of a rotation is next, or when to look again.

use std::time::Duration;

use jiff::Timestamp;

use super::{certificate::Certificate, intervals::RotationIntervals};

/// How long API servers have, at most, to load a new authority before a certificate signed by it is served.
const MAX_PROPAGATION: Duration = Duration::from_mins(1);
/// Limits the bundle. More authorities than this are never in use.
const MOST_TRUSTED: usize = 100;

/// The certificates as they are now.
#[derive(Clone, Debug, Default)]
pub(super) struct CertificateState {
    /// The authority, if it exists and can sign.
    pub authority: Option<Certificate>,
    /// Earlier authorities.
    pub previous: Vec<Certificate>,
    /// The certificate in the Secret, if it can be served and has the right names.
    pub serving: Option<Certificate>,
    /// The authorities in the ConfigMap.
    pub published: Vec<Certificate>,
    /// The authorities in the `caBundle` of each webhook.
    pub bundles: Vec<Vec<Certificate>>,
    /// Since when every webhook has been seen to trust what is published.
    pub carried_since: Option<Timestamp>,
    /// Whether the controller sets the `caBundle` itself, because there is no operator that does.
    pub injects: bool,
}

/// One step. After each, the next one is determined from scratch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RotationStep {
    /// Create an authority and store it. No webhook trusts it yet, and nothing is signed by it.
    MakeAuthority,
    /// Write the bundle that [`trusted`] returns.
    Publish,
    /// Sign a certificate and store it.
    Issue,
    /// Nothing is due until then.
    Wait { until: Timestamp },
}

pub(super) fn next_step(
    known: &CertificateState,
    intervals: &RotationIntervals,
    now: Timestamp,
) -> RotationStep {
    let Some(authority) = known.authority.as_ref().filter(|authority| {
        authority.is_valid_at(now) && now < renewal(authority, intervals.authority_overlap)
    }) else {
        return RotationStep::MakeAuthority;
    };
    // Certificates signed by one of these are valid for the API server, as soon as the webhooks have the bundle.
    let signers = || std::iter::once(authority).chain(&known.previous);
    // What cannot be trusted is replaced whether or not anything can be published: nothing is lost by it.
    let Some(serving) = known
        .serving
        .as_ref()
        .filter(|serving| serving.is_valid_at(now) && signers().any(|signer| serving.is_signed_by(signer)))
    else {
        return RotationStep::Issue;
    };
    let due = if serving.is_signed_by(authority) {
        Some(renewal(serving, intervals.certificate_overlap))
    } else {
        // Signed by an earlier authority: replaced once every API server has had time to load the new one.
        known.carried_since.map(|since| since + propagation(intervals))
    };
    if due.is_some_and(|due| due <= now) {
        return RotationStep::Issue;
    }
    if !is_published(known, now) {
        return RotationStep::Publish;
    }
    let ends = known.previous.iter().chain(&known.published).map(|old| old.not_after);
    let next_end = ends.filter(|end| *end > now).min().unwrap_or(authority.not_after);
    let until = [renewal(authority, intervals.authority_overlap), serving.not_after, next_end];
    RotationStep::Wait { until: until.into_iter().chain(due).min().unwrap_or(next_end) }
}

/// Whether the ConfigMap has the bundle that it should have, and also the webhooks if the controller writes them.
fn is_published(known: &CertificateState, now: Timestamp) -> bool {
    let wanted = trusted(known, now);
    known.published == wanted && (!known.injects || known.bundles.iter().all(|bundle| *bundle == wanted))
}

/// Whether every webhook trusts our authorities.
pub(super) fn is_carried(known: &CertificateState, now: Timestamp) -> bool {
    let mut ours = known.authority.iter().chain(&known.previous).filter(|ours| now < ours.not_after);
    ours.all(|ours| known.bundles.iter().all(|bundle| bundle.contains(ours)))
}

/// The bundle to publish: our authorities, the current one first, and those that are trusted already, without those that
/// have expired.
pub(super) fn trusted(known: &CertificateState, now: Timestamp) -> Vec<Certificate> {
    let already = known.published.iter().chain(known.bundles.iter().flatten());
    let mut trusted: Vec<Certificate> = Vec::new();
    for certificate in known.authority.iter().chain(&known.previous).chain(already) {
        if now < certificate.not_after && !trusted.contains(certificate) && trusted.len() < MOST_TRUSTED {
            trusted.push(certificate.clone());
        }
    }
    trusted
}

/// When a certificate is replaced: before it expires, but never in the first half of its lifetime.
fn renewal(certificate: &Certificate, overlap: Duration) -> Timestamp {
    let life = certificate.not_after.duration_since(certificate.not_before).unsigned_abs();
    certificate.not_after - overlap.min(life / 2)
}

fn propagation(intervals: &RotationIntervals) -> Duration {
    MAX_PROPAGATION.min(intervals.authority_overlap / 4)
}

#[cfg(test)]
mod tests;
