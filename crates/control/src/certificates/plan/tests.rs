use super::*;
use crate::certificates::{
    authority::{Authority, Names},
    certificate::Pair,
};

const HOUR: Duration = Duration::from_hours(1);

/// Ten hours for an authority with two of overlap; four for a certificate with one of overlap.
fn intervals() -> Intervals {
    Intervals {
        authority: 10 * HOUR,
        authority_overlap: 2 * HOUR,
        certificate: 4 * HOUR,
        certificate_overlap: HOUR,
    }
}

fn at(minutes: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + 60 * minutes).expect("a time")
}

fn authority(made: i64) -> Pair {
    Authority::make(at(made), intervals().authority).expect("an authority")
}

fn issued(by: &Pair, made: i64) -> Pair {
    let names = Names { service: "s".to_owned(), namespace: "n".to_owned() };
    Authority::read(by)
        .and_then(|by| by.issue(&names, at(made), intervals().certificate).ok())
        .expect("a certificate")
}

fn leaf(pair: &Pair) -> Certificate {
    pair.leaf().expect("a sound pair")
}

/// One authority, published, and a certificate of it, all made at minute 0.
fn at_rest() -> (Known, Pair) {
    let root = authority(0);
    let known = Known {
        authority: Some(leaf(&root)),
        serving: Some(leaf(&issued(&root, 0))),
        bundles: vec![vec![leaf(&root)]; 2],
        ..Known::default()
    };
    (known, root)
}

fn step(known: &Known, minute: i64) -> Step {
    next(known, &intervals(), at(minute))
}

#[test]
fn a_fresh_cluster_gets_authority_trust_and_certificate_in_this_order() {
    let mut known = Known { bundles: vec![Vec::new()], ..Known::default() };
    assert_eq!(step(&known, 0), Step::MakeAuthority);
    let root = authority(0);
    known.authority = Some(leaf(&root));
    assert_eq!(step(&known, 0), Step::Publish);
    known.bundles = vec![trusted(&known, &[], at(0))];
    assert_eq!(step(&known, 0), Step::Issue);
    known.serving = Some(leaf(&issued(&root, 0)));
    assert_eq!(step(&known, 0), Step::Rest { until: at(180) });
}

#[test]
fn a_certificate_is_replaced_before_its_end() {
    let (known, _) = at_rest();
    assert_eq!(step(&known, 179), Step::Rest { until: at(180) });
    assert_eq!(step(&known, 180), Step::Issue);
    assert_eq!(step(&known, 500), Step::MakeAuthority);
}

#[test]
fn an_authority_is_replaced_and_both_are_trusted_before_anything_is_signed() {
    let (mut known, old) = at_rest();
    known.serving = Some(leaf(&issued(&old, 470)));
    assert_eq!(step(&known, 479), Step::Rest { until: at(480) });
    assert_eq!(step(&known, 480), Step::MakeAuthority);

    let new = authority(480);
    known.authority = Some(leaf(&new));
    known.previous = vec![leaf(&old)];
    assert_eq!(step(&known, 480), Step::Publish);
    known.bundles[0] = trusted(&known, &known.bundles[0], at(480));
    assert_eq!(known.bundles[0], [leaf(&new), leaf(&old)]);
    assert_eq!(step(&known, 480), Step::Publish, "one of the webhooks does not trust it yet");
    known.bundles[1] = trusted(&known, &known.bundles[1], at(480));
    // API servers are given a minute; whoever has just been started counts from then.
    assert_eq!(step(&known, 480), Step::Rest { until: at(481) });
    known.published_since = Some(at(480));
    assert_eq!(step(&known, 480), Step::Rest { until: at(481) });
    assert_eq!(step(&known, 481), Step::Issue);

    known.serving = Some(leaf(&issued(&new, 481)));
    assert_eq!(step(&known, 481), Step::Rest { until: at(600) }, "the end of the old one");
    assert_eq!(step(&known, 600), Step::Publish);
    known.bundles.iter_mut().for_each(|bundle| bundle.retain(|certificate| *certificate == leaf(&new)));
    assert_eq!(step(&known, 600), Step::Rest { until: at(661) });
}

#[test]
fn what_cannot_be_believed_is_replaced_at_once() {
    let (known, root) = at_rest();
    let stranger = authority(0);
    for serving in [None, Some(leaf(&issued(&stranger, 0)))] {
        assert_eq!(step(&Known { serving, ..known.clone() }, 1), Step::Issue);
    }
    // It has ended while nobody was there to replace it.
    let ended = Known { serving: Some(leaf(&issued(&root, -600))), ..known.clone() };
    assert_eq!(step(&ended, 1), Step::Issue);
    // Somebody has emptied the bundles.
    assert_eq!(step(&Known { bundles: vec![Vec::new()], ..known.clone() }, 1), Step::Publish);
    // Before any webhook is configured.
    assert_eq!(step(&Known { bundles: Vec::new(), ..known }, 1), Step::Rest { until: at(180) });
}

#[test]
fn whoever_was_trusted_stays_so_until_their_end() {
    let (known, root) = at_rest();
    let theirs = leaf(&authority(-300));
    let bundle = trusted(&known, std::slice::from_ref(&theirs), at(0));
    assert_eq!(bundle, [leaf(&root), theirs.clone()]);
    assert_eq!(trusted(&known, &bundle, at(300)), [leaf(&root)]);
}

/// Wherever it is cut off, and whatever the minute: the steps lead to rest, and nothing is ever served that is not
/// trusted.
#[test]
fn every_rotation_comes_to_rest() {
    let (mut known, mut root) = (Known { bundles: vec![Vec::new(); 2], ..Known::default() }, authority(0));
    for minute in (0..3000).step_by(7) {
        for turn in 0.. {
            assert!(turn < 8, "no rest at minute {minute}: {known:?}");
            if is_published(&known, at(minute)) {
                known.published_since.get_or_insert(at(minute));
            } else {
                known.published_since = None;
            }
            match step(&known, minute) {
                Step::MakeAuthority => {
                    root = authority(minute);
                    let previous = known.authority.take().into_iter().chain(known.previous.drain(..));
                    known.previous = previous.filter(|old| at(minute) < old.not_after).collect();
                    known.authority = Some(leaf(&root));
                }
                Step::Publish => {
                    // One webhook at a time, as after a crash in between.
                    let wrong = known
                        .bundles
                        .iter()
                        .position(|bundle| trusted(&known, bundle, at(minute)) != *bundle);
                    let wrong = wrong.expect("a bundle to publish");
                    known.bundles[wrong] = trusted(&known, &known.bundles[wrong], at(minute));
                }
                Step::Issue => known.serving = Some(leaf(&issued(&root, minute))),
                Step::Rest { until } => {
                    assert!(until > at(minute));
                    break;
                }
            }
            if let Some(serving) = known.serving.as_ref().filter(|serving| serving.is_valid_at(at(minute))) {
                for bundle in &known.bundles {
                    assert!(bundle.iter().any(|trusted| serving.is_signed_by(trusted)), "at minute {minute}");
                }
            }
        }
    }
}
