//! Pings a node continuously from the lab's network.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use rig::{
    Lab,
    process::{Invocation, Process},
    wait,
};

use super::LIMIT;

/// Five times a second; ends when dropped.
pub(super) struct Pings {
    _process: Process,
    log: PathBuf,
}

/// The echo replies so far.
#[derive(Debug, PartialEq)]
pub(super) struct Echoes {
    pub(super) count: usize,
    /// The longest time without one, in seconds.
    pub(super) longest_gap: f64,
}

impl Pings {
    pub(super) fn start(lab: &Lab, address: &str) -> Result<Self> {
        let log = lab.directory().join("pings.log");
        // -D: the time of each echo.
        let ping = Invocation::new(["ping", "-n", "-D", "-i", "0.2", address]);
        let process = lab.network().enter(ping).start("ping", &log)?;
        Ok(Self { _process: process, log })
    }

    /// Waits for so many more echoes. Returns all so far.
    pub(super) async fn more(&self, count: usize) -> Result<Echoes> {
        let enough = self.so_far()?.count + count;
        wait::until(LIMIT, &format!("{count} more echoes"), async || {
            let echoes = self.so_far()?;
            ensure!(echoes.count >= enough, "{echoes:?}");
            Ok(echoes)
        })
        .await
    }

    fn so_far(&self) -> Result<Echoes> {
        Ok(read(&std::fs::read_to_string(&self.log)?))
    }
}

fn read(log: &str) -> Echoes {
    let times: Vec<f64> = log
        .lines()
        .filter(|line| line.contains("bytes from"))
        .filter_map(|line| line.strip_prefix('[')?.split_once(']')?.0.parse().ok())
        .collect();
    let longest_gap = times.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max);
    Echoes { count: times.len(), longest_gap }
}

#[test]
fn the_longest_time_without_an_echo_is_found() {
    let log = "PING 10.98.0.11 (10.98.0.11) 56(84) bytes of data.\n\
               [100.0] 64 bytes from 10.98.0.11: icmp_seq=1 ttl=64 time=0.5 ms\n\
               [100.25] 64 bytes from 10.98.0.11: icmp_seq=2 ttl=64 time=0.5 ms\n\
               [101.0] From 10.98.0.1 icmp_seq=5 Destination Host Unreachable\n\
               [102.25] 64 bytes from 10.98.0.11: icmp_seq=9 ttl=64 time=0.5 ms\n";
    assert_eq!(read(log), Echoes { count: 3, longest_gap: 2.0 });
}
