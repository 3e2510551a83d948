//! The time without a leader after the end of a leader.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Result, ensure};
use rig::wait;
use tokio::time::Instant;

use super::{
    controller_pair::{ControllerPair, ControllerProcess},
    recorded_rollout::{RecordedRollout, RolloutParameters},
};

const LIMIT: Duration = Duration::from_mins(1);

/// Measures from the end of a leader to the first permit of the next one.
#[tokio::test(flavor = "multi_thread")]
async fn another_controller_takes_over_quickly() -> Result<()> {
    let parameters =
        RolloutParameters { nodes: 20, max_unavailable: 2, apply: Duration::from_millis(300), lease: None };
    let mut rollout = RecordedRollout::new(parameters).await?;
    let mut pair = ControllerPair::start(&rollout.cluster)?;

    let leader = leader_during_rollout(&mut rollout, &pair).await?;
    let asked = Instant::now();
    pair.stop(&leader).await?;
    let permitted_after = until_next_permit(&rollout, asked).await?;
    println!("asked to end: the next one permits after {permitted_after:?}");
    ensure!(permitted_after < Duration::from_secs(3), "it took {permitted_after:?}");
    pair.start_again(&leader)?;
    rollout.until_available(LIMIT).await?;

    let leader = leader_during_rollout(&mut rollout, &pair).await?;
    let killed = Instant::now();
    pair.kill(&leader)?;
    let permitted_after = until_next_permit(&rollout, killed).await?;
    println!("killed: the next one permits after {permitted_after:?}");
    ensure!(permitted_after < Duration::from_secs(20), "it took {permitted_after:?}");
    rollout.until_available(LIMIT).await?;
    rollout.check(&BTreeMap::new()).await?;
    Ok(())
}

/// The leader in the middle of a new rollout.
async fn leader_during_rollout(
    rollout: &mut RecordedRollout,
    pair: &ControllerPair,
) -> Result<ControllerProcess> {
    rollout.next_generation().await?;
    rollout.until_done(3, LIMIT).await?;
    pair.leader(LIMIT).await
}

/// Waits until another node gets a permit, when the former leader has ended. Returns the time from `since`.
async fn until_next_permit(rollout: &RecordedRollout, since: Instant) -> Result<Duration> {
    let permitted = || rollout.recorder.so_far().permitted(rollout.generation).len();
    let so_far = permitted();
    wait::until(LIMIT, "another permit", async || {
        ensure!(permitted() > so_far, "still {so_far} permitted");
        Ok(())
    })
    .await?;
    Ok(since.elapsed())
}
