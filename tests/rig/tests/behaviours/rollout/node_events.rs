//! Nodes that come, go and fall ill in the middle of a rollout.
//!
//! One cluster for all, each with nodes of its own: the policies have nothing to do with each other.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use knmstate_host::{
    Operation,
    simulated::{Fault, Strikes},
};
use knmstate_operator::Settings;
use kube::{Api, api::DeleteParams};
use rig::{fleet::Making, wait};
use serde_json::{Value, json};

use super::{
    Cluster,
    recorder::Recorder,
    recording::{is_at_work, is_done},
};

const LIMIT: Duration = Duration::from_mins(1);
const GROUP: &str = "rig/group";

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_copes_with_its_nodes() -> Result<()> {
    let mut cluster = Cluster::new(Making { nodes: 12, apply: Duration::from_millis(200) }).await?;
    let recorder = Recorder::start(cluster.enactments.clone()).await?;
    let _controller = cluster.controllers.start("a")?;
    let coped = cope(&mut cluster, &recorder).await;
    if coped.is_err() {
        cluster.tell().await;
    }
    coped?;
    let recording = recorder.caught_up().await?;
    recording.no_permit_was_taken_back()?;
    // One that is gone does not count, though its enactment may outlive it for a moment.
    let [gone] = nodes([0]);
    for policy in ["gone", "labels", "unwell"] {
        let at_work = recording.of(policy).without(&gone).most_at_work();
        ensure!(at_work == 1, "{at_work} nodes of {policy} were at work at once");
    }
    Ok(())
}

async fn cope(cluster: &mut Cluster, recorder: &Recorder) -> Result<()> {
    gone_with_its_slot(cluster, recorder).await.context("a node that is deleted while it holds the slot")?;
    labels_change(cluster, recorder).await.context("nodes that change their labels")?;
    unwell(cluster, recorder).await.context("nodes that are not well")
}

/// Others go on in its place.
async fn gone_with_its_slot(cluster: &mut Cluster, recorder: &Recorder) -> Result<()> {
    let all = nodes([0, 1, 2]);
    join(cluster, "gone", &all).await?;
    let [first, others @ ..] = all;
    stay_at_work(cluster, &first)?;
    cluster.apply("gone", &one_by_one("gone")).await?;
    until_at_work(recorder, "gone", &first).await?;
    let nodes: Api<Node> = Api::all(cluster.api.client());
    nodes.delete(&first, &DeleteParams::default()).await?;
    cluster.fleet.members.remove(&first);
    until_done(recorder, "gone", &others).await?;
    let expected: BTreeSet<String> = others.into();
    wait::until(LIMIT, "its enactment to go", async || {
        let left = of_policy(recorder, "gone");
        ensure!(left == expected, "enactments of {left:?}");
        Ok(())
    })
    .await
}

/// One that falls out while it waits loses its enactment, one that comes gets one.
async fn labels_change(cluster: &Cluster, recorder: &Recorder) -> Result<()> {
    let [first, stays, leaves, comes] = nodes([3, 4, 5, 6]);
    join(cluster, "labels", &[first.clone(), stays.clone(), leaves.clone()]).await?;
    take(cluster, &first, Duration::from_secs(8))?;
    cluster.apply("labels", &one_by_one("labels")).await?;
    until_at_work(recorder, "labels", &first).await?;
    cluster.label(&leaves, GROUP, None).await?;
    join(cluster, "labels", std::slice::from_ref(&comes)).await?;
    let expected: BTreeSet<String> = [&first, &stays, &comes].map(String::clone).into();
    wait::until(LIMIT, "enactments to follow the labels", async || {
        let there = of_policy(recorder, "labels");
        ensure!(there == expected, "enactments of {there:?}");
        Ok(())
    })
    .await?;
    ensure!(!is_done_on(recorder, "labels", &first), "the rollout is over before its nodes have changed");
    until_done(recorder, "labels", &[first.clone(), stays, comes]).await?;
    ensure!(cluster.fleet.members[&leaves].machine.checkpoints_made() == 0, "{leaves} was changed");
    // One that is done loses it just as well.
    cluster.label(&first, GROUP, None).await?;
    wait::until(LIMIT, "an enactment to go", async || {
        ensure!(!of_policy(recorder, "labels").contains(&first), "it is still there");
        Ok(())
    })
    .await
}

/// Nodes that have not begun and are not well do not hold up those that are.
async fn unwell(cluster: &mut Cluster, recorder: &Recorder) -> Result<()> {
    let [first, unready, bereft, well] = nodes([7, 8, 9, 10]);
    join(cluster, "unwell", &[first.clone(), unready.clone(), bereft.clone(), well.clone()]).await?;
    take(cluster, &first, Duration::from_secs(8))?;
    cluster.apply("unwell", &one_by_one("unwell")).await?;
    until_at_work(recorder, "unwell", &first).await?;
    cluster.api.set_node_ready(&unready, false).await?;
    let Settings { namespace, .. } = Settings::default();
    let pods: Api<Pod> = Api::namespaced(cluster.api.client(), &namespace);
    let pod = format!("{}-{bereft}", Settings::default().handler_account());
    pods.delete(&pod, &DeleteParams::default().grace_period(0)).await?;
    cluster.fleet.members.get_mut(&bereft).context("no such node")?.kill().await;
    ensure!(!is_done_on(recorder, "unwell", &first), "the rollout is over before its nodes have changed");
    until_done(recorder, "unwell", &[first.clone(), well.clone()]).await?;
    // It has had its turn by now, or will have it, and keeps nothing that its own probe of readiness refuses.
    cluster.api.set_node_ready(&unready, true).await?;
    until_done(recorder, "unwell", std::slice::from_ref(&unready)).await?;
    let order = recorder.so_far().of("unwell").done_in_order(1);
    ensure!(order == [first, well, unready], "done in this order: {order:?}");
    Ok(())
}

fn nodes<const COUNT: usize>(numbers: [usize; COUNT]) -> [String; COUNT] {
    numbers.map(|number| format!("node{number:03}"))
}

async fn join(cluster: &Cluster, group: &str, nodes: &[String]) -> Result<()> {
    for node in nodes {
        cluster.label(node, GROUP, Some(group)).await?;
    }
    Ok(())
}

fn one_by_one(group: &str) -> Value {
    let mut spec = super::bond();
    spec["maxUnavailable"] = json!(1);
    spec["nodeSelector"] = json!({GROUP: group});
    spec
}

/// The node does not come to an end with its change.
fn stay_at_work(cluster: &Cluster, node: &str) -> Result<()> {
    take(cluster, node, Duration::from_mins(3))
}

/// The node takes so long for a change.
fn take(cluster: &Cluster, node: &str, time: Duration) -> Result<()> {
    let machine = &cluster.fleet.members.get(node).context("no such node")?.machine;
    machine.clear_faults();
    machine.arm(Operation::Begin, Strikes::Always, Fault::Delay(time));
    Ok(())
}

async fn until_at_work(recorder: &Recorder, policy: &str, node: &str) -> Result<()> {
    wait::until(LIMIT, &format!("{node} to be at work"), async || {
        let last = recorder.so_far().of(policy).last();
        let one = last.get(&format!("{node}.{policy}")).context("it has no order")?;
        ensure!(is_at_work(one), "{:?}", one.status.conditions.first_true());
        Ok(())
    })
    .await
}

async fn until_done(recorder: &Recorder, policy: &str, nodes: &[String]) -> Result<()> {
    wait::until(LIMIT, &format!("{nodes:?} to be done"), async || {
        let left: Vec<_> = nodes.iter().filter(|node| !is_done_on(recorder, policy, node)).collect();
        ensure!(left.is_empty(), "{left:?} are not");
        Ok(())
    })
    .await
}

fn is_done_on(recorder: &Recorder, policy: &str, node: &str) -> bool {
    recorder.so_far().last().get(&format!("{node}.{policy}")).is_some_and(|one| is_done(one, 1))
}

/// The nodes that have an enactment of a policy.
fn of_policy(recorder: &Recorder, policy: &str) -> BTreeSet<String> {
    let last = recorder.so_far().of(policy).last();
    last.into_values().filter_map(|one| Some(one.spec?.node_name)).collect()
}
