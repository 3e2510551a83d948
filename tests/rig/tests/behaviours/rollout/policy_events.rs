//! Policies that are changed or deleted during a rollout, or while there is no leader.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result, ensure};
use knmstate_api::names::ALLOW_UPDATE_IN_PROGRESS_ANNOTATION;
use knmstate_host::Operation;
use knmstate_simulated_host::{Fault, Strikes};
use kube::{
    ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use rig::{fleet::FleetNode, wait};
use serde_json::json;
use tokio::time::Instant;

use super::{
    recorded_rollout::{POLICY, RecordedRollout, RolloutParameters, vlan},
    recording::is_in_progress,
};

const NODES: usize = 8;
const MAX_UNAVAILABLE: usize = 2;
const APPLY: Duration = Duration::from_secs(1);
const LIMIT: Duration = Duration::from_mins(1);
/// How soon the enactments of a deleted policy are deleted, too.
const SHORT_LIMIT: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_can_be_changed_and_deleted_at_any_time() -> Result<()> {
    let parameters =
        RolloutParameters { nodes: NODES, max_unavailable: MAX_UNAVAILABLE, apply: APPLY, lease: None };
    let mut rollout = RecordedRollout::new(parameters).await?;
    let controller = rollout.cluster.controllers.start("a")?;
    changed_in_the_middle(&mut rollout).await.context("a policy that is changed during its rollout")?;
    removed_in_the_middle(&mut rollout).await.context("a policy that is deleted during its rollout")?;

    start_over(&mut rollout).await?;
    controller.stop().await?;
    rollout.cluster.policies.delete(POLICY, &DeleteParams::default()).await?;
    let there = rollout.cluster.enactments.list(&ListParams::default()).await?.items.len();
    ensure!(there == NODES, "{there} enactments while there is no controller");
    let _controller = rollout.cluster.controllers.start("b")?;
    until_nothing_is_left(&rollout).await.context("a policy that is deleted while there is no leader")
}

/// Nodes that still wait never get a permit for the former generation.
async fn changed_in_the_middle(rollout: &mut RecordedRollout) -> Result<()> {
    for node in rollout.cluster.fleet.nodes.values() {
        set_change_time(node, Duration::from_secs(8));
    }
    rollout.next_generation().await?;
    until_in_progress(rollout).await?;
    let change = |annotations| {
        Patch::Merge(json!({"metadata": {"annotations": annotations}, "spec": rollout.spec(2)}))
    };
    let policies = rollout.cluster.policies.clone();
    let refused = policies.patch(POLICY, &PatchParams::default(), &change(json!({}))).await;
    let refused = refused.err().context("a policy in progress was changed")?.to_string();
    ensure!(refused.contains("policy bond is still in progress"), "{refused}");
    let allowed = json!({ALLOW_UPDATE_IN_PROGRESS_ANNOTATION: "true"});
    policies.patch(POLICY, &PatchParams::default(), &change(allowed)).await?;
    rollout.generation = 2;
    for node in rollout.cluster.fleet.nodes.values() {
        set_change_time(node, APPLY);
    }
    rollout.until_available(LIMIT).await?;

    let recording = rollout.recorder.caught_up().await?;
    let (old, new) = (recording.permitted(1), recording.permitted(2));
    ensure!(old.len() == MAX_UNAVAILABLE, "these were permitted the first generation: {old:?}");
    ensure!(new.len() == NODES, "only these were permitted the second one: {new:?}");
    recording.no_permit_was_revoked()?;
    recording.each_was_created_once()?;
    let (in_progress, overlap) =
        (recording.max_in_progress(), rollout.cluster.fleet.concurrent_changes.max());
    ensure!(
        in_progress == MAX_UNAVAILABLE && overlap == MAX_UNAVAILABLE,
        "{in_progress} in progress, {overlap} changed at once"
    );
    for (name, node) in &rollout.cluster.fleet.nodes {
        let state = node.machine.state();
        ensure!(state.interface(&vlan(2)).is_some(), "{name} has not the second generation");
        ensure!(
            old.contains(name) || state.interface(&vlan(1)).is_none(),
            "{name} has applied the first generation"
        );
    }
    Ok(())
}

/// Sets how long the node takes for a change that it begins from now on.
fn set_change_time(node: &FleetNode, time: Duration) {
    node.machine.clear_faults();
    node.machine.arm(Operation::Begin, Strikes::Always, Fault::Delay(time));
}

async fn removed_in_the_middle(rollout: &mut RecordedRollout) -> Result<()> {
    rollout.cluster.policies.delete(POLICY, &DeleteParams::default()).await?;
    until_nothing_is_left(rollout).await?;
    // A new policy with the same name starts from the beginning.
    rollout.generation = 0;
    let spec = rollout.spec(3);
    rollout.cluster.apply(POLICY, &spec).await?;
    until_in_progress(rollout).await?;
    rollout.cluster.policies.delete(POLICY, &DeleteParams::default()).await?;
    until_nothing_is_left(rollout).await
}

async fn start_over(rollout: &mut RecordedRollout) -> Result<()> {
    let spec = rollout.spec(4);
    // Changes that began before the last policy was deleted have to end first.
    wait::until(LIMIT, "the machines to finish their changes", async || {
        let now = rollout.cluster.fleet.concurrent_changes.current();
        ensure!(now.is_empty(), "{now:?} are being changed");
        Ok(())
    })
    .await?;
    rollout.cluster.apply(POLICY, &spec).await?;
    rollout.generation = 1;
    rollout.until_available(LIMIT).await
}

async fn until_in_progress(rollout: &RecordedRollout) -> Result<()> {
    wait::until(LIMIT, "nodes to be in progress", async || {
        let last = rollout.recorder.so_far().last();
        let in_progress = last.values().filter(|one| is_in_progress(one)).count();
        ensure!(last.len() == NODES && in_progress == MAX_UNAVAILABLE, "{in_progress} of {}", last.len());
        Ok(())
    })
    .await
}

async fn until_nothing_is_left(rollout: &RecordedRollout) -> Result<()> {
    let began = Instant::now();
    wait::until(SHORT_LIMIT, "all enactments to be deleted", async || {
        let left = rollout.cluster.enactments.list(&ListParams::default()).await?;
        let left: BTreeMap<_, _> = left.iter().map(|one| (one.name_any(), one.resource_version())).collect();
        ensure!(left.is_empty(), "{left:?}");
        Ok(())
    })
    .await?;
    println!("deleted after {:?}", began.elapsed());
    Ok(())
}
