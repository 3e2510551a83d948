//! Policies that change or go in the middle of a rollout, or while nobody leads.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result, ensure};
use knmstate_api::names::ALLOW_UPDATE_IN_PROGRESS_ANNOTATION;
use knmstate_host::{
    Operation,
    simulated::{Fault, Strikes},
};
use kube::{
    ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use rig::{fleet::Member, wait};
use serde_json::json;
use tokio::time::Instant;

use super::{
    course::{Conditions, Course, POLICY, vlan},
    recording::is_at_work,
};

const NODES: usize = 8;
const AT_ONCE: usize = 2;
const APPLY: Duration = Duration::from_secs(1);
const LIMIT: Duration = Duration::from_mins(1);
/// How soon the enactments of a policy that is gone are gone, too.
const SOON: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_can_change_and_go_at_any_time() -> Result<()> {
    let conditions = Conditions { nodes: NODES, at_once: AT_ONCE, apply: APPLY, lease: None };
    let mut course = Course::new(conditions).await?;
    let controller = course.cluster.controllers.start("a")?;
    changed_in_the_middle(&mut course)
        .await
        .context("a policy that is changed in the middle of its rollout")?;
    removed_in_the_middle(&mut course)
        .await
        .context("a policy that is removed in the middle of its rollout")?;

    start_over(&mut course).await?;
    controller.stop().await?;
    course.cluster.policies.delete(POLICY, &DeleteParams::default()).await?;
    let there = course.cluster.enactments.list(&ListParams::default()).await?.items.len();
    ensure!(there == NODES, "{there} enactments before anybody could notice");
    let _controller = course.cluster.controllers.start("b")?;
    until_nothing_is_left(&course).await.context("a policy that is removed while nobody leads")
}

/// Nodes that still wait never hear of the generation before.
async fn changed_in_the_middle(course: &mut Course) -> Result<()> {
    for member in course.cluster.fleet.members.values() {
        take(member, Duration::from_secs(8));
    }
    course.next_generation().await?;
    until_at_work(course).await?;
    let change =
        |annotations| Patch::Merge(json!({"metadata": {"annotations": annotations}, "spec": course.spec(2)}));
    let policies = course.cluster.policies.clone();
    let refused = policies.patch(POLICY, &PatchParams::default(), &change(json!({}))).await;
    let refused = refused.err().context("a policy in progress was changed")?.to_string();
    ensure!(refused.contains("policy bond is still in progress"), "{refused}");
    let allowed = json!({ALLOW_UPDATE_IN_PROGRESS_ANNOTATION: "true"});
    policies.patch(POLICY, &PatchParams::default(), &change(allowed)).await?;
    course.generation = 2;
    for member in course.cluster.fleet.members.values() {
        take(member, APPLY);
    }
    course.until_over(LIMIT).await?;

    let recording = course.recorder.caught_up().await?;
    let (old, new) = (recording.permitted(1), recording.permitted(2));
    ensure!(old.len() == AT_ONCE, "these have heard of the first generation: {old:?}");
    ensure!(new.len() == NODES, "only these were permitted the second one: {new:?}");
    recording.no_permit_was_taken_back()?;
    recording.each_was_made_once()?;
    let (at_work, overlap) = (recording.most_at_work(), course.cluster.fleet.overlap.most());
    ensure!(at_work == AT_ONCE && overlap == AT_ONCE, "{at_work} at work, {overlap} changed at once");
    for (name, member) in &course.cluster.fleet.members {
        let state = member.machine.state();
        ensure!(state.interface(&vlan(2)).is_some(), "{name} has not the second generation");
        ensure!(
            old.contains(name) || state.interface(&vlan(1)).is_none(),
            "{name} has carried out the first generation"
        );
    }
    Ok(())
}

/// The node takes so long for a change that it begins from now on.
fn take(member: &Member, time: Duration) {
    member.machine.clear_faults();
    member.machine.arm(Operation::Begin, Strikes::Always, Fault::Delay(time));
}

async fn removed_in_the_middle(course: &mut Course) -> Result<()> {
    course.cluster.policies.delete(POLICY, &DeleteParams::default()).await?;
    until_nothing_is_left(course).await?;
    // One of the name that is made anew begins from the beginning.
    course.generation = 0;
    let spec = course.spec(3);
    course.cluster.apply(POLICY, &spec).await?;
    until_at_work(course).await?;
    course.cluster.policies.delete(POLICY, &DeleteParams::default()).await?;
    until_nothing_is_left(course).await
}

async fn start_over(course: &mut Course) -> Result<()> {
    let spec = course.spec(4);
    // What was begun before the last policy went is over first.
    wait::until(LIMIT, "the machines to come to rest", async || {
        let now = course.cluster.fleet.overlap.now();
        ensure!(now.is_empty(), "{now:?} are being changed");
        Ok(())
    })
    .await?;
    course.cluster.apply(POLICY, &spec).await?;
    course.generation = 1;
    course.until_over(LIMIT).await
}

async fn until_at_work(course: &Course) -> Result<()> {
    wait::until(LIMIT, "nodes to be at work", async || {
        let last = course.recorder.so_far().last();
        let at_work = last.values().filter(|one| is_at_work(one)).count();
        ensure!(last.len() == NODES && at_work == AT_ONCE, "{at_work} of {}", last.len());
        Ok(())
    })
    .await
}

async fn until_nothing_is_left(course: &Course) -> Result<()> {
    let began = Instant::now();
    wait::until(SOON, "all enactments to go", async || {
        let left = course.cluster.enactments.list(&ListParams::default()).await?;
        let left: BTreeMap<_, _> = left.iter().map(|one| (one.name_any(), one.resource_version())).collect();
        ensure!(left.is_empty(), "{left:?}");
        Ok(())
    })
    .await?;
    println!("gone after {:?}", began.elapsed());
    Ok(())
}
