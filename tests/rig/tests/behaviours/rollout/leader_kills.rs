//! Controllers that lead are killed or frozen at any instant.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Result;
use nix::sys::signal::Signal;

use super::{
    chance::Chance,
    course::{Conditions, Course},
    pair::Pair,
};

/// As many as fit into a test that runs every day; a longer run says how many it wants.
const KILLS: usize = 12;
const KILLS_VARIABLE: &str = "KNMSTATE_TEST_KILLS";
const SEED_VARIABLE: &str = "KNMSTATE_TEST_SEED";
const LIMIT: Duration = Duration::from_mins(1);

/// One in this many is frozen instead, and goes on when another one leads.
const FROZEN: usize = 5;

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_can_be_killed_at_any_instant() -> Result<()> {
    let kills = number(KILLS_VARIABLE).unwrap_or(KILLS);
    let seed = number(SEED_VARIABLE).unwrap_or(20_261_116);
    println!("seed {seed}: {kills} kills");
    let mut chance = Chance::from_seed(u64::try_from(seed)?);
    let mut course = Course::new(Conditions {
        nodes: 20,
        at_once: 2,
        apply: Duration::from_millis(350),
        lease: Some(Duration::from_secs(2)),
    })
    .await?;
    let mut pair = Pair::start(&course.cluster)?;
    let mut leader = pair.leader(LIMIT).await?;
    let mut killed = 0;
    let mut instants = Vec::new();
    while killed < kills {
        course.next_generation().await?;
        // Any instant of the reign of a leader: while it reads the world, decides, writes, or waits.
        while killed < kills && !course.is_over_after(chance.time_below(Duration::from_millis(1500))).await {
            instants.push((course.generation, course.done()));
            killed += 1;
            leader = if killed % FROZEN == 0 {
                pair.signal(&leader, Signal::SIGSTOP)?;
                let successor = pair.successor(&leader, LIMIT).await?;
                pair.signal(&leader, Signal::SIGCONT)?;
                successor
            } else {
                pair.kill(&leader)?;
                pair.start_again(&leader)?;
                pair.successor(&leader, LIMIT).await?
            };
        }
        course.until_over(LIMIT).await?;
    }
    println!("seed {seed}: killed at (generation, nodes done): {instants:?}");
    course.check(&BTreeMap::new()).await?;
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "whoever runs a long test says how long")]
fn number(variable: &str) -> Option<usize> {
    std::env::var(variable).ok()?.parse().ok()
}
