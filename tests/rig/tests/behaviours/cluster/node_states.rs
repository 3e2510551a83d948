//! One node, configured in its NodeNetworkState.

use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use rig::{Settings, wait};
use serde_json::{Value, json};

use super::{Cluster, LIMIT, card, mtu};

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

    // Nobody's field is taken away.
    let wish = |desired: &Value| {
        json!({"apiVersion": "nmstate.io/v1beta1", "kind": "NodeNetworkState", "metadata": {"name": NODE},
            "spec": {"managed": true, "desiredState": desired}})
    };
    let server_side = async |object: &Value| {
        let apply = ["apply", "--server-side", "-f", "-"];
        cluster.api.kubectl_with(&object.to_string(), apply).await?.success()
    };
    let good = card("eth1", 1400);
    server_side(&wish(&good)).await?;
    until_enactment(&cluster, "Available", "successfully reconciled").await?;
    assert_eq!(mtu(node, "eth1").await?, 1400);
    until_spec(&cluster, &json!({"nodeName": NODE, "managed": true, "desiredState": good})).await?;

    // The same guard as for a policy.
    node.end_checks_for_duplicates().await?;
    let before = node.snapshot().await?;
    let bad = json!({"routes": {"config": [
        {"destination": "0.0.0.0/0", "next-hop-interface": "eth0", "state": "absent"}]}});
    server_side(&wish(&bad)).await?;
    until_enactment(&cluster, "Failing", "rolled back").await?;
    node.is_again(&before, LIMIT).await?;

    // Without a wish there is nothing to carry out, and nothing is undone.
    server_side(
        &json!({"apiVersion": "nmstate.io/v1beta1", "kind": "NodeNetworkState", "metadata": {"name": NODE}}),
    )
    .await?;
    until_gone(&cluster).await?;
    until_spec(&cluster, &json!({"nodeName": NODE, "managed": false})).await?;
    assert_eq!(mtu(node, "eth1").await?, 1400, "it was to be kept");

    // Nor is it, once it is not allowed any more.
    server_side(&wish(&card("eth1", 1300))).await?;
    until_enactment(&cluster, "Available", "successfully reconciled").await?;
    cluster.apply(&settings(false)).await?;
    until_gone(&cluster).await?;
    assert_eq!(mtu(node, "eth1").await?, 1300, "it was to be kept");
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

/// Waits until the enactment is about what is asked for now, and says this.
async fn until_enactment(cluster: &Cluster, stage: &str, words: &str) -> Result<()> {
    wait::until(LIMIT, &format!("the enactment to be {stage}"), async || {
        let enactment = cluster.enactments.get(ENACTMENT).await?;
        let condition = enactment.status.conditions.first_true().context("it says nothing yet")?;
        let generation = cluster.states.get(NODE).await?.metadata.generation;
        ensure!(Some(enactment.status.policy_generation) == generation, "{condition:?}");
        ensure!(condition.type_ == stage && condition.message.contains(words), "{condition:?}");
        ensure!(enactment.labels()["nmstate.io/policy"] == "node-network-state");
        Ok(())
    })
    .await
}

async fn until_gone(cluster: &Cluster) -> Result<()> {
    wait::until(LIMIT, "the enactment to go", async || {
        ensure!(cluster.enactments.get_opt(ENACTMENT).await?.is_none(), "it is still there");
        Ok(())
    })
    .await
}
