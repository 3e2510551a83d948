//! Handlers are killed at any instant, most of them in the middle of a change.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result};
use tokio::time::sleep;

use super::{
    chance::Chance,
    course::{Conditions, Course},
};

const KILLS: usize = 24;
/// Fewer than the attempts of a node, which ends one with each kill.
const MOST_OF_ONE: u64 = 3;
const SEED: u64 = 4;
const LIMIT: Duration = Duration::from_mins(2);

#[tokio::test(flavor = "multi_thread")]
async fn handlers_can_be_killed_at_any_instant() -> Result<()> {
    println!("seed {SEED}: {KILLS} kills");
    let mut chance = Chance::from_seed(SEED);
    let mut course =
        Course::new(Conditions { nodes: 20, at_once: 4, apply: Duration::from_millis(400), lease: None })
            .await?;
    let _controller = course.cluster.controllers.start("a")?;
    let mut killed = BTreeMap::new();
    let mut kills = 0;
    while kills < KILLS {
        course.next_generation().await?;
        let mut of_generation = BTreeMap::new();
        while kills < KILLS && !course.is_over_after(chance.time_below(Duration::from_millis(300))).await {
            let node = victim(&course, &mut chance);
            let times = of_generation.entry(node.clone()).or_insert(0);
            if *times < MOST_OF_ONE {
                *times += 1;
                kills += 1;
                *killed.entry(node.clone()).or_insert(0) += 1;
                kill(&mut course, &node, chance.time_below(Duration::from_millis(200))).await?;
            }
        }
        course.until_over(LIMIT).await?;
    }
    println!("killed: {killed:?}");
    course.check(&killed).await?;
    Ok(())
}

/// One that is in the middle of a change, three times out of four.
fn victim(course: &Course, chance: &mut Chance) -> String {
    let busy: Vec<String> = course.cluster.fleet.overlap.now().into_iter().collect();
    if busy.is_empty() || chance.below(4) == 0 {
        let all: Vec<&String> = course.cluster.fleet.members.keys().collect();
        all[chance.below(all.len())].clone()
    } else {
        busy[chance.below(busy.len())].clone()
    }
}

async fn kill(course: &mut Course, node: &str, pause: Duration) -> Result<()> {
    let member = course.cluster.fleet.members.get_mut(node).context("no such node")?;
    member.kill().await;
    sleep(pause).await;
    member.start().await
}
