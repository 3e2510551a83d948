//! Deleted and edited objects are restored, and the operator can be killed at any time.

use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::time::sleep;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn deleted_and_edited_objects_are_restored() -> Result<()> {
    let cluster = Installation::new().await?;
    let _operator = cluster.start()?;
    cluster.create_nmstate(json!({})).await?;
    let created = cluster.until_created().await?;

    // One by one and without the namespace, whose deletion would delete all that is in it.
    for object in created.iter().filter(|name| !name.starts_with("Namespace")) {
        let (kind, name) = object.split_once(' ').context("kind and name")?;
        let (namespace, name) = name.split_once('/').context("namespace and name")?;
        cluster
            .api
            .kubectl(["delete", kind, name, "--namespace", namespace, "--wait=false"])
            .await?
            .success()
            .with_context(|| object.clone())?;
    }
    cluster
        .until("everything to be back", async || {
            let now = cluster.created().await?;
            ensure!(now == created, "missing: {:?}", created.difference(&now).collect::<Vec<_>>());
            Ok(())
        })
        .await?;

    let edits = [
        (
            "clusterrole",
            "nmstate-handler",
            r#"{"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]}"#,
        ),
        ("daemonset", "nmstate-handler", r#"{"spec":{"template":{"spec":{"hostNetwork":false}}}}"#),
        ("deployment", "nmstate-webhook", r#"{"spec":{"replicas":7}}"#),
        ("service", "nmstate-webhook", r#"{"spec":{"selector":{"name":"none"}}}"#),
        (
            "validatingadmissionpolicybinding",
            "nmstate-node-guard-enactments-binding",
            r#"{"spec":{"validationActions":["Warn"]}}"#,
        ),
        // An addition instead of a change: the guard would match no request.
        (
            "validatingadmissionpolicybinding",
            "nmstate-node-guard-states-binding",
            r#"{"spec":{"matchResources":{"namespaceSelector":{"matchLabels":{"no":"namespace"}}}}}"#,
        ),
        ("networkpolicy", "default-deny-labelled-operand", r#"{"spec":{"policyTypes":["Ingress"]}}"#),
        (
            "serviceaccount",
            "nmstate-handler",
            r#"{"metadata":{"labels":{"app.kubernetes.io/managed-by":null}}}"#,
        ),
    ];
    for (kind, name, edit) in edits {
        let contents = async || -> Result<Value> {
            let mut object = cluster.get(kind, name).await?;
            let labels = object["metadata"]["labels"].clone();
            object["metadata"] = labels;
            object["status"] = Value::Null;
            Ok(object)
        };
        let before = contents().await?;
        let patch = ["patch", kind, name, "--namespace", NAMESPACE, "--type=merge", "-p", edit];
        cluster.api.kubectl(patch).await?.success()?;
        cluster
            .until(&format!("{kind} {name} to be as before"), async || {
                let now = contents().await?;
                ensure!(now == before, "{now:#}");
                Ok(())
            })
            .await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_can_be_killed_at_any_time() -> Result<()> {
    let cluster = Installation::new().await?;
    cluster.create_nmstate(json!({})).await?;
    // The operator needs a second or two to create everything.
    for pause in [0, 300, 600, 900, 1300, 1800] {
        let operator = cluster.start()?;
        sleep(Duration::from_millis(pause)).await;
        drop(operator);
    }
    let operator = cluster.start()?;
    let created = cluster.until_created().await?;
    drop(operator);
    // The same while it removes.
    cluster.api.kubectl(["delete", "nmstate", "nmstate", "--wait=false"]).await?.success()?;
    for pause in [300, 900] {
        let operator = cluster.start()?;
        sleep(Duration::from_millis(pause)).await;
        drop(operator);
    }
    ensure!(!created.is_empty());
    let _operator = cluster.start()?;
    cluster
        .until("everything to be deleted", async || {
            let left = cluster.created().await?;
            ensure!(left.is_empty(), "{left:#?}");
            Ok(())
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_operators_one_leads_and_the_other_takes_over() -> Result<()> {
    let cluster = Installation::new().await?;
    let first = cluster.setup.start("first")?;
    cluster.create_nmstate(json!({})).await?;
    cluster.until_created().await?;
    let _second = cluster.setup.start("second")?;
    first.stop().await?;
    cluster
        .api
        .kubectl(["delete", "daemonset", "nmstate-handler", "--namespace", NAMESPACE])
        .await?
        .success()?;
    cluster.until_created().await?;
    Ok(())
}
