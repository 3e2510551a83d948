//! By `kubectl apply -f`, and away again.

use anyhow::{Result, ensure};
use knmstate_operator::installation;
use rig::{images, kube_node, skip};
use serde_json::json;

use super::site::{NAMESPACE, Site};

#[tokio::test(flavor = "multi_thread")]
async fn by_plain_manifests_policies_are_enacted_and_nothing_is_left() -> Result<()> {
    if let Some(obstacle) = kube_node::obstacle()? {
        return skip(obstacle);
    }
    let site = Site::new(&[images::knmstate().await?]).await?;
    let mut config = installation::usual(images::KNMSTATE);
    config.pull_policy = "Never".to_owned();
    let objects: Vec<_> = installation::groups(&config).into_iter().flat_map(|group| group.objects).collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
    site.api.kubectl_with(&list, ["apply", "--server-side", "-f", "-"]).await?.success()?;
    site.switch_on().await?;
    site.until_deployed().await?;
    site.until_all_report().await?;
    for example in ["static-address", "linux-bridge", "vxlan"] {
        site.enact(example).await?;
    }
    for (node, address) in site.nodes.iter().zip(["10.98.0.101", "10.98.0.102"]) {
        let links = node.exec(["ip", "address"]).await?.success()?;
        for expected in [address, "br2", "vxlan500"] {
            ensure!(links.contains(expected), "{expected} is not on {}: {links}", node.name());
        }
    }

    metrics_are_served(&site).await?;
    mends(&site).await?;

    let before = site.networks().await?;
    site.api.kubectl(["delete", "nmstate", "nmstate"]).await?.success()?;
    // All but the definitions, which would take users' policies along.
    let ours: Vec<_> = objects.iter().filter(|object| object.kind() != "CustomResourceDefinition").collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": ours}).to_string();
    site.api.kubectl_with(&list, ["delete", "-f", "-"]).await?.success()?;
    site.until_nothing_is_left().await?;
    assert_eq!(site.networks().await?, before);
    site.api.kubectl(["get", "nncp", "vxlan"]).await?.success()?;
    Ok(())
}

/// At the port of the NMState, by the Service, over TLS.
async fn metrics_are_served(site: &Site) -> Result<()> {
    site.until("metrics", async || {
        let path =
            format!("/api/v1/namespaces/{NAMESPACE}/services/https:nmstate-monitor:8443/proxy/metrics");
        let text = site.api.kubectl(["get", "--raw", &path]).await?.success()?;
        for name in ["knmstate_leader", "knmstate_certificate_expiry_timestamp_seconds"] {
            ensure!(text.contains(name), "no {name} in {text}");
        }
        Ok(())
    })
    .await
}

/// What an accident or a person may do to a cluster that works.
async fn mends(site: &Site) -> Result<()> {
    // All handlers gone: they come back, and nothing is applied again.
    let before = site.networks().await?;
    site.api.kubectl(["delete", "daemonset", "nmstate-handler", "-n", NAMESPACE]).await?.success()?;
    // Rights taken away.
    let none = r#"{"rules":[]}"#;
    let patch = ["patch", "clusterrole", "nmstate-controller", "--type=merge", "-p", none];
    site.api.kubectl(patch).await?.success()?;
    site.until_deployed().await?;
    assert_eq!(site.networks().await?, before);

    // The certificate of the webhook overwritten: it is made anew, and the API server trusts it.
    let junk = json!({"data": {"tls.crt": "anVuaw==", "tls.key": "anVuaw=="}}).to_string();
    let patch = ["patch", "secret", "nmstate-webhook", "-n", NAMESPACE, "--type=merge", "-p", &junk];
    site.api.kubectl(patch).await?.success()?;
    site.until("the webhook to answer", async || {
        let secret =
            site.api.kubectl(["get", "secret", "nmstate-webhook", "-n", NAMESPACE, "-o", "json"]).await?;
        ensure!(secret.json()?["data"]["tls.crt"] != "anVuaw==", "the junk is still there");
        // Whoever is not asked leaves no mark.
        let policy = json!({
            "apiVersion": "nmstate.io/v1",
            "kind": "NodeNetworkConfigurationPolicy",
            "metadata": {"name": "asked"},
            "spec": {"nodeSelector": {"nobody": "here"}, "desiredState": {}},
        });
        let create = ["create", "--dry-run=server", "-o", "json", "-f", "-"];
        let created = site.api.kubectl_with(&policy.to_string(), create).await?.json()?;
        let mark = &created["metadata"]["annotations"]["nmstate.io/webhook-mutating-timestamp"];
        ensure!(mark.is_string(), "{created:#}");
        Ok(())
    })
    .await?;

    // The controller that leads taken away: the other one goes on at once.
    let lease = site
        .api
        .kubectl(["get", "lease", "nmstate-controller", "-n", NAMESPACE, "-o", "json"])
        .await?
        .json()?;
    let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
    let leader = holder.split('_').next().unwrap_or_default();
    site.api.kubectl(["delete", "pod", leader, "-n", NAMESPACE, "--wait=false"]).await?.success()?;
    let policy = json!({
        "apiVersion": "nmstate.io/v1",
        "kind": "NodeNetworkConfigurationPolicy",
        "metadata": {"name": "afterwards"},
        "spec": {"desiredState": {"interfaces": [{"name": "br8", "type": "linux-bridge", "state": "up"}]}},
    });
    site.api.kubectl_with(&policy.to_string(), ["apply", "-f", "-"]).await?.success()?;
    site.until_enacted("afterwards").await?;
    site.until_deployed().await
}
