use super::*;
use crate::certificates::{
    authority::{CertificateAuthority, WebhookNames},
    certificate::CertificatePair,
};

const HOUR: Duration = Duration::from_hours(1);

/// Ten hours for an authority with two of overlap; four for a certificate with one of overlap.
fn intervals() -> RotationIntervals {
    RotationIntervals {
        authority: 10 * HOUR,
        authority_overlap: 2 * HOUR,
        certificate: 4 * HOUR,
        certificate_overlap: HOUR,
    }
}

fn at(minutes: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + 60 * minutes).expect("a time")
}

fn authority(made: i64) -> CertificatePair {
    CertificateAuthority::make(at(made), intervals().authority).expect("an authority")
}

fn issued(by: &CertificatePair, made: i64) -> CertificatePair {
    let names = WebhookNames { service: "s".to_owned(), namespace: "n".to_owned() };
    CertificateAuthority::read(by)
        .and_then(|by| by.issue(&names, at(made), intervals().certificate).ok())
        .expect("a certificate")
}

fn leaf(pair: &CertificatePair) -> Certificate {
    pair.leaf().expect("a sound pair")
}

/// One published authority and a certificate signed by it, both from minute 0.
fn rotated() -> (CertificateState, CertificatePair) {
    let root = authority(0);
    let known = CertificateState {
        authority: Some(leaf(&root)),
        serving: Some(leaf(&issued(&root, 0))),
        published: vec![leaf(&root)],
        bundles: vec![vec![leaf(&root)]; 2],
        carried_since: Some(at(0)),
        ..CertificateState::default()
    };
    (known, root)
}

fn step(known: &CertificateState, minute: i64) -> RotationStep {
    next_step(known, &intervals(), at(minute))
}

/// The operator copies what is published into the webhooks.
fn inject(known: &mut CertificateState) {
    known.bundles.iter_mut().for_each(|bundle| bundle.clone_from(&known.published));
}

#[test]
fn a_fresh_cluster_gets_authority_certificate_and_bundle_in_this_order() {
    let mut known = CertificateState { bundles: vec![Vec::new()], ..CertificateState::default() };
    assert_eq!(step(&known, 0), RotationStep::MakeAuthority);
    let root = authority(0);
    known.authority = Some(leaf(&root));
    // Controllers are ready with it, even if nothing can be published.
    assert_eq!(step(&known, 0), RotationStep::Issue);
    known.serving = Some(leaf(&issued(&root, 0)));
    assert_eq!(step(&known, 0), RotationStep::Publish);
    known.published = trusted(&known, at(0));
    assert!(!is_carried(&known, at(0)));
    assert_eq!(step(&known, 0), RotationStep::Wait { until: at(180) });
    inject(&mut known);
    assert!(is_carried(&known, at(0)));
    assert_eq!(step(&known, 0), RotationStep::Wait { until: at(180) });
}

#[test]
fn a_controller_without_an_operator_publishes_until_the_webhooks_have_the_bundle() {
    let (known, _) = rotated();
    let mut known = CertificateState { injects: true, bundles: vec![Vec::new(); 2], ..known };
    assert_eq!(step(&known, 1), RotationStep::Publish);
    inject(&mut known);
    assert_eq!(step(&known, 1), RotationStep::Wait { until: at(180) });
}

#[test]
fn a_certificate_is_replaced_before_its_end() {
    let (known, _) = rotated();
    assert_eq!(step(&known, 179), RotationStep::Wait { until: at(180) });
    assert_eq!(step(&known, 180), RotationStep::Issue);
    assert_eq!(step(&known, 500), RotationStep::MakeAuthority);
}

#[test]
fn an_authority_is_replaced_and_both_are_trusted_before_anything_is_signed() {
    let (mut known, old) = rotated();
    known.serving = Some(leaf(&issued(&old, 470)));
    assert_eq!(step(&known, 479), RotationStep::Wait { until: at(480) });
    assert_eq!(step(&known, 480), RotationStep::MakeAuthority);

    let new = authority(480);
    known.authority = Some(leaf(&new));
    known.previous = vec![leaf(&old)];
    known.carried_since = None;
    assert_eq!(step(&known, 480), RotationStep::Publish);
    known.published = trusted(&known, at(480));
    assert_eq!(known.published, [leaf(&new), leaf(&old)]);
    // However long it takes: the old certificate is valid until 600.
    for minute in [480, 599] {
        assert!(!is_carried(&known, at(minute)));
        assert_eq!(step(&known, minute), RotationStep::Wait { until: at(600) });
    }
    known.bundles[0] = known.published.clone();
    assert!(!is_carried(&known, at(480)), "one of the webhooks does not trust it yet");
    inject(&mut known);
    assert!(is_carried(&known, at(480)));
    // API servers have a minute, counted from when this controller first saw the bundle.
    known.carried_since = Some(at(480));
    assert_eq!(step(&known, 480), RotationStep::Wait { until: at(481) });
    assert_eq!(step(&known, 481), RotationStep::Issue);

    known.serving = Some(leaf(&issued(&new, 481)));
    assert_eq!(step(&known, 481), RotationStep::Wait { until: at(600) }, "the end of the old one");
    assert_eq!(step(&known, 600), RotationStep::Publish);
    known.published = trusted(&known, at(600));
    assert_eq!(known.published, [leaf(&new)]);
    assert!(is_carried(&known, at(600)), "an expired one more does not matter");
    assert_eq!(step(&known, 600), RotationStep::Wait { until: at(661) });
}

#[test]
fn what_the_api_server_cannot_trust_is_replaced_at_once() {
    let (known, root) = rotated();
    let stranger = authority(0);
    for serving in [None, Some(leaf(&issued(&stranger, 0)))] {
        assert_eq!(step(&CertificateState { serving, ..known.clone() }, 1), RotationStep::Issue);
    }
    // It has expired while no controller was running.
    let ended = CertificateState { serving: Some(leaf(&issued(&root, -600))), ..known.clone() };
    assert_eq!(step(&ended, 1), RotationStep::Issue);
    // Another client has emptied the ConfigMap.
    assert_eq!(step(&CertificateState { published: Vec::new(), ..known.clone() }, 1), RotationStep::Publish);
    // Before any webhook is configured.
    assert_eq!(
        step(&CertificateState { bundles: Vec::new(), ..known }, 1),
        RotationStep::Wait { until: at(180) }
    );
}

#[test]
fn trusted_authorities_of_others_stay_until_they_expire() {
    let (known, root) = rotated();
    let theirs = leaf(&authority(-300));
    // As an upgraded cluster has it.
    let known = CertificateState {
        published: Vec::new(),
        bundles: vec![vec![theirs.clone()], vec![theirs.clone(), leaf(&root)]],
        ..known
    };
    let published = trusted(&known, at(0));
    assert_eq!(published, [leaf(&root), theirs]);
    let known = CertificateState { published, ..known };
    assert_eq!(step(&known, 0), RotationStep::Wait { until: at(180) });
    assert_eq!(trusted(&known, at(300)), [leaf(&root)]);
}

/// At every minute, and with an operator that is late by a part of the overlap, the steps come to an end, and once the
/// webhooks have a bundle, no certificate is served that they do not trust.
#[test]
fn every_rotation_ends() {
    for operator_period in [1, 2, 4] {
        rotate_with(operator_period);
    }
}

fn rotate_with(operator_period: usize) {
    let (mut known, mut root) =
        (CertificateState { bundles: vec![Vec::new(); 2], ..CertificateState::default() }, authority(0));
    let mut issued_count = 0;
    for (round, minute) in (0..3000).step_by(7).enumerate() {
        for turn in 0.. {
            assert!(turn < 8, "no end at minute {minute}: {known:?}");
            known.carried_since =
                is_carried(&known, at(minute)).then(|| known.carried_since.unwrap_or(at(minute)));
            match step(&known, minute) {
                RotationStep::MakeAuthority => {
                    root = authority(minute);
                    let previous = known.authority.take().into_iter().chain(known.previous.drain(..));
                    known.previous = previous.filter(|old| at(minute) < old.not_after).collect();
                    known.authority = Some(leaf(&root));
                }
                RotationStep::Publish => known.published = trusted(&known, at(minute)),
                RotationStep::Issue => {
                    known.serving = Some(leaf(&issued(&root, minute)));
                    issued_count += 1;
                }
                RotationStep::Wait { until } => {
                    assert!(until > at(minute));
                    break;
                }
            }
            let serving = known.serving.as_ref().filter(|serving| serving.is_valid_at(at(minute)));
            if let Some(serving) = serving {
                for bundle in known.bundles.iter().filter(|bundle| !bundle.is_empty()) {
                    assert!(bundle.iter().any(|trusted| serving.is_signed_by(trusted)), "at minute {minute}");
                }
            }
        }
        if round % operator_period == 0 {
            // One webhook at a time, as after a crash in between.
            let behind = known.bundles.iter().position(|bundle| *bundle != known.published);
            if let Some(behind) = behind {
                known.bundles[behind] = known.published.clone();
            }
        }
    }
    assert!(issued_count > 10, "{issued_count} certificates");
}
