//! Installation by `kubectl apply -f`, and the removal.

use anyhow::{Result, ensure};
use knmstate_operator::installation;
use rig::{images, kube_node, skip};
use serde_json::json;

use super::cluster::{InstallationCluster, NAMESPACE};

#[tokio::test(flavor = "multi_thread")]
async fn by_plain_manifests_policies_are_enacted_and_nothing_is_left() -> Result<()> {
    if let Some(obstacle) = kube_node::obstacle()? {
        return skip(obstacle);
    }
    let cluster = InstallationCluster::new(&[images::knmstate().await?]).await?;
    let mut config = installation::default_config(images::KNMSTATE);
    config.pull_policy = "Never".to_owned();
    let objects: Vec<_> = installation::groups(&config).into_iter().flat_map(|group| group.objects).collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
    cluster.api.kubectl_with(&list, ["apply", "--server-side", "-f", "-"]).await?.success()?;
    cluster.create_nmstate().await?;
    cluster.until_deployed().await?;
    cluster.until_all_report().await?;
    for example in ["static-address", "linux-bridge", "vxlan"] {
        cluster.enact(example).await?;
    }
    for (node, address) in cluster.nodes.iter().zip(["10.98.0.101", "10.98.0.102"]) {
        let links = node.exec(["ip", "address"]).await?.success()?;
        for expected in [address, "br2", "vxlan500"] {
            ensure!(links.contains(expected), "{expected} is not on {}: {links}", node.name());
        }
    }

    metrics_are_served(&cluster).await?;
    repairs(&cluster).await?;

    let before = cluster.networks().await?;
    cluster.api.kubectl(["delete", "nmstate", "nmstate"]).await?.success()?;
    // All but the definitions, which would take users' policies along.
    let ours: Vec<_> = objects.iter().filter(|object| object.kind() != "CustomResourceDefinition").collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": ours}).to_string();
    cluster.api.kubectl_with(&list, ["delete", "-f", "-"]).await?.success()?;
    cluster.until_nothing_is_left().await?;
    assert_eq!(cluster.networks().await?, before);
    cluster.api.kubectl(["get", "nncp", "vxlan"]).await?.success()?;
    Ok(())
}

/// Through the Service, at the port of the NMState, over TLS.
async fn metrics_are_served(cluster: &InstallationCluster) -> Result<()> {
    cluster
        .until("metrics", async || {
            let path =
                format!("/api/v1/namespaces/{NAMESPACE}/services/https:nmstate-monitor:8443/proxy/metrics");
            let text = cluster.api.kubectl(["get", "--raw", &path]).await?.success()?;
            for name in ["knmstate_leader", "knmstate_certificate_expiry_timestamp_seconds"] {
                ensure!(text.contains(name), "no {name} in {text}");
            }
            Ok(())
        })
        .await
}

/// The operator and the controllers repair what is deleted or overwritten in a running cluster.
async fn repairs(cluster: &InstallationCluster) -> Result<()> {
    // A deleted DaemonSet comes back, and nothing is applied again.
    let before = cluster.networks().await?;
    cluster.api.kubectl(["delete", "daemonset", "nmstate-handler", "-n", NAMESPACE]).await?.success()?;
    // So do removed rights.
    let none = r#"{"rules":[]}"#;
    let patch = ["patch", "clusterrole", "nmstate-controller", "--type=merge", "-p", none];
    cluster.api.kubectl(patch).await?.success()?;
    cluster.until_deployed().await?;
    assert_eq!(cluster.networks().await?, before);

    // An overwritten certificate of the webhook is replaced, and the API server trusts the new one.
    let junk = json!({"data": {"tls.crt": "anVuaw==", "tls.key": "anVuaw=="}}).to_string();
    let patch = ["patch", "secret", "nmstate-webhook", "-n", NAMESPACE, "--type=merge", "-p", &junk];
    cluster.api.kubectl(patch).await?.success()?;
    cluster
        .until("the webhook to answer", async || {
            let secret = cluster
                .api
                .kubectl(["get", "secret", "nmstate-webhook", "-n", NAMESPACE, "-o", "json"])
                .await?;
            ensure!(secret.json()?["data"]["tls.crt"] != "anVuaw==", "the junk is still there");
            // The timestamp shows that the webhook was called.
            let policy = json!({
                "apiVersion": "nmstate.io/v1",
                "kind": "NodeNetworkConfigurationPolicy",
                "metadata": {"name": "called"},
                "spec": {"nodeSelector": {"no": "node"}, "desiredState": {}},
            });
            let create = ["create", "--dry-run=server", "-o", "json", "-f", "-"];
            let created = cluster.api.kubectl_with(&policy.to_string(), create).await?.json()?;
            let timestamp = &created["metadata"]["annotations"]["nmstate.io/webhook-mutating-timestamp"];
            ensure!(timestamp.is_string(), "{created:#}");
            Ok(())
        })
        .await?;

    // When the leader's pod is deleted, the other controller takes over at once.
    let lease = cluster
        .api
        .kubectl(["get", "lease", "nmstate-controller", "-n", NAMESPACE, "-o", "json"])
        .await?
        .json()?;
    let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
    let leader = holder.split('_').next().unwrap_or_default();
    cluster.api.kubectl(["delete", "pod", leader, "-n", NAMESPACE, "--wait=false"]).await?.success()?;
    let policy = json!({
        "apiVersion": "nmstate.io/v1",
        "kind": "NodeNetworkConfigurationPolicy",
        "metadata": {"name": "afterwards"},
        "spec": {"desiredState": {"interfaces": [{"name": "br8", "type": "linux-bridge", "state": "up"}]}},
    });
    cluster.api.kubectl_with(&policy.to_string(), ["apply", "-f", "-"]).await?.success()?;
    cluster.until_enacted("afterwards").await?;
    cluster.until_deployed().await
}
