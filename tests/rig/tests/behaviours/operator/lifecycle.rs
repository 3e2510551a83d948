//! From the creation of an NMState to its deletion.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result, ensure};
use knmstate_operator::KINDS;
use serde_json::Value;
use tokio::time::sleep;

use super::*;

const POLICY: &str = "
apiVersion: nmstate.io/v1
kind: NodeNetworkConfigurationPolicy
metadata: {name: kept}
spec: {desiredState: {interfaces: []}}
";

/// The endpoints of the API server, as most clusters have them.
const API_SERVER: &str = "
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: kubernetes, namespace: default, labels: {kubernetes.io/service-name: kubernetes}}
addressType: IPv4
endpoints: [{addresses: [10.99.0.1]}]
ports: [{name: https, port: 16443, protocol: TCP}]
";

#[tokio::test(flavor = "multi_thread")]
async fn everything_is_created_with_an_nmstate_and_removed_with_it() -> Result<()> {
    let cluster = Installation::new().await?;
    cluster.api.kubectl_with(POLICY, ["apply", "-f", "-"]).await?.success()?;
    for node in ["node1", "node2"] {
        cluster.api.add_ready_node(node).await?;
        cluster.api.kubectl(["label", "node", node, "kubernetes.io/os=linux"]).await?.success()?;
    }
    cluster.api.kubectl_with(API_SERVER, ["apply", "-f", "-"]).await?.success()?;
    let _operator = cluster.start()?;
    cluster.create_nmstate(json!({})).await?;
    let created = cluster.until_created().await?;
    for expected in [
        "Namespace /nmstate",
        "ValidatingAdmissionPolicyBinding /nmstate-node-guard-enactments-binding",
        "ClusterRoleBinding /nmstate-handler",
        "RoleBinding default/nmstate-controller-events",
        "Service nmstate/nmstate-webhook",
        "Service nmstate/nmstate-monitor",
        "PodDisruptionBudget nmstate/nmstate-webhook",
        "NetworkPolicy nmstate/allow-webhook-egress-api",
        "Deployment nmstate/nmstate-webhook",
        "MutatingWebhookConfiguration /nmstate",
    ] {
        ensure!(created.contains(expected), "no {expected} in {created:#?}");
    }
    let deployment = cluster.get("deployment", "nmstate-webhook").await?;
    assert_eq!(deployment["spec"]["replicas"], 2, "two nodes can take one each");
    let policy = cluster.get("networkpolicy", "allow-webhook-egress-api").await?;
    let ports = policy["spec"]["egress"][0]["ports"].as_array().context("ports")?;
    let ports: Vec<_> = ports.iter().map(|port| &port["port"]).collect();
    assert_eq!(ports, [443, 16443], "the Service's port and the API server's own");

    cluster
        .until("the status to show what is missing", async || {
            let status = cluster.get("nmstate", "nmstate").await?["status"]["conditions"].clone();
            ensure!(status[1]["type"] == "Progressing" && status[1]["status"] == "True", "{status:#}");
            let message = text(&status[1]["message"]);
            ensure!(
                message.contains("Deployment \"nmstate-webhook\" is not available (awaiting 2 nodes)"),
                "{message}"
            );
            ensure!(
                message.contains("DaemonSet \"nmstate-handler\" is not available (awaiting 2 nodes)"),
                "{message}"
            );
            Ok(())
        })
        .await?;
    nothing_is_written_when_nothing_changes(&cluster).await?;

    cluster.delete_nmstate().await?;
    // At once: kubectl has waited for it.
    assert_eq!(cluster.created().await?, BTreeSet::new());
    let namespaces = cluster.api.kubectl(["get", "namespaces", "--output=name"]).await?.success()?;
    ensure!(!namespaces.contains("namespace/nmstate\n"), "{namespaces}");
    cluster.api.kubectl(["get", "nncp", "kept"]).await?.success()?;
    let definitions = cluster.api.kubectl(["get", "crds", "--output=name"]).await?.success()?;
    assert_eq!(definitions.lines().filter(|name| name.ends_with(".nmstate.io")).count(), 4, "{definitions}");
    Ok(())
}

/// Without a change the operator writes nothing, not even writes without effect.
async fn nothing_is_written_when_nothing_changes(cluster: &Installation) -> Result<()> {
    let versions = async || -> Result<BTreeMap<String, String>> {
        let mut versions = BTreeMap::new();
        for kind in KINDS.iter().filter(|kind| kind.built_in) {
            let resource = format!("{}.{}", kind.plural, kind.group());
            let list =
                cluster.api.kubectl(["get", &resource, "--all-namespaces", "-o", "json"]).await?.json()?;
            for item in list["items"].as_array().into_iter().flatten() {
                let metadata: &Value = &item["metadata"];
                if metadata["labels"]["app.kubernetes.io/managed-by"] == "nmstate-operator" {
                    let name = format!("{} {}", kind.kind, text(&metadata["name"]));
                    versions.insert(name, text(&metadata["resourceVersion"]).to_owned());
                }
            }
        }
        let nmstate = cluster.get("nmstate", "nmstate").await?;
        versions.insert("NMState".to_owned(), text(&nmstate["metadata"]["resourceVersion"]).to_owned());
        Ok(versions)
    };
    // Other controllers write to these objects, too: wait until they have finished.
    let mut before = versions().await?;
    cluster
        .until("the writes to stop", async || {
            sleep(Duration::from_secs(2)).await;
            let now = versions().await?;
            let quiet = now == before;
            before = now;
            ensure!(quiet, "still changing");
            Ok(())
        })
        .await?;
    sleep(Duration::from_secs(5)).await;
    assert_eq!(versions().await?, before);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_oldest_nmstate_is_used_and_others_are_deleted() -> Result<()> {
    let cluster = Installation::new().await?;
    let _operator = cluster.start()?;
    cluster.create_nmstate(json!({})).await?;
    cluster.until_created().await?;
    let second = "{apiVersion: nmstate.io/v1, kind: NMState, metadata: {name: another}}";
    cluster.api.kubectl_with(second, ["create", "-f", "-"]).await?.success()?;
    cluster
        .until("the younger one to be deleted", async || {
            let all = cluster.api.kubectl(["get", "nmstates", "--output=name"]).await?.success()?;
            ensure!(all.trim() == "nmstate.nmstate.io/nmstate", "{all}");
            Ok(())
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_nmstate_only_the_definitions_are_kept() -> Result<()> {
    let cluster = Installation::new().await?;
    // A definition that is not ours any more.
    let patch = r#"{"metadata":{"labels":{"edited":"yes"}},"spec":{"names":{"shortNames":["x"]}}}"#;
    let name = "nodenetworkstates.nmstate.io";
    cluster.api.kubectl(["patch", "crd", name, "--type=merge", "-p", patch]).await?.success()?;
    let _operator = cluster.start()?;
    cluster
        .until("the definition to be restored", async || {
            let definition = cluster.get("crd", name).await?;
            ensure!(
                definition["spec"]["names"]["shortNames"] == json!(["nns"]),
                "{}",
                definition["spec"]["names"]
            );
            Ok(())
        })
        .await?;
    assert_eq!(cluster.created().await?, BTreeSet::new());
    Ok(())
}
