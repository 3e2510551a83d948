//! The start times of the parts of the rig. They depend on the load of the machine, so compare the last column: each
//! part relative to an empty lab in the same run.

use std::time::{Duration, Instant};

use anyhow::Result;
use rig::Lab;

const ROUNDS: usize = 5;

#[tokio::main]
async fn main() -> Result<()> {
    // Not measured: the first start reads programs from disk.
    together().await?;
    let mut rows = Vec::new();
    rows.push(("lab", measure(lab).await?));
    rows.push(("lab + NmNode", measure(node).await?));
    rows.push(("lab + ApiServer", measure(server).await?));
    rows.push(("lab + ApiServer + 3 NmNodes, at once", measure(together).await?));
    println!("{:38} {:>8} {:>8} {:>8} {:>8}", "start and removal", "min", "median", "max", "× lab");
    let unit = median(&rows[0].1).as_secs_f64();
    for (name, times) in &rows {
        let (min, max) = (times[0].as_secs_f64(), times[times.len() - 1].as_secs_f64());
        let middle = median(times).as_secs_f64();
        println!("{name:38} {min:7.2}s {middle:7.2}s {max:7.2}s {:8.1}", middle / unit);
    }
    Ok(())
}

async fn lab() -> Result<()> {
    Lab::new().await.map(drop)
}

async fn node() -> Result<()> {
    let lab = Lab::new().await?;
    lab.nm_node("node1").start().await.map(drop)
}

async fn server() -> Result<()> {
    let lab = Lab::new().await?;
    lab.api_server().start().await.map(drop)
}

async fn together() -> Result<()> {
    let lab = Lab::new().await?;
    tokio::try_join!(
        lab.api_server().start(),
        lab.nm_node("node1").start(),
        lab.nm_node("node2").start(),
        lab.nm_node("node3").start(),
    )
    .map(drop)
}

/// Returns sorted times, of the start and the removal.
async fn measure(start: impl AsyncFn() -> Result<()>) -> Result<Vec<Duration>> {
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let begin = now();
        start().await?;
        times.push(begin.elapsed());
    }
    times.sort();
    Ok(times)
}

fn median(sorted: &[Duration]) -> Duration {
    sorted[sorted.len() / 2]
}

#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
fn now() -> Instant {
    Instant::now()
}
