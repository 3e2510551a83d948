//! Installation by `helm install` in one step, with policies that existed before; an upgrade during a rollout; and the
//! removal.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use rig::{images, kube_node, skip};
use serde_json::{Value, json};

use super::cluster::{InstallationCluster, NAMESPACE, condition};

const POLICIES: [&str; 3] = ["static-address", "linux-bridge", "vxlan"];

#[tokio::test(flavor = "multi_thread")]
async fn by_helm_early_policies_are_enacted_an_upgrade_changes_no_network_and_nothing_is_left() -> Result<()>
{
    if let Some(obstacle) = kube_node::obstacle()? {
        return skip(obstacle);
    }
    let cluster = InstallationCluster::new(&[images::knmstate().await?, images::next().await?]).await?;
    // As with the manifests of an installer: there are CRDs and policies, and no operator yet.
    cluster.api.install_crds().await?;
    for policy in POLICIES {
        let file = InstallationCluster::file(&format!("examples/cluster/{policy}.yaml"));
        cluster.api.kubectl(["apply", "-f", &file]).await?.success()?;
    }

    helm(&cluster, &["install", "--create-namespace", "--set=nmstate.create=true", "--set=image.tag=dev"])
        .await?;
    cluster.until_deployed().await?;
    cluster.until_all_report().await?;
    for policy in POLICIES {
        cluster.until_enacted(policy).await?;
    }
    helm_test(&cluster).await?;

    upgrade_in_the_middle_of_a_rollout(&cluster).await?;

    let before = cluster.networks().await?;
    cluster.api.helm(["uninstall", "knmstate", "--namespace", NAMESPACE, "--wait"]).await?.success()?;
    cluster.api.kubectl(["delete", "namespace", NAMESPACE]).await?.success()?;
    cluster.until_nothing_is_left().await?;
    assert_eq!(cluster.networks().await?, before);
    Ok(())
}

async fn helm(cluster: &InstallationCluster, arguments: &[&str]) -> Result<()> {
    let (verb, rest) = arguments.split_first().context("a verb")?;
    let chart = InstallationCluster::file("deploy/chart");
    let common = [
        verb,
        "knmstate",
        &*chart,
        "--namespace",
        NAMESPACE,
        "--set=image.repository=localhost/knmstate",
        "--set=image.pullPolicy=Never",
    ];
    cluster.api.helm(common.iter().chain(rest).copied()).await?.success()?;
    Ok(())
}

async fn helm_test(cluster: &InstallationCluster) -> Result<()> {
    let tested = cluster.api.helm(["test", "knmstate", "--namespace", NAMESPACE]).await?;
    ensure!(tested.status.success(), "{}{}", tested.stdout(), tested.stderr());
    Ok(())
}

/// Old and new handlers and controllers work together, and nothing is applied again.
async fn upgrade_in_the_middle_of_a_rollout(cluster: &InstallationCluster) -> Result<()> {
    let policy = json!({
        "apiVersion": "nmstate.io/v1",
        "kind": "NodeNetworkConfigurationPolicy",
        "metadata": {"name": "in-the-middle"},
        "spec": {
            "rollout": {"canary": {"count": 1, "soak": "30s"}},
            "desiredState": {"interfaces": [{"name": "br9", "type": "linux-bridge", "state": "up"}]},
        },
    });
    cluster.api.kubectl_with(&policy.to_string(), ["apply", "-f", "-"]).await?.success()?;
    cluster
        .until("the first node to apply it", async || {
            let one =
                cluster.api.kubectl(["get", "nnce", "node1.in-the-middle", "-o", "json"]).await?.json()?;
            ensure!(condition(&one, "Available")["status"] == "True", "{:#}", one["status"]["conditions"]);
            Ok(())
        })
        .await?;
    let (links, results) = (links(cluster).await?, results(cluster).await?);

    helm(cluster, &["upgrade", "--set=nmstate.create=true", "--set=image.tag=next"]).await?;
    cluster
        .until("all pods to be of the next version", async || {
            let pods = cluster.api.kubectl(["get", "pods", "-n", NAMESPACE, "-o", "json"]).await?.json()?;
            let all = pods["items"].as_array().context("a list")?;
            for pod in all {
                let image = &pod["spec"]["containers"][0]["image"];
                ensure!(image == images::NEXT, "{} has {image}", pod["metadata"]["name"]);
            }
            ensure!(all.len() >= 5, "an operator, two controllers, two handlers: {}", all.len());
            Ok(())
        })
        .await?;
    cluster.until_deployed().await?;
    cluster.until_enacted("in-the-middle").await?;
    let log = ["logs", "-n", NAMESPACE, "-l", "component=kubernetes-nmstate-handler", "--tail=-1"];
    let log = cluster.api.kubectl(log).await?.success()?;
    ensure!(log.contains(&format!("knmstate {}", images::NEXT_VERSION)), "{log}");

    for (link, index) in self::links(cluster).await? {
        // No link was deleted and created again.
        ensure!(links.get(&link).is_none_or(|before| *before == index), "{link} was created again");
    }
    let after = self::results(cluster).await?;
    for (enactment, since) in results {
        assert_eq!(after.get(&enactment), Some(&since), "{enactment} was reported again");
    }
    Ok(())
}

/// The number that the kernel has given to each link, by node and name.
async fn links(cluster: &InstallationCluster) -> Result<BTreeMap<String, u64>> {
    let mut links = BTreeMap::new();
    for node in &cluster.nodes {
        let shown = node.exec(["ip", "-j", "link"]).await?.json()?;
        for link in shown.as_array().context("a list")? {
            let name = link["ifname"].as_str().context("a name")?;
            if !name.starts_with("veth") {
                links
                    .insert(format!("{} {name}", node.name()), link["ifindex"].as_u64().context("a number")?);
            }
        }
    }
    Ok(links)
}

/// Since when each enactment is Available.
async fn results(cluster: &InstallationCluster) -> Result<BTreeMap<String, Value>> {
    let all = cluster.api.kubectl(["get", "nnce", "-o", "json"]).await?.json()?;
    let available = all["items"].as_array().context("a list")?.iter().filter_map(|one| {
        let available = condition(one, "Available");
        let name = one["metadata"]["name"].as_str()?.to_owned();
        (available["status"] == "True").then(|| (name, available["lastTransitionTime"].clone()))
    });
    Ok(available.collect())
}
