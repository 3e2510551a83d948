//! How long nobody leads when a leader goes.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Result, ensure};
use rig::wait;
use tokio::time::Instant;

use super::{
    course::{Conditions, Course},
    pair::{Life, Pair},
};

const LIMIT: Duration = Duration::from_mins(1);

/// From the end of the former leader to the first permit of the next one.
#[tokio::test(flavor = "multi_thread")]
async fn another_controller_goes_on_soon() -> Result<()> {
    let conditions = Conditions { nodes: 20, at_once: 2, apply: Duration::from_millis(300), lease: None };
    let mut course = Course::new(conditions).await?;
    let mut pair = Pair::start(&course.cluster)?;

    let leader = leader_at_work(&mut course, &pair).await?;
    let asked = Instant::now();
    pair.stop(&leader).await?;
    let granted = until_next_permit(&course, asked).await?;
    println!("asked to end: the next one grants after {granted:?}");
    ensure!(granted < Duration::from_secs(3), "it took {granted:?}");
    pair.start_again(&leader)?;
    course.until_over(LIMIT).await?;

    let leader = leader_at_work(&mut course, &pair).await?;
    let killed = Instant::now();
    pair.kill(&leader)?;
    let granted = until_next_permit(&course, killed).await?;
    println!("killed: the next one grants after {granted:?}");
    ensure!(granted < Duration::from_secs(20), "it took {granted:?}");
    course.until_over(LIMIT).await?;
    course.check(&BTreeMap::new()).await?;
    Ok(())
}

/// In the middle of a new rollout.
async fn leader_at_work(course: &mut Course, pair: &Pair) -> Result<Life> {
    course.next_generation().await?;
    course.until_done(3, LIMIT).await?;
    pair.leader(LIMIT).await
}

/// How long after `since` a node was permitted that was not when this was asked: the former leader is gone by then.
async fn until_next_permit(course: &Course, since: Instant) -> Result<Duration> {
    let permitted = || course.recorder.so_far().permitted(course.generation).len();
    let so_far = permitted();
    wait::until(LIMIT, "another permit", async || {
        ensure!(permitted() > so_far, "still {so_far} permitted");
        Ok(())
    })
    .await?;
    Ok(since.elapsed())
}
