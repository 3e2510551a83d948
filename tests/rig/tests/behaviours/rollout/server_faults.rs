//! Failures of the API server or of etcd during a rollout.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Result;
use tokio::time::sleep;

use super::{
    controller_pair::ControllerPair,
    recorded_rollout::{RecordedRollout, RolloutParameters},
};

const NODES: usize = 20;
const LIMIT: Duration = Duration::from_mins(3);

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_survives_crashes_of_the_api_server() -> Result<()> {
    let (mut rollout, _pair) = in_the_middle_of_a_rollout().await?;
    for done in [NODES / 4, NODES / 2] {
        rollout.until_done(done, LIMIT).await?;
        rollout.cluster.api.crash();
        rollout.cluster.api.start_again().await?;
    }
    finish(&mut rollout).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_survives_an_etcd_that_hangs() -> Result<()> {
    let (mut rollout, pair) = in_the_middle_of_a_rollout().await?;
    let before = pair.leader(LIMIT).await?;
    rollout.cluster.api.freeze_etcd()?;
    sleep(Duration::from_secs(15)).await;
    rollout.cluster.api.resume_etcd()?;
    finish(&mut rollout).await?;
    println!("led by {before:?} before and {:?} after", pair.leader(LIMIT).await?);
    Ok(())
}

async fn in_the_middle_of_a_rollout() -> Result<(RecordedRollout, ControllerPair)> {
    let parameters = RolloutParameters {
        nodes: NODES,
        max_unavailable: 3,
        apply: Duration::from_millis(500),
        lease: None,
    };
    let mut rollout = RecordedRollout::new(parameters).await?;
    let pair = ControllerPair::start(&rollout.cluster)?;
    rollout.next_generation().await?;
    rollout.until_done(NODES / 4, LIMIT).await?;
    Ok((rollout, pair))
}

/// A node that lost the API server during a change rolls it back and tries again, as often as it has attempts.
async fn finish(rollout: &mut RecordedRollout) -> Result<()> {
    let done = rollout.done();
    println!("{done} of {NODES} were done when everything was back");
    rollout.until_available(LIMIT).await?;
    let retries: BTreeMap<String, u64> =
        rollout.cluster.fleet.nodes.keys().map(|name| (name.clone(), 4)).collect();
    let changes = rollout.cluster.fleet.nodes.values().map(|node| node.machine.checkpoints_made());
    println!("{} changes of {NODES} nodes", changes.sum::<u64>());
    rollout.check(&retries).await?;
    Ok(())
}
