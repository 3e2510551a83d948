//! What somebody deletes or edits comes back, and an operator that is killed is no loss.

use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::time::sleep;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn what_is_deleted_or_edited_comes_back() -> Result<()> {
    let cluster = Installation::new().await?;
    let _operator = cluster.start()?;
    cluster.switch_on(json!({})).await?;
    let made = cluster.until_made().await?;

    // One after the other: the namespace takes all that is in it along.
    for object in made.iter().filter(|name| !name.starts_with("Namespace")) {
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
            let now = cluster.made().await?;
            ensure!(now == made, "missing: {:?}", made.difference(&now).collect::<Vec<_>>());
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
        ("service", "nmstate-webhook", r#"{"spec":{"selector":{"name":"nobody"}}}"#),
        (
            "validatingadmissionpolicybinding",
            "nmstate-node-guard-enactments-binding",
            r#"{"spec":{"validationActions":["Warn"]}}"#,
        ),
        // Not a change of what was said but an addition to it: a guard that looks away.
        (
            "validatingadmissionpolicybinding",
            "nmstate-node-guard-states-binding",
            r#"{"spec":{"matchResources":{"namespaceSelector":{"matchLabels":{"nobody":"here"}}}}}"#,
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
async fn an_operator_that_is_killed_at_any_time_is_no_loss() -> Result<()> {
    let cluster = Installation::new().await?;
    cluster.switch_on(json!({})).await?;
    // It takes a second or two from its start until everything is there.
    for pause in [0, 300, 600, 900, 1300, 1800] {
        let operator = cluster.start()?;
        sleep(Duration::from_millis(pause)).await;
        drop(operator);
    }
    let operator = cluster.start()?;
    let made = cluster.until_made().await?;
    drop(operator);
    // The same while it removes.
    cluster.api.kubectl(["delete", "nmstate", "nmstate", "--wait=false"]).await?.success()?;
    for pause in [300, 900] {
        let operator = cluster.start()?;
        sleep(Duration::from_millis(pause)).await;
        drop(operator);
    }
    ensure!(!made.is_empty());
    let _operator = cluster.start()?;
    cluster
        .until("everything to be gone", async || {
            let left = cluster.made().await?;
            ensure!(left.is_empty(), "{left:#?}");
            Ok(())
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_operators_one_works_and_the_other_follows() -> Result<()> {
    let cluster = Installation::new().await?;
    let first = cluster.setup.start("first")?;
    cluster.switch_on(json!({})).await?;
    cluster.until_made().await?;
    let _second = cluster.setup.start("second")?;
    first.stop().await?;
    cluster
        .api
        .kubectl(["delete", "daemonset", "nmstate-handler", "--namespace", NAMESPACE])
        .await?
        .success()?;
    cluster.until_made().await?;
    Ok(())
}
