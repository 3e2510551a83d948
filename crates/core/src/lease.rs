//! Which of several controllers leads.
//!
//! A candidate takes the lease when it has not seen a renewal for the whole duration, by its own clock: clocks of
//! different machines are never compared. The holder stops writing before others may take the lease
//! ([`LeaseTiming::write_within`] < [`LeaseTiming::duration`]), even if it has no connection to the API server.

use std::time::Duration;

/// The durations of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTiming {
    /// After this time without a renewal others may take the lease.
    pub duration: Duration,
    /// How long after the start of its last successful renewal the holder may write. The difference to `duration` leaves
    /// time for requests that are still in transit.
    pub write_within: Duration,
    /// The time between two renewals.
    pub renew_every: Duration,
}

impl LeaseTiming {
    /// The minimum: less leaves no time for a late renewal and a request in transit.
    pub const MIN_DURATION: Duration = Duration::from_secs(2);

    /// The timing for a lease duration, in the proportions of the default. The duration is written in whole seconds.
    pub fn with_duration(duration: Duration) -> Self {
        let duration = Duration::from_secs(duration.max(Self::MIN_DURATION).as_secs());
        Self { duration, write_within: duration * 2 / 3, renew_every: duration / 5 }
    }
}

impl Default for LeaseTiming {
    fn default() -> Self {
        Self::with_duration(Duration::from_secs(15))
    }
}

/// A lease as it was last read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObservedLease {
    /// Empty after it was released.
    pub holder: String,
    /// The duration that its holder wrote, which may differ from ours in another version of this program.
    pub duration: Duration,
    /// When it was first seen in this state, by our clock.
    pub since: Duration,
}

/// What a candidate or holder does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseStep {
    /// Write our identity, if the lease is unchanged since it was read.
    Take,
    /// Decide again at this time, by our clock, or when the lease changes.
    WaitUntil(Duration),
}

/// What the process with the identity `me` does at the time `now` of its clock. `observed` is `None` if there is no lease;
/// `renewed` is when this process began its last successful renewal.
pub fn next_step(
    timing: &LeaseTiming,
    observed: Option<&ObservedLease>,
    me: &str,
    renewed: Option<Duration>,
    now: Duration,
) -> LeaseStep {
    let Some(observed) = observed else { return LeaseStep::Take };
    let due = if observed.holder == me {
        renewed.map_or(Duration::ZERO, |renewed| renewed + timing.renew_every)
    } else if observed.holder.is_empty() {
        Duration::ZERO
    } else {
        observed.since + observed.duration.max(timing.duration)
    };
    if due <= now { LeaseStep::Take } else { LeaseStep::WaitUntil(due) }
}

/// Until when the process with the identity `me` may write; `None` if it must not write.
pub fn may_write_until(
    timing: &LeaseTiming,
    observed: Option<&ObservedLease>,
    me: &str,
    renewed: Option<Duration>,
) -> Option<Duration> {
    let is_ours = observed.is_some_and(|observed| observed.holder == me);
    renewed.filter(|_| is_ours).map(|renewed| renewed + timing.write_within)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn held_by(holder: &str, since: u64) -> ObservedLease {
        ObservedLease { holder: holder.to_owned(), duration: at(15), since: at(since) }
    }

    #[test]
    fn a_lease_is_taken_when_it_is_free_or_was_not_renewed() {
        let timing = LeaseTiming::default();
        let longer = ObservedLease { duration: at(60), ..held_by("b", 100) };
        for (observed, renewed, now, expected) in [
            (None, None, 0, LeaseStep::Take),
            (Some(held_by("", 100)), None, 100, LeaseStep::Take),
            (Some(held_by("b", 100)), None, 100, LeaseStep::WaitUntil(at(115))),
            (Some(held_by("b", 100)), None, 114, LeaseStep::WaitUntil(at(115))),
            (Some(held_by("b", 100)), None, 115, LeaseStep::Take),
            (Some(longer), None, 120, LeaseStep::WaitUntil(at(160))),
            (Some(held_by("a", 100)), Some(100), 100, LeaseStep::WaitUntil(at(103))),
            (Some(held_by("a", 100)), Some(100), 103, LeaseStep::Take),
            // Held by an earlier process with the same identity: it is renewed first.
            (Some(held_by("a", 100)), None, 100, LeaseStep::Take),
        ] {
            assert_eq!(
                next_step(&timing, observed.as_ref(), "a", renewed.map(at), at(now)),
                expected,
                "{observed:?} at {now}"
            );
        }
    }

    #[test]
    fn only_a_holder_that_has_renewed_may_write() {
        let timing = LeaseTiming::default();
        for (observed, renewed, expected) in [
            (None, Some(5), None),
            (Some(held_by("b", 7)), Some(5), None),
            (Some(held_by("a", 7)), None, None),
            (Some(held_by("a", 7)), Some(5), Some(15)),
        ] {
            let until = may_write_until(&timing, observed.as_ref(), "a", renewed.map(at));
            assert_eq!(until, expected.map(at), "{observed:?}");
        }
    }

    #[test]
    fn the_default_timing() {
        let timing = LeaseTiming { duration: at(15), write_within: at(10), renew_every: at(3) };
        assert_eq!(LeaseTiming::default(), timing);
        assert!(timing.write_within + Duration::from_secs(3) < timing.duration);
    }

    #[test]
    fn the_holder_stops_before_others_begin() {
        for milliseconds in [0, 1_000, 2_000, 2_900, 3_000, 15_000, 60_000] {
            let timing = LeaseTiming::with_duration(Duration::from_millis(milliseconds));
            assert!(
                timing.duration >= LeaseTiming::MIN_DURATION && timing.duration.subsec_nanos() == 0,
                "{timing:?}"
            );
            assert!(timing.write_within < timing.duration, "{timing:?}");
            assert!(
                timing.renew_every * 3 <= timing.write_within,
                "one lost renewal does not stop the holder"
            );
        }
    }
}
