//! A policy that is rolled out through the MachineConfigPools of OpenShift: in their order, within their limits, and
//! never while they are paused or updating a node themselves.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use rig::{fleet::FleetOptions, wait};
use serde_json::{Value, json};

use super::{
    FleetCluster, LIMIT, bond,
    recorder::Recorder,
    recording::{RolloutRecording, is_done},
};

const DEFINITION: &str = include_str!("../../../openshift/machineconfigpools.yaml");
const STATE: &str = "machineconfiguration.openshift.io/state";
const ZONE: &str = "topology.kubernetes.io/zone";
const POLICY: &str = "through";
const WORKERS: [&str; 3] = ["node000", "node001", "node002"];
/// Also workers, but a custom pool takes precedence.
const STORAGE: [&str; 4] = ["node003", "node004", "node005", "node006"];
const STRAY: &str = "node007";

impl FleetCluster {
    async fn change_node(&self, node: &str, change: &Value) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.api.client());
        nodes.patch(node, &PatchParams::default(), &Patch::Merge(change)).await?;
        Ok(())
    }

    async fn set_state(&self, node: &str, state: &str) -> Result<()> {
        self.change_node(node, &json!({"metadata": {"annotations": {STATE: state}}})).await
    }

    async fn pool(&self, name: &str, most: i32, paused: bool) -> Result<()> {
        let pool = json!({
            "apiVersion": "machineconfiguration.openshift.io/v1",
            "kind": "MachineConfigPool",
            "metadata": {"name": name},
            "spec": {"nodeSelector": {"matchLabels": {format!("role-{name}"): ""}}, "maxUnavailable": most,
                "paused": paused},
        });
        self.api.kubectl_with(&pool.to_string(), ["apply", "-f", "-"]).await?.success()?;
        Ok(())
    }

    /// Waits until the policy is progressing, with this message.
    async fn until_progress(&self, message: &str) -> Result<()> {
        self.until_condition(POLICY, ["Progressing", "ConfigurationProgressing", message]).await
    }
}

/// The recording of these nodes alone.
fn of(recording: &RolloutRecording, nodes: &[&str]) -> RolloutRecording {
    let others = [&WORKERS[..], &STORAGE, &[STRAY]].concat();
    let others = others.into_iter().filter(|node| !nodes.contains(node));
    others.fold(recording.clone(), |rest, other| rest.without(other))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_is_rolled_out_through_machine_config_pools() -> Result<()> {
    let cluster = FleetCluster::new(FleetOptions { nodes: 8, apply_time: Duration::from_secs(1) }).await?;
    for node in WORKERS.iter().chain(&STORAGE) {
        cluster.set_state(node, "Done").await?;
        cluster.label(node, "role-worker", Some("")).await?;
    }
    for node in STORAGE {
        cluster.label(node, "role-storage", Some("")).await?;
    }
    cluster.label(WORKERS[0], ZONE, Some("b")).await?;
    cluster.label(WORKERS[1], ZONE, Some("a")).await?;
    let recorder = Recorder::start(cluster.enactments.clone()).await?;
    let _controller = cluster.controllers.start("a")?;

    // Without pools the policy is degraded, and no node begins.
    let mut spec = bond();
    spec["rollout"] = json!({"through": "MachineConfigPool"});
    cluster.apply(POLICY, &spec).await?;
    let none = "rollout.through is MachineConfigPool, but this cluster has none (machineconfiguration.openshift.io/v1)";
    cluster.until_condition(POLICY, ["Degraded", "FailedToConfigure", none]).await?;
    ensure!(recorder.caught_up().await?.last().is_empty(), "there are orders without pools");

    cluster.api.kubectl_with(DEFINITION, ["apply", "-f", "-"]).await?.success()?;
    wait::until(LIMIT, "the pools to be accepted", async || cluster.pool("storage", 2, true).await).await?;
    cluster.pool("worker", 1, false).await?;
    let rest = "MachineConfigPool \"storage\" is paused; node007: in no MachineConfigPool";
    cluster.until_progress(&format!("Policy is progressing 3/8 nodes finished: {rest}")).await?;
    let recording = recorder.caught_up().await?;
    let order = recording.done_in_order(1);
    ensure!(order == ["node001", "node000", "node002"], "by zone, and those without one last: {order:?}");
    ensure!(recording.max_in_progress() == 1, "{} workers at once", recording.max_in_progress());

    // The pool is not paused any more, but the cluster is updating two of its nodes, and then one.
    cluster.set_state(STORAGE[0], "Working").await?;
    cluster.set_state(STORAGE[1], "Rebooting").await?;
    cluster.pool("storage", 2, false).await?;
    let rest = "MachineConfigPool \"storage\" has reached its maxUnavailable: node003, node004; \
        node007: in no MachineConfigPool";
    cluster.until_progress(&format!("Policy is progressing 3/8 nodes finished: {rest}")).await?;
    cluster.set_state(STORAGE[1], "Done").await?;
    let rest = "node003: not Ready, not schedulable or being updated; node007: in no MachineConfigPool";
    cluster.until_progress(&format!("Policy is progressing 6/8 nodes finished: {rest}")).await?;
    let recording = recorder.caught_up().await?;
    let at_once = of(&recording, &STORAGE).max_in_progress();
    ensure!(at_once == 1, "{at_once} of the storage nodes beside the one that was updated");
    ensure!(!recording.permitted(1).contains(STORAGE[0]), "it began while it was updated");
    cluster.set_state(STORAGE[0], "Done").await?;
    cluster
        .until_progress("Policy is progressing 7/8 nodes finished: node007: in no MachineConfigPool")
        .await?;

    // A node that joins a pool begins.
    cluster.set_state(STRAY, "Done").await?;
    cluster.label(STRAY, "role-worker", Some("")).await?;
    cluster
        .until_condition(POLICY, ["Available", "SuccessfullyConfigured", "8/8 nodes successfully configured"])
        .await?;

    // A new generation without obstacles uses what each pool allows, and no more.
    spec["desiredState"]["interfaces"][1]["vlan"]["id"] = json!(103);
    spec["desiredState"]["interfaces"][1]["name"] = json!("bond0.103");
    cluster.apply(POLICY, &spec).await?;
    wait::until(LIMIT, "all nodes to be done with the new generation", async || {
        let done = recorder.so_far().last().values().filter(|one| is_done(one, 2)).count();
        ensure!(done == 8, "{done} of 8");
        Ok(())
    })
    .await?;
    let whole = recorder.caught_up().await?;
    whole.no_permit_was_revoked()?;
    let (workers, storage) = (of(&whole, &[&WORKERS[..], &[STRAY]].concat()), of(&whole, &STORAGE));
    let found = (workers.max_in_progress(), storage.max_in_progress());
    ensure!(found == (1, 2), "{found:?} at once in the two pools");
    Ok(())
}
