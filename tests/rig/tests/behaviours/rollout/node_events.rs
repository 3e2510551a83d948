//! Nodes that are added, deleted or become unhealthy during a rollout.
//!
//! One cluster for all cases, each with nodes and a policy of its own.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use knmstate_host::Operation;
use knmstate_operator::Settings;
use knmstate_simulated_host::{Fault, Strikes};
use kube::{Api, api::DeleteParams};
use rig::{fleet::FleetOptions, wait};
use serde_json::{Value, json};

use super::{
    FleetCluster,
    recorder::Recorder,
    recording::{is_done, is_in_progress},
};

const LIMIT: Duration = Duration::from_mins(1);
const GROUP: &str = "rig/group";

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_handles_events_of_its_nodes() -> Result<()> {
    let mut cluster =
        FleetCluster::new(FleetOptions { nodes: 12, apply_time: Duration::from_millis(200) }).await?;
    let recorder = Recorder::start(cluster.enactments.clone()).await?;
    let _controller = cluster.controllers.start("a")?;
    let result = run_cases(&mut cluster, &recorder).await;
    if result.is_err() {
        cluster.print_diagnostics().await;
    }
    result?;
    let recording = recorder.caught_up().await?;
    recording.no_permit_was_revoked()?;
    // A deleted node does not count, though its enactment may outlive it for a moment.
    let [gone] = nodes([0]);
    for policy in ["gone", "labels", "unhealthy"] {
        let in_progress = recording.of(policy).without(&gone).max_in_progress();
        ensure!(in_progress == 1, "{in_progress} nodes of {policy} were in progress at once");
    }
    Ok(())
}

async fn run_cases(cluster: &mut FleetCluster, recorder: &Recorder) -> Result<()> {
    deleted_with_its_slot(cluster, recorder)
        .await
        .context("a node that is deleted while it holds the slot")?;
    labels_change(cluster, recorder).await.context("nodes that change their labels")?;
    unhealthy(cluster, recorder).await.context("unhealthy nodes")
}

/// The others get its slot.
async fn deleted_with_its_slot(cluster: &mut FleetCluster, recorder: &Recorder) -> Result<()> {
    let all = nodes([0, 1, 2]);
    join(cluster, "gone", &all).await?;
    let [first, others @ ..] = all;
    never_finish(cluster, &first)?;
    cluster.apply("gone", &one_by_one("gone")).await?;
    until_in_progress(recorder, "gone", &first).await?;
    let nodes: Api<Node> = Api::all(cluster.api.client());
    nodes.delete(&first, &DeleteParams::default()).await?;
    cluster.fleet.nodes.remove(&first);
    until_done(recorder, "gone", &others).await?;
    let expected: BTreeSet<String> = others.into();
    wait::until(LIMIT, "its enactment to be deleted", async || {
        let left = of_policy(recorder, "gone");
        ensure!(left == expected, "enactments of {left:?}");
        Ok(())
    })
    .await
}

/// A waiting node that does not match any more loses its enactment, and one that matches now gets one.
async fn labels_change(cluster: &FleetCluster, recorder: &Recorder) -> Result<()> {
    let [first, stays, leaves, comes] = nodes([3, 4, 5, 6]);
    join(cluster, "labels", &[first.clone(), stays.clone(), leaves.clone()]).await?;
    set_change_time(cluster, &first, Duration::from_secs(8))?;
    cluster.apply("labels", &one_by_one("labels")).await?;
    until_in_progress(recorder, "labels", &first).await?;
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
    ensure!(cluster.fleet.nodes[&leaves].machine.checkpoints_made() == 0, "{leaves} was changed");
    // A node that is done loses its enactment, too.
    cluster.label(&first, GROUP, None).await?;
    wait::until(LIMIT, "an enactment to be deleted", async || {
        ensure!(!of_policy(recorder, "labels").contains(&first), "it is still there");
        Ok(())
    })
    .await
}

/// Unhealthy nodes that have not begun do not hold up healthy ones.
async fn unhealthy(cluster: &mut FleetCluster, recorder: &Recorder) -> Result<()> {
    let [first, unready, without_handler, healthy] = nodes([7, 8, 9, 10]);
    join(cluster, "unhealthy", &[first.clone(), unready.clone(), without_handler.clone(), healthy.clone()])
        .await?;
    set_change_time(cluster, &first, Duration::from_secs(8))?;
    cluster.apply("unhealthy", &one_by_one("unhealthy")).await?;
    until_in_progress(recorder, "unhealthy", &first).await?;
    cluster.api.set_node_ready(&unready, false).await?;
    let Settings { namespace, .. } = Settings::default();
    let pods: Api<Pod> = Api::namespaced(cluster.api.client(), &namespace);
    let pod = format!("{}-{without_handler}", Settings::default().handler_account());
    pods.delete(&pod, &DeleteParams::default().grace_period(0)).await?;
    cluster.fleet.nodes.get_mut(&without_handler).context("no such node")?.kill().await;
    ensure!(!is_done_on(recorder, "unhealthy", &first), "the rollout is over before its nodes have changed");
    until_done(recorder, "unhealthy", &[first.clone(), healthy.clone()]).await?;
    // It may have tried before: its own readiness probe rolls back every change until it is ready.
    cluster.api.set_node_ready(&unready, true).await?;
    until_done(recorder, "unhealthy", std::slice::from_ref(&unready)).await?;
    let order = recorder.so_far().of("unhealthy").done_in_order(1);
    ensure!(order == [first, healthy, unready], "done in this order: {order:?}");
    Ok(())
}

fn nodes<const COUNT: usize>(numbers: [usize; COUNT]) -> [String; COUNT] {
    numbers.map(|number| format!("node{number:03}"))
}

async fn join(cluster: &FleetCluster, group: &str, nodes: &[String]) -> Result<()> {
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

/// The node does not finish its change during the test.
fn never_finish(cluster: &FleetCluster, node: &str) -> Result<()> {
    set_change_time(cluster, node, Duration::from_mins(3))
}

/// Sets how long the node takes for a change.
fn set_change_time(cluster: &FleetCluster, node: &str, time: Duration) -> Result<()> {
    let machine = &cluster.fleet.nodes.get(node).context("no such node")?.machine;
    machine.clear_faults();
    machine.arm(Operation::Begin, Strikes::Always, Fault::Delay(time));
    Ok(())
}

async fn until_in_progress(recorder: &Recorder, policy: &str, node: &str) -> Result<()> {
    wait::until(LIMIT, &format!("{node} to be in progress"), async || {
        let last = recorder.so_far().of(policy).last();
        let one = last.get(&format!("{node}.{policy}")).context("it has no order")?;
        ensure!(is_in_progress(one), "{:?}", one.status.conditions.first_true());
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
