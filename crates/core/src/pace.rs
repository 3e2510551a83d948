//! How often the network is read while it keeps changing.
//!
//! The cost of a reading depends on the number of interfaces (13 ms with 3, a second with 300), so a fixed interval would
//! be too slow for one node and too expensive for another. Instead a token bucket limits the CPU time: each reading takes
//! its cost from a bucket that fills slowly. After a quiet time it is full, and the first reading is made at once.

use std::time::Duration;

/// The size of the bucket in CPU time.
pub const BUCKET: Duration = Duration::from_millis(500);

/// The default rate at which the bucket fills, in percent of one core. The whole process should stay below 5 % in any
/// minute. A minute can begin with a full bucket and end with a reading of 600 interfaces (1.2 s, which is 2 % of it),
/// and processing the events costs CPU time, too.
pub const PERCENT: u32 = 2;

/// The token bucket.
#[derive(Clone, Debug)]
pub struct Pace {
    percent: u32,
    /// Nanoseconds of CPU time; negative if the last reading cost more than expected.
    level: i128,
    /// When `level` was computed, since the start.
    at: Duration,
    /// The cost of the last reading, as an estimate of the next one.
    last: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self::of(PERCENT)
    }
}

impl Pace {
    /// A full bucket that fills at a rate in percent of one core, at least 1.
    pub fn of(percent: u32) -> Self {
        Self { percent: percent.max(1), level: nanoseconds(BUCKET), at: Duration::ZERO, last: Duration::ZERO }
    }

    /// The earliest time at which the network may be read. Times are since the start, and monotonic.
    pub fn allowed_at(&self, now: Duration) -> Duration {
        let missing = nanoseconds(self.last.min(BUCKET)) - self.level(now);
        if missing <= 0 {
            return now;
        }
        let wait = missing.saturating_mul(100).div_euclid(i128::from(self.percent)) + 1;
        now.saturating_add(Duration::from_nanos(u64::try_from(wait).unwrap_or(u64::MAX)))
    }

    /// Records a reading and its cost.
    pub fn spent(&mut self, now: Duration, cpu: Duration) {
        self.level = self.level(now) - nanoseconds(cpu);
        self.at = self.at.max(now);
        self.last = cpu;
    }

    fn level(&self, now: Duration) -> i128 {
        let flown_in = nanoseconds(now.saturating_sub(self.at)) * i128::from(self.percent) / 100;
        (self.level + flown_in).min(nanoseconds(BUCKET))
    }
}

fn nanoseconds(time: Duration) -> i128 {
    i128::try_from(time.as_nanos()).unwrap_or(i128::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn the_first_reading_after_quiet_may_be_made_at_once() {
        let mut pace = Pace::default();
        assert_eq!(pace.allowed_at(Duration::ZERO), Duration::ZERO);
        for cost in [ms(1), ms(400), ms(5000)] {
            pace.spent(ms(10), cost);
            let quiet = ms(10) + Duration::from_mins(5);
            assert_eq!(pace.allowed_at(quiet), quiet, "after one of {cost:?}");
        }
    }

    #[test]
    fn the_higher_the_cost_the_longer_the_wait_for_the_next_reading() {
        let mut pace = Pace::default();
        // Twenty readings of 13 ms in a row do not empty the bucket.
        for _ in 0..20 {
            assert_eq!(pace.allowed_at(ms(100)), ms(100));
            pace.spent(ms(100), ms(13));
        }
        // With 300 interfaces: once the bucket is empty, the wait is the time in which 2 % of a core make up one reading.
        let mut pace = Pace::default();
        let mut now = Duration::ZERO;
        let mut times = Vec::new();
        for _ in 0..4 {
            now = pace.allowed_at(now);
            times.push(now.as_secs());
            pace.spent(now, ms(930));
        }
        assert_eq!(times, [0, 46, 93, 139]);
    }

    #[test]
    fn an_extreme_cost_does_not_overflow() {
        let mut pace = Pace::default();
        pace.spent(Duration::ZERO, Duration::MAX);
        assert!(pace.allowed_at(ms(1)) > Duration::from_hours(24));
    }

    proptest! {
        /// In any window, readings cost at most the bucket, what flows in, and one reading.
        #[test]
        fn no_window_costs_more_than_its_share(
            events in prop::collection::vec((0_u64..20_000, 0_u64..3_000), 1..80)
        ) {
            let mut pace = Pace::default();
            let mut now = Duration::ZERO;
            let mut readings: Vec<(Duration, Duration)> = Vec::new();
            for (pause, cost) in events {
                now = pace.allowed_at(now + ms(pause));
                prop_assert_eq!(pace.allowed_at(now), now, "it may be read at the allowed time");
                pace.spent(now, ms(cost));
                readings.push((now, ms(cost)));
            }
            for (first, (begin, _)) in readings.iter().enumerate() {
                let mut sum = Duration::ZERO;
                let mut highest = Duration::ZERO;
                for (end, cost) in &readings[first..] {
                    sum += *cost;
                    highest = highest.max(*cost);
                    let window = end.saturating_sub(*begin);
                    prop_assert!(sum <= BUCKET + window * 5 / 100 + highest, "{sum:?} in {window:?}");
                    prop_assert!(sum <= BUCKET + window * PERCENT / 100 + highest + ms(1), "{sum:?} in {window:?}");
                }
            }
        }

        /// Permanent events and readings of the same cost: neither below nor above the limit.
        #[test]
        fn permanent_events_use_exactly_their_share(cost in 5_u64..2_000) {
            let mut pace = Pace::default();
            let (mut now, mut sum) = (Duration::ZERO, Duration::ZERO);
            let end = Duration::from_mins(10);
            while now < end {
                pace.spent(now, ms(cost));
                sum += ms(cost);
                now = pace.allowed_at(now);
            }
            let share = end * PERCENT / 100;
            prop_assert!(sum <= share + BUCKET + ms(cost), "{sum:?}");
            prop_assert!(sum + ms(cost) >= share, "{sum:?}");
        }
    }
}
