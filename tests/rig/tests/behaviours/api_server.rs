//! The API server of a lab: it can be frozen, stopped and started again.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, Result, ensure};
use futures::TryStreamExt as _;
use k8s_openapi::api::{
    authentication::v1::SelfSubjectReview,
    core::v1::{ConfigMap, Node, ServiceAccount},
};
use kube::{
    Api, Resource,
    api::{DeleteParams, ListParams, PostParams, WatchParams},
};
use rig::{BoundTo, Lab, UmlNode, binaries, parts, process::Invocation, wait};
use serde_json::json;
use tokio::time::{sleep, timeout};

/// kubectl is a large program, and a full-kernel node is slow.
const NODE_LIMIT: Duration = Duration::from_mins(1);

/// A typed object from JSON.
fn object<K: serde::de::DeserializeOwned + Resource>(json: serde_json::Value) -> Result<K> {
    Ok(serde_json::from_value(json)?)
}

fn config_map(name: &str) -> Result<ConfigMap> {
    object(json!({"metadata": {"name": name}}))
}

#[tokio::test]
async fn frozen_for_ten_seconds_it_resumes_with_watches_intact() -> Result<()> {
    let lab = Lab::new().await?;
    let api = lab.api_server().start().await?;
    let maps: Api<ConfigMap> = Api::namespaced(api.client(), "default");
    let version = maps.list(&ListParams::default()).await?.metadata.resource_version.context("a version")?;
    // A bare watch, not a self-healing one: if the connection broke, the stream would end.
    let mut watch = Box::pin(maps.watch(&WatchParams::default(), &version).await?);

    api.freeze()?;
    ensure!(
        timeout(Duration::from_secs(1), maps.list(&ListParams::default())).await.is_err(),
        "a frozen API server answered"
    );
    sleep(Duration::from_secs(9)).await;
    api.resume()?;

    maps.create(&PostParams::default(), &config_map("after-the-freeze")?).await?;
    let event = timeout(Duration::from_secs(10), watch.try_next()).await??.context("the watch ended")?;
    let kube::api::WatchEvent::Added(seen) = event else { anyhow::bail!("{event:?}") };
    assert_eq!(seen.metadata.name.as_deref(), Some("after-the-freeze"));
    Ok(())
}

#[tokio::test]
async fn stopped_and_started_again_it_has_its_data() -> Result<()> {
    let lab = Lab::new().await?;
    let mut api = lab.api_server().start().await?;
    let maps: Api<ConfigMap> = Api::namespaced(api.client(), "default");
    maps.create(&PostParams::default(), &config_map("kept")?).await?;

    api.stop().await?;
    ensure!(maps.get("kept").await.is_err(), "a stopped API server answered");
    api.start_again().await?;

    maps.get("kept").await?;
    Ok(())
}

#[tokio::test]
async fn a_token_bound_to_a_node_carries_its_name() -> Result<()> {
    let lab = Lab::new().await?;
    let api = lab.api_server().start().await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(api.client(), "default");
    accounts.create(&PostParams::default(), &object(json!({"metadata": {"name": "handler"}}))?).await?;
    let nodes: Api<Node> = Api::all(api.client());
    nodes.create(&PostParams::default(), &object(json!({"metadata": {"name": "node1"}}))?).await?;
    let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(api.client(), "default");
    let pod = json!({
        "metadata": {"name": "pod1"},
        "spec": {"nodeName": "node1", "serviceAccountName": "handler", "containers": [{"name": "c", "image": "i"}]},
    });
    pods.create(&PostParams::default(), &object(pod)?).await?;

    for (bound, expected) in [
        (BoundTo::Nothing, None),
        (BoundTo::Node("node1"), Some("node1")),
        (BoundTo::Pod("pod1"), Some("node1")),
    ] {
        let token = api.token("default", "handler", bound).await?;
        let client = api.client_with_token(&token).await?;
        let reviews: Api<SelfSubjectReview> = Api::all(client);
        let review = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await?;
        let user = review.status.and_then(|status| status.user_info).context("a user")?;
        assert_eq!(user.username.as_deref(), Some("system:serviceaccount:default:handler"));
        let node = user.extra.unwrap_or_default().get("authentication.kubernetes.io/node-name").cloned();
        assert_eq!(node, expected.map(|name| vec![name.to_owned()]), "{bound:?}");
    }
    Ok(())
}

#[tokio::test]
async fn nodes_of_each_kind_reach_it_and_run_our_programs() -> Result<()> {
    let lab = Lab::new().await?;
    let (api, light, full) = tokio::try_join!(
        lab.api_server().start(),
        lab.nm_node("light").start(),
        lab.uml_node("full").start(),
    )?;
    let kubeconfig = lab.directory().join("inside.kubeconfig");
    std::fs::write(&kubeconfig, api.kubeconfig_for("admin", &["system:masters"])?)?;
    let kubectl = PathBuf::from(parts::kubernetes("kubectl").await?);
    let knmstate = binaries::knmstate().await?;

    let ask = |kubectl: String, kubeconfig: String| {
        Invocation::new([kubectl, format!("--kubeconfig={kubeconfig}")]).args(["get", "--raw", "/readyz"])
    };
    let invocation = ask(kubectl.display().to_string(), kubeconfig.display().to_string());
    assert_eq!(light.exec_with(invocation, NODE_LIMIT).await?.success()?, "ok");
    let version = light.exec([knmstate.display().to_string(), "--version".to_owned()]).await?.success()?;
    ensure!(version.starts_with("knmstate "), "{version}");

    let invocation = ask(UmlNode::path_inside(&kubectl)?, UmlNode::path_inside(&kubeconfig)?);
    assert_eq!(full.exec_with(invocation, NODE_LIMIT).await?.success()?, "ok");
    assert_eq!(full.run_binary(&knmstate, ["--version"], "").await?.success()?, version);
    Ok(())
}

#[tokio::test]
async fn with_controllers_it_collects_objects_whose_owner_is_deleted() -> Result<()> {
    let lab = Lab::new().await?;
    let api = lab.api_server().with_controllers().start().await?;
    let maps: Api<ConfigMap> = Api::namespaced(api.client(), "default");
    let owner = maps.create(&PostParams::default(), &config_map("owner")?).await?;
    let mut owned = config_map("owned")?;
    owned.metadata.owner_references = Some(vec![owner.owner_ref(&()).context("an owner reference")?]);
    maps.create(&PostParams::default(), &owned).await?;

    maps.delete("owner", &DeleteParams::default()).await?;
    wait::until(Duration::from_mins(1), "the owned object to be deleted", async || {
        ensure!(maps.get_opt("owned").await?.is_none(), "still there");
        Ok(())
    })
    .await
}
