//! The CPU time of this process.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// The CPU time that all threads of this process have used.
pub fn process_cpu_time() -> Duration {
    // Every Linux has this clock. If it could not be read, readings of the network would count as free of cost, no
    // more.
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_with_the_work_of_the_process() {
        let before = process_cpu_time();
        let mut sum = 0_u64;
        while process_cpu_time() < before + Duration::from_millis(5) {
            sum = std::hint::black_box(sum.wrapping_mul(31) + 1);
        }
        assert!(process_cpu_time() > before);
    }
}
