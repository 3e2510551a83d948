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

    let before = site.networks().await?;
    site.api.kubectl(["delete", "nmstate", "nmstate"]).await?.success()?;
    site.until("the pods to be gone", async || {
        let pods = site
            .api
            .kubectl(["get", "pods", "-n", NAMESPACE, "-l", "app=kubernetes-nmstate", "-o", "name"])
            .await?;
        ensure!(pods.stdout().is_empty(), "{}", pods.stdout());
        Ok(())
    })
    .await?;
    // All but the definitions, which would take users' policies along.
    let ours: Vec<_> = objects.iter().filter(|object| object.kind() != "CustomResourceDefinition").collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": ours}).to_string();
    site.api.kubectl_with(&list, ["delete", "-f", "-"]).await?.success()?;
    site.until_nothing_is_left().await?;
    assert_eq!(site.networks().await?, before);
    site.api.kubectl(["get", "nncp", "vxlan"]).await?.success()?;
    Ok(())
}
