//! Controllers that lead are killed or frozen at any instant.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Result;
use nix::sys::signal::Signal;

use super::{
    controller_pair::ControllerPair,
    random::SeededRandom,
    recorded_rollout::{RecordedRollout, RolloutParameters},
};

/// As many as fit into a daily test; the variable sets another number.
const KILLS: usize = 12;
const KILLS_VARIABLE: &str = "KNMSTATE_TEST_KILLS";
const SEED_VARIABLE: &str = "KNMSTATE_TEST_SEED";
const LIMIT: Duration = Duration::from_mins(1);

/// One in this many is frozen instead, and resumes when another one leads.
const FROZEN: usize = 5;

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_can_be_killed_at_any_instant() -> Result<()> {
    let kills = number(KILLS_VARIABLE).unwrap_or(KILLS);
    let seed = number(SEED_VARIABLE).unwrap_or(20_261_116);
    println!("seed {seed}: {kills} kills");
    let mut random = SeededRandom::from_seed(u64::try_from(seed)?);
    let mut rollout = RecordedRollout::new(RolloutParameters {
        nodes: 20,
        max_unavailable: 2,
        apply: Duration::from_millis(350),
        lease: Some(Duration::from_secs(2)),
    })
    .await?;
    let mut pair = ControllerPair::start(&rollout.cluster)?;
    let mut leader = pair.leader(LIMIT).await?;
    let mut killed = 0;
    let mut instants = Vec::new();
    while killed < kills {
        rollout.next_generation().await?;
        // At any instant: while the leader reads the cluster's state, decides, writes or waits.
        while killed < kills && !rollout.is_done_within(random.time_below(Duration::from_millis(1500))).await
        {
            instants.push((rollout.generation, rollout.done()));
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
        rollout.until_available(LIMIT).await?;
    }
    println!("seed {seed}: killed at (generation, nodes done): {instants:?}");
    rollout.check(&BTreeMap::new()).await?;
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "the length of a long run is set by the environment")]
fn number(variable: &str) -> Option<usize> {
    std::env::var(variable).ok()?.parse().ok()
}
