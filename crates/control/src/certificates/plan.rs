//! What to do next about the certificates, and when to look again.

use std::time::Duration;

use jiff::Timestamp;

use super::{certificate::Certificate, intervals::Intervals};

/// The longest time that API servers are given to learn of a new authority before something signed by it is served.
const LONGEST_SETTLING: Duration = Duration::from_mins(1);
/// More than this many authorities are never in use.
const MOST_TRUSTED: usize = 100;

/// What there is.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// The authority, if there is one that can sign.
    pub authority: Option<Certificate>,
    /// Those before it.
    pub previous: Vec<Certificate>,
    /// What is served, if it is sound and has the right names.
    pub serving: Option<Certificate>,
    /// Whom the API server trusts, for each webhook.
    pub bundles: Vec<Vec<Certificate>>,
    /// Since when every webhook is known to trust the authority.
    pub published_since: Option<Timestamp>,
}

/// The next thing to do. After each, the plan is made anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Make an authority and keep it. Nobody trusts it yet, and nothing is signed by it.
    MakeAuthority,
    /// Let the API server trust what [`trusted`] says.
    Publish,
    /// Sign a certificate and serve it.
    Issue,
    /// Everything is right until then.
    Rest { until: Timestamp },
}

pub fn next(known: &Known, intervals: &Intervals, now: Timestamp) -> Step {
    let Some(authority) = known.authority.as_ref().filter(|authority| {
        authority.is_valid_at(now) && now < renewal(authority, intervals.authority_overlap)
    }) else {
        return Step::MakeAuthority;
    };
    if !is_published(known, now) {
        return Step::Publish;
    }
    // Whatever is signed by one of these is believed.
    let believed = || std::iter::once(authority).chain(&known.previous);
    let Some(serving) = known
        .serving
        .as_ref()
        .filter(|serving| serving.is_valid_at(now) && believed().any(|signer| serving.is_signed_by(signer)))
    else {
        return Step::Issue;
    };
    let ends = known.previous.iter().chain(known.bundles.iter().flatten()).map(|old| old.not_after);
    let next_end = ends.filter(|end| *end > now).min().unwrap_or(authority.not_after);
    let due = if serving.is_signed_by(authority) {
        renewal(serving, intervals.certificate_overlap)
    } else {
        // Signed by the one before: replaced once every API server has had time to learn of the new one.
        known.published_since.unwrap_or(now) + settling(intervals)
    };
    if due <= now {
        return Step::Issue;
    }
    let until = [renewal(authority, intervals.authority_overlap), due, serving.not_after, next_end];
    Step::Rest { until: until.into_iter().min().unwrap_or(due) }
}

/// Whether every webhook trusts what it should.
pub fn is_published(known: &Known, now: Timestamp) -> bool {
    known.bundles.iter().all(|bundle| trusted(known, bundle, now) == *bundle)
}

/// Whom a webhook should trust that trusts `bundle` now: our authorities, the present one first, and whoever was trusted
/// before; nobody after their end.
pub fn trusted(known: &Known, bundle: &[Certificate], now: Timestamp) -> Vec<Certificate> {
    let mut trusted: Vec<Certificate> = Vec::new();
    for certificate in known.authority.iter().chain(&known.previous).chain(bundle) {
        if now < certificate.not_after && !trusted.contains(certificate) && trusted.len() < MOST_TRUSTED {
            trusted.push(certificate.clone());
        }
    }
    trusted
}

/// When a certificate is replaced: some time before its end, but never in the first half of its life.
fn renewal(certificate: &Certificate, overlap: Duration) -> Timestamp {
    let life = certificate.not_after.duration_since(certificate.not_before).unsigned_abs();
    certificate.not_after - overlap.min(life / 2)
}

fn settling(intervals: &Intervals) -> Duration {
    LONGEST_SETTLING.min(intervals.authority_overlap / 4)
}

#[cfg(test)]
mod tests;
