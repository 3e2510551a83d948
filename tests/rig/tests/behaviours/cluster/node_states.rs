//! One node, configured in its NodeNetworkState.

use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use rig::{Settings, wait};
use serde_json::{Value, json};

use super::{Cluster, LIMIT, mtu, nic};

const NODE: &str = "node1";
const ENACTMENT: &str = "node1.node-network-state";

#[tokio::test(flavor = "multi_thread")]
async fn where_it_is_allowed_a_node_is_configured_in_its_node_state() -> Result<()> {
    let cluster = Cluster::new(1, |_, node| node).await?;
    let allowed = Settings { allow_node_state_configuration: true, ..Settings::default() };
    let installed = cluster.install(&allowed).await?;
    cluster.apply(&settings(true)).await?;
    let _controller = installed.controllers.start("first")?;
    let _handlers = cluster.handlers(&installed).await?;
    let node = &cluster.nodes[0];

    until_spec(&cluster, &json!({"nodeName": NODE, "managed": false})).await?;

    // Server-side apply, so that no field of the handler is removed.
    let with_desired_state = |desired: &Value| {
        json!({"apiVersion": "nmstate.io/v1beta1", "kind": "NodeNetworkState", "metadata": {"name": NODE},
            "spec": {"managed": true, "desiredState": desired}})
    };
    let server_side = async |object: &Value| {
        let apply = ["apply", "--server-side", "-f", "-"];
        cluster.api.kubectl_with(&object.to_string(), apply).await?.success()
    };
    let good = nic("eth1", 1400);
    server_side(&with_desired_state(&good)).await?;
    until_enactment(&cluster, "Available", "successfully reconciled").await?;
    assert_eq!(mtu(node, "eth1").await?, 1400);
    until_spec(&cluster, &json!({"nodeName": NODE, "managed": true, "desiredState": good})).await?;

    // Probes and rollback work as for a policy.
    node.wait_for_duplicate_address_detection().await?;
    let before = node.snapshot().await?;
    let bad = json!({"routes": {"config": [
        {"destination": "0.0.0.0/0", "next-hop-interface": "eth0", "state": "absent"}]}});
    server_side(&with_desired_state(&bad)).await?;
    until_enactment(&cluster, "Failing", "rolled back").await?;
    node.wait_until_restored(&before, LIMIT).await?;

    // Without a desired state there is nothing to apply, and nothing is undone.
    server_side(
        &json!({"apiVersion": "nmstate.io/v1beta1", "kind": "NodeNetworkState", "metadata": {"name": NODE}}),
    )
    .await?;
    until_gone(&cluster).await?;
    until_spec(&cluster, &json!({"nodeName": NODE, "managed": false})).await?;
    assert_eq!(mtu(node, "eth1").await?, 1400, "the change was undone");

    // The same when the NMState does not allow it any more.
    server_side(&with_desired_state(&nic("eth1", 1300))).await?;
    until_enactment(&cluster, "Available", "successfully reconciled").await?;
    cluster.apply(&settings(false)).await?;
    until_gone(&cluster).await?;
    assert_eq!(mtu(node, "eth1").await?, 1300, "the change was undone");
    Ok(())
}

fn settings(allowed: bool) -> Value {
    json!({"apiVersion": "nmstate.io/v1", "kind": "NMState", "metadata": {"name": "nmstate"},
        "spec": {"allowNodeStateConfiguration": allowed}})
}

async fn until_spec(cluster: &Cluster, expected: &Value) -> Result<()> {
    wait::until(LIMIT, "the spec of the node state", async || {
        let spec = cluster.api.kubectl(["get", "nns", NODE, "-o", "json"]).await?.json()?["spec"].clone();
        ensure!(spec == *expected, "{spec}");
        Ok(())
    })
    .await
}

/// Waits until the enactment is of the current generation, and its true condition has this type and message.
async fn until_enactment(cluster: &Cluster, type_: &str, text: &str) -> Result<()> {
    wait::until(LIMIT, &format!("the enactment to be {type_}"), async || {
        let enactment = cluster.enactments.get(ENACTMENT).await?;
        let condition = enactment.status.conditions.first_true().context("it has no condition yet")?;
        let generation = cluster.states.get(NODE).await?.metadata.generation;
        ensure!(Some(enactment.status.policy_generation) == generation, "{condition:?}");
        ensure!(condition.type_ == type_ && condition.message.contains(text), "{condition:?}");
        ensure!(enactment.labels()["nmstate.io/policy"] == "node-network-state");
        Ok(())
    })
    .await
}

async fn until_gone(cluster: &Cluster) -> Result<()> {
    wait::until(LIMIT, "the enactment to be deleted", async || {
        ensure!(cluster.enactments.get_opt(ENACTMENT).await?.is_none(), "it is still there");
        Ok(())
    })
    .await
}
