//! What this process has cost so far.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// The CPU time that all threads of this process have used.
pub fn process() -> Duration {
    // It cannot fail for a clock that every Linux has; if it does, readings seem to be free and nothing else is wrong.
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_moves_with_the_work_that_is_done() {
        let before = process();
        let mut sum = 0_u64;
        while process() < before + Duration::from_millis(5) {
            sum = std::hint::black_box(sum.wrapping_mul(31) + 1);
        }
        assert!(process() > before);
    }
}
