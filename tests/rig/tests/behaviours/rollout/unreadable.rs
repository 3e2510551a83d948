//! Objects that the controllers cannot read: nested more deeply than what is parsed, which the API server accepts.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use knmstate_api::NodeNetworkConfigurationPolicyStatus;
use kube::{
    Client, ResourceExt as _,
    api::{GetParams, ListParams, Patch, PatchParams, PostParams},
    core::Request,
};
use rig::wait;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{FleetCluster, FleetOptions, LIMIT, bond};

const POLICIES: &str = "/apis/nmstate.io/v1/nodenetworkconfigurationpolicies";
const STATES: &str = "/apis/nmstate.io/v1beta1/nodenetworkstates";
const ODD_NODE: &str = "node000";
const AVAILABLE: [&str; 3] = ["Available", "SuccessfullyConfigured", "3/3 nodes successfully configured"];
const UNREADABLE: &str =
    "the spec cannot be read: it is nested too deeply; nodes keep what they have of this policy";

#[tokio::test(flavor = "multi_thread")]
async fn objects_that_cannot_be_read_hold_up_no_others() -> Result<()> {
    let options = FleetOptions { nodes: 3, apply_time: std::time::Duration::ZERO };
    let mut cluster = FleetCluster::new(options).await?;
    let controller = cluster.controllers.start("a")?;
    cluster.apply("first", &bond()).await?;
    cluster.until_condition("first", AVAILABLE).await?;
    let before = uids(&cluster, "first").await?;
    assert_eq!(before.len(), 3);

    // A handler makes its node state unreadable; admins do the same to a policy, and to a new one.
    let odd_node = cluster.fleet.nodes.get_mut(ODD_NODE).expect("it is in the fleet");
    odd_node.kill().await;
    let handler = cluster.api.client_with_token(&cluster.api.handler_token(ODD_NODE).await?).await?;
    let state = json!({"status": {"currentState": nested(200)}});
    merge_status(&handler, STATES, ODD_NODE, state).await?;
    let admin = cluster.api.client();
    let spec = json!({"spec": {"desiredState": nested(200)}});
    let request =
        Request::new(POLICIES).patch("first", &PatchParams::default(), &Patch::Merge(spec.clone()))?;
    admin.request_text(request).await?;
    create_policy(&admin, "odd", &spec["spec"]).await?;
    is_odd(&cluster, "first").await?;

    // The next leader has never been able to read them.
    controller.stop().await?;
    let _controller = cluster.controllers.start("b")?;
    cluster.fleet.nodes.get_mut(ODD_NODE).expect("it is in the fleet").start().await?;
    cluster.apply("later", &json!({"desiredState": {"hostname": {"config": "n"}}})).await?;
    cluster.until_condition("later", AVAILABLE).await?;
    for policy in ["first", "odd"] {
        is_odd(&cluster, policy).await?;
    }
    assert_eq!(uids(&cluster, "first").await?, before, "its orders stay");
    wait::until(LIMIT, "the handler to report again", async || {
        let text = admin.request_text(Request::new(STATES).get(ODD_NODE, &GetParams::default())?).await?;
        ensure!(serde_json::from_str::<Value>(&text).is_ok(), "it still cannot be read");
        Ok(())
    })
    .await?;

    // It goes on when the policy is corrected, and its orders go when it is deleted.
    let corrected = Patch::Merge(json!({"spec": {"desiredState": {"a": null}}}));
    let request = Request::new(POLICIES).patch("first", &PatchParams::default(), &corrected)?;
    admin.request_text(request).await?;
    cluster.until_condition("first", AVAILABLE).await?;
    cluster.api.kubectl(["delete", "nncp", "first", "odd"]).await?.success()?;
    wait::until(LIMIT, "the enactments to be deleted", async || {
        let left = uids(&cluster, "first").await?;
        ensure!(left.is_empty(), "{left:?}");
        Ok(())
    })
    .await
}

/// An object within an object, and so on.
fn nested(depth: usize) -> Value {
    (0..depth).fold(json!(1), |inner, _| json!({ "a": inner }))
}

async fn merge_status(client: &Client, url: &str, name: &str, patch: Value) -> Result<()> {
    let patch = Patch::Merge(patch);
    let request = Request::new(url).patch_subresource("status", name, &PatchParams::default(), &patch)?;
    client.request_text(request).await?;
    Ok(())
}

async fn create_policy(client: &Client, name: &str, spec: &Value) -> Result<()> {
    let policy = json!({"apiVersion": "nmstate.io/v1", "kind": "NodeNetworkConfigurationPolicy",
        "metadata": {"name": name}, "spec": spec});
    let request = Request::new(POLICIES).create(&PostParams::default(), policy.to_string().into_bytes())?;
    client.request_text(request).await?;
    Ok(())
}

/// Waits until the status of a policy says that it cannot be read.
async fn is_odd(cluster: &FleetCluster, policy: &str) -> Result<()> {
    #[derive(Deserialize)]
    struct WithStatus {
        #[serde(default)]
        status: NodeNetworkConfigurationPolicyStatus,
    }
    let reached = wait::until(LIMIT, &format!("the status of {policy}"), async || {
        let request = Request::new(POLICIES).get(policy, &GetParams::default())?;
        let WithStatus { status } = serde_json::from_str(&cluster.api.client().request_text(request).await?)?;
        let shown = status.conditions.first_true().map(|condition| (&*condition.type_, &*condition.message));
        ensure!(shown == Some(("Degraded", UNREADABLE)), "{shown:?}");
        Ok(())
    })
    .await;
    if reached.is_err() {
        cluster.print_diagnostics().await;
    }
    reached
}

/// The UIDs of the enactments of a policy, by name.
async fn uids(cluster: &FleetCluster, policy: &str) -> Result<BTreeMap<String, Option<String>>> {
    let selected = ListParams::default().labels(&format!("nmstate.io/policy={policy}"));
    let all = cluster.enactments.list(&selected).await?;
    Ok(all.iter().map(|one| (one.name_any(), one.uid())).collect())
}
