//! How often the network may be read when it never stops changing.
//!
//! A reading costs more the more interfaces there are (13 ms with 3, a second with 300), so a fixed interval would be
//! too slow for one node and too dear for another. Readings are paid for in CPU time instead, out of a bucket that
//! fills slowly. After a quiet time it is full, and the first reading may be made at once.

use std::time::Duration;

/// How much CPU time can be saved up.
pub const BUCKET: Duration = Duration::from_millis(500);

/// How many hundredths of one core flow into the bucket unless somebody says otherwise. The whole process is to stay
/// below 5 in any minute, and a minute can begin with a full bucket and end with a reading of 600 interfaces (1.2 s,
/// which is 2 of the 5); noticing that something changed has to be paid for, too.
pub const PERCENT: u32 = 2;

/// The bucket.
#[derive(Clone, Debug)]
pub struct Pace {
    percent: u32,
    /// Nanoseconds of CPU time; less than nothing when the last reading was dearer than expected.
    level: i128,
    /// When the level was that, since the start.
    at: Duration,
    /// What the last reading cost; the next one will not be much cheaper.
    last: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self::of(PERCENT)
    }
}

impl Pace {
    /// One for which so many hundredths of a core flow in, at least one.
    pub fn of(percent: u32) -> Self {
        Self { percent: percent.max(1), level: nanoseconds(BUCKET), at: Duration::ZERO, last: Duration::ZERO }
    }

    /// From when on the network may be read. Times are since the start, and never go back.
    pub fn allowed_at(&self, now: Duration) -> Duration {
        let missing = nanoseconds(self.last.min(BUCKET)) - self.level(now);
        if missing <= 0 {
            return now;
        }
        let wait = missing.saturating_mul(100).div_euclid(i128::from(self.percent)) + 1;
        now.saturating_add(Duration::from_nanos(u64::try_from(wait).unwrap_or(u64::MAX)))
    }

    /// A reading has just been made, and cost this much.
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
    fn the_dearer_a_reading_the_longer_the_wait_for_the_next() {
        let mut pace = Pace::default();
        // Twenty at 13 ms, one right after the other, are no storm.
        for _ in 0..20 {
            assert_eq!(pace.allowed_at(ms(100)), ms(100));
            pace.spent(ms(100), ms(13));
        }
        // With 300 interfaces: after the bucket is empty, as long as 2 % of the time need to pay for one.
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
    fn a_reading_that_cost_a_day_is_waited_for_without_overflow() {
        let mut pace = Pace::default();
        pace.spent(Duration::ZERO, Duration::MAX);
        assert!(pace.allowed_at(ms(1)) > Duration::from_hours(24));
    }

    proptest! {
        /// However events come and whatever readings cost: in any window the bucket, what flows in, and one reading.
        #[test]
        fn no_window_costs_more_than_its_share(
            events in prop::collection::vec((0_u64..20_000, 0_u64..3_000), 1..80)
        ) {
            let mut pace = Pace::default();
            let mut now = Duration::ZERO;
            let mut readings: Vec<(Duration, Duration)> = Vec::new();
            for (pause, cost) in events {
                now = pace.allowed_at(now + ms(pause));
                prop_assert_eq!(pace.allowed_at(now), now, "waiting as long as said is enough");
                pace.spent(now, ms(cost));
                readings.push((now, ms(cost)));
            }
            for (first, (begin, _)) in readings.iter().enumerate() {
                let mut sum = Duration::ZERO;
                let mut dearest = Duration::ZERO;
                for (end, cost) in &readings[first..] {
                    sum += *cost;
                    dearest = dearest.max(*cost);
                    let window = end.saturating_sub(*begin);
                    prop_assert!(sum <= BUCKET + window * 5 / 100 + dearest, "{sum:?} in {window:?}");
                    prop_assert!(sum <= BUCKET + window * PERCENT / 100 + dearest + ms(1), "{sum:?} in {window:?}");
                }
            }
        }

        /// A storm with readings that cost the same: neither starved, nor over the limit.
        #[test]
        fn a_storm_uses_its_share_and_no_more(cost in 5_u64..2_000) {
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
