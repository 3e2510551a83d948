//! The API server or its store goes away in the middle of a rollout.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Result;
use tokio::time::sleep;

use super::{
    course::{Conditions, Course},
    pair::Pair,
};

const NODES: usize = 20;
const LIMIT: Duration = Duration::from_mins(3);

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_survives_crashes_of_the_api_server() -> Result<()> {
    let (mut course, _pair) = in_the_middle_of_a_rollout().await?;
    for done in [NODES / 4, NODES / 2] {
        course.until_done(done, LIMIT).await?;
        course.cluster.api.crash();
        course.cluster.api.start_again().await?;
    }
    finish(&mut course).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_survives_a_store_that_hangs() -> Result<()> {
    let (mut course, pair) = in_the_middle_of_a_rollout().await?;
    let before = pair.leader(LIMIT).await?;
    course.cluster.api.freeze_etcd()?;
    sleep(Duration::from_secs(15)).await;
    course.cluster.api.resume_etcd()?;
    finish(&mut course).await?;
    println!("led by {before:?} before and {:?} after", pair.leader(LIMIT).await?);
    Ok(())
}

async fn in_the_middle_of_a_rollout() -> Result<(Course, Pair)> {
    let conditions = Conditions { nodes: NODES, at_once: 3, apply: Duration::from_millis(500), lease: None };
    let mut course = Course::new(conditions).await?;
    let pair = Pair::start(&course.cluster)?;
    course.next_generation().await?;
    course.until_done(NODES / 4, LIMIT).await?;
    Ok((course, pair))
}

/// A node whose way to the API server was cut in the middle of a change takes it back and tries again: as often as it
/// is allowed to.
async fn finish(course: &mut Course) -> Result<()> {
    let done = course.done();
    println!("{done} of {NODES} were done when everything was back");
    course.until_over(LIMIT).await?;
    let again: BTreeMap<String, u64> =
        course.cluster.fleet.members.keys().map(|name| (name.clone(), 4)).collect();
    let changes = course.cluster.fleet.members.values().map(|member| member.machine.checkpoints_made());
    println!("{} changes of {NODES} nodes", changes.sum::<u64>());
    course.check(&again).await?;
    Ok(())
}
