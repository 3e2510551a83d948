//! Handlers are killed at any instant, most of them in the middle of a change.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result};
use tokio::time::sleep;

use super::{
    random::SeededRandom,
    recorded_rollout::{RecordedRollout, RolloutParameters},
};

const KILLS: usize = 24;
/// Fewer than the attempts of a node, because each kill ends one.
const MAX_KILLS_OF_NODE: u64 = 3;
const SEED: u64 = 4;
const LIMIT: Duration = Duration::from_mins(2);

#[tokio::test(flavor = "multi_thread")]
async fn handlers_can_be_killed_at_any_instant() -> Result<()> {
    println!("seed {SEED}: {KILLS} kills");
    let mut random = SeededRandom::from_seed(SEED);
    let mut rollout = RecordedRollout::new(RolloutParameters {
        nodes: 20,
        max_unavailable: 4,
        apply: Duration::from_millis(400),
        lease: None,
    })
    .await?;
    let _controller = rollout.cluster.controllers.start("a")?;
    let mut killed = BTreeMap::new();
    let mut kills = 0;
    while kills < KILLS {
        rollout.next_generation().await?;
        let mut of_generation = BTreeMap::new();
        while kills < KILLS && !rollout.is_done_within(random.time_below(Duration::from_millis(300))).await {
            let node = victim(&rollout, &mut random);
            let times = of_generation.entry(node.clone()).or_insert(0);
            if *times < MAX_KILLS_OF_NODE {
                *times += 1;
                kills += 1;
                *killed.entry(node.clone()).or_insert(0) += 1;
                kill(&mut rollout, &node, random.time_below(Duration::from_millis(200))).await?;
            }
        }
        rollout.until_available(LIMIT).await?;
    }
    println!("killed: {killed:?}");
    rollout.check(&killed).await?;
    Ok(())
}

/// A node; three times out of four one that is being changed.
fn victim(rollout: &RecordedRollout, random: &mut SeededRandom) -> String {
    let busy: Vec<String> = rollout.cluster.fleet.concurrent_changes.current().into_iter().collect();
    if busy.is_empty() || random.below(4) == 0 {
        let all: Vec<&String> = rollout.cluster.fleet.nodes.keys().collect();
        all[random.below(all.len())].clone()
    } else {
        busy[random.below(busy.len())].clone()
    }
}

async fn kill(rollout: &mut RecordedRollout, node: &str, pause: Duration) -> Result<()> {
    let node = rollout.cluster.fleet.nodes.get_mut(node).context("no such node")?;
    node.kill().await;
    sleep(pause).await;
    node.start().await
}
