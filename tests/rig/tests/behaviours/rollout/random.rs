//! Random numbers that can be repeated: the same seed gives the same sequence.

use std::time::Duration;

/// A generator of pseudorandom numbers (SplitMix64).
#[derive(Debug)]
pub struct SeededRandom(u64);

impl SeededRandom {
    pub const fn from_seed(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.next() % end).unwrap_or_default()
    }

    /// A time below `end`, in whole milliseconds.
    pub fn time_below(&mut self, end: Duration) -> Duration {
        let milliseconds = usize::try_from(end.as_millis()).unwrap_or(usize::MAX);
        Duration::from_millis(self.below(milliseconds).try_into().unwrap_or_default())
    }

    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
