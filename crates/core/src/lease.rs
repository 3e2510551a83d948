//! Who of several controllers is in charge.
//!
//! A lease is taken by whoever sees that it was not renewed for its whole duration, by its own clock and from the moment
//! it saw the last change: clocks of different machines are never compared. Whoever holds it stops writing well
//! before the others may take it ([`Terms::write_within`] < [`Terms::duration`]), also when it cannot be reached to be told.

use std::time::Duration;

/// How a lease is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// When nobody has renewed it for so long, others may take it.
    pub duration: Duration,
    /// How long after the start of its last successful renewal the holder may write. The difference to `duration` is
    /// there for what is still on its way to the server then.
    pub write_within: Duration,
    /// How long to wait from one renewal to the next.
    pub renew_every: Duration,
}

impl Terms {
    /// The shortest lease that makes sense: less is not enough for a renewal that is late and a write that is under way.
    pub const SHORTEST: Duration = Duration::from_secs(2);

    /// Terms of a lease that lasts so long, in the proportions of the usual one. It is written in whole seconds.
    pub fn lasting(duration: Duration) -> Self {
        let duration = Duration::from_secs(duration.max(Self::SHORTEST).as_secs());
        Self { duration, write_within: duration * 2 / 3, renew_every: duration / 5 }
    }
}

impl Default for Terms {
    fn default() -> Self {
        Self::lasting(Duration::from_secs(15))
    }
}

/// A lease as it was last seen.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Seen {
    /// Empty when it was given back.
    pub holder: String,
    /// What its holder promised, which another version of this program may have chosen differently.
    pub duration: Duration,
    /// When it was first seen as it is now, by our clock.
    pub since: Duration,
}

/// What to do about a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Write our name, if it is still as it was seen.
    Take,
    /// Look again at this time, by our clock, or when it changes.
    WaitUntil(Duration),
}

/// What whoever has this name does at this time, by its clock; `renewed` is when it began its last successful renewal.
/// `None` for a lease that is not there.
pub fn step(terms: &Terms, seen: Option<&Seen>, me: &str, renewed: Option<Duration>, now: Duration) -> Step {
    let Some(seen) = seen else { return Step::Take };
    let due = if seen.holder == me {
        renewed.map_or(Duration::ZERO, |renewed| renewed + terms.renew_every)
    } else if seen.holder.is_empty() {
        Duration::ZERO
    } else {
        seen.since + seen.duration.max(terms.duration)
    };
    if due <= now { Step::Take } else { Step::WaitUntil(due) }
}

/// Until when the holder may write; `None` when it must not.
pub fn may_write_until(
    terms: &Terms,
    seen: Option<&Seen>,
    me: &str,
    renewed: Option<Duration>,
) -> Option<Duration> {
    let is_ours = seen.is_some_and(|seen| seen.holder == me);
    renewed.filter(|_| is_ours).map(|renewed| renewed + terms.write_within)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn held_by(holder: &str, since: u64) -> Seen {
        Seen { holder: holder.to_owned(), duration: at(15), since: at(since) }
    }

    #[test]
    fn a_lease_is_taken_when_it_is_free_or_was_not_renewed() {
        let terms = Terms::default();
        let longer = Seen { duration: at(60), ..held_by("b", 100) };
        for (seen, renewed, now, expected) in [
            (None, None, 0, Step::Take),
            (Some(held_by("", 100)), None, 100, Step::Take),
            (Some(held_by("b", 100)), None, 100, Step::WaitUntil(at(115))),
            (Some(held_by("b", 100)), None, 114, Step::WaitUntil(at(115))),
            (Some(held_by("b", 100)), None, 115, Step::Take),
            (Some(longer), None, 120, Step::WaitUntil(at(160))),
            (Some(held_by("a", 100)), Some(100), 100, Step::WaitUntil(at(103))),
            (Some(held_by("a", 100)), Some(100), 103, Step::Take),
            // Of an earlier life with the same name: it is renewed before anything else.
            (Some(held_by("a", 100)), None, 100, Step::Take),
        ] {
            assert_eq!(
                step(&terms, seen.as_ref(), "a", renewed.map(at), at(now)),
                expected,
                "{seen:?} at {now}"
            );
        }
    }

    #[test]
    fn only_a_holder_that_has_renewed_may_write() {
        let terms = Terms::default();
        for (seen, renewed, expected) in [
            (None, Some(5), None),
            (Some(held_by("b", 7)), Some(5), None),
            (Some(held_by("a", 7)), None, None),
            (Some(held_by("a", 7)), Some(5), Some(15)),
        ] {
            let until = may_write_until(&terms, seen.as_ref(), "a", renewed.map(at));
            assert_eq!(until, expected.map(at), "{seen:?}");
        }
    }

    #[test]
    fn the_usual_terms() {
        let terms = Terms { duration: at(15), write_within: at(10), renew_every: at(3) };
        assert_eq!(Terms::default(), terms);
        assert!(terms.write_within + Duration::from_secs(3) < terms.duration);
    }

    #[test]
    fn the_holder_stops_before_others_begin() {
        for milliseconds in [0, 1_000, 2_000, 2_900, 3_000, 15_000, 60_000] {
            let terms = Terms::lasting(Duration::from_millis(milliseconds));
            assert!(terms.duration >= Terms::SHORTEST && terms.duration.subsec_nanos() == 0, "{terms:?}");
            assert!(terms.write_within < terms.duration, "{terms:?}");
            assert!(terms.renew_every * 3 <= terms.write_within, "one lost renewal is no reason to stop");
        }
    }
}
