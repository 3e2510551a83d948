//! By `helm install` in one step, with policies that were there before anything else; upgraded in the middle of a
//! rollout; and away again.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use rig::{images, kube_node, skip};
use serde_json::{Value, json};

use super::site::{NAMESPACE, Site, condition};

const POLICIES: [&str; 3] = ["static-address", "linux-bridge", "vxlan"];

#[tokio::test(flavor = "multi_thread")]
async fn by_helm_early_policies_are_enacted_an_upgrade_disturbs_nobody_and_nothing_is_left() -> Result<()> {
    if let Some(obstacle) = kube_node::obstacle()? {
        return skip(obstacle);
    }
    let site = Site::new(&[images::knmstate().await?, images::next().await?]).await?;
    // As among the manifests of an installer: the kinds and the policies, and nobody who would do anything about them.
    site.api.install_crds().await?;
    for policy in POLICIES {
        let file = Site::file(&format!("examples/cluster/{policy}.yaml"));
        site.api.kubectl(["apply", "-f", &file]).await?.success()?;
    }

    helm(&site, &["install", "--create-namespace", "--set=nmstate.create=true", "--set=image.tag=dev"])
        .await?;
    site.until_deployed().await?;
    site.until_all_report().await?;
    for policy in POLICIES {
        site.until_enacted(policy).await?;
    }
    helm_test(&site).await?;

    upgrade_in_the_middle_of_a_rollout(&site).await?;

    let before = site.networks().await?;
    site.api.helm(["uninstall", "knmstate", "--namespace", NAMESPACE, "--wait"]).await?.success()?;
    site.api.kubectl(["delete", "namespace", NAMESPACE]).await?.success()?;
    site.until_nothing_is_left().await?;
    assert_eq!(site.networks().await?, before);
    Ok(())
}

async fn helm(site: &Site, arguments: &[&str]) -> Result<()> {
    let (verb, rest) = arguments.split_first().context("a verb")?;
    let chart = Site::file("deploy/chart");
    let common = [
        verb,
        "knmstate",
        &*chart,
        "--namespace",
        NAMESPACE,
        "--set=image.repository=localhost/knmstate",
        "--set=image.pullPolicy=Never",
    ];
    site.api.helm(common.iter().chain(rest).copied()).await?.success()?;
    Ok(())
}

async fn helm_test(site: &Site) -> Result<()> {
    let tested = site.api.helm(["test", "knmstate", "--namespace", NAMESPACE]).await?;
    ensure!(tested.status.success(), "{}{}", tested.stdout(), tested.stderr());
    Ok(())
}

/// Old and new handlers and controllers work together, and nothing is applied again.
async fn upgrade_in_the_middle_of_a_rollout(site: &Site) -> Result<()> {
    let policy = json!({
        "apiVersion": "nmstate.io/v1",
        "kind": "NodeNetworkConfigurationPolicy",
        "metadata": {"name": "in-the-middle"},
        "spec": {
            "rollout": {"canary": {"count": 1, "soak": "30s"}},
            "desiredState": {"interfaces": [{"name": "br9", "type": "linux-bridge", "state": "up"}]},
        },
    });
    site.api.kubectl_with(&policy.to_string(), ["apply", "-f", "-"]).await?.success()?;
    site.until("the first node to have it", async || {
        let one = site.api.kubectl(["get", "nnce", "node1.in-the-middle", "-o", "json"]).await?.json()?;
        ensure!(condition(&one, "Available")["status"] == "True", "{:#}", one["status"]["conditions"]);
        Ok(())
    })
    .await?;
    let (links, results) = (links(site).await?, results(site).await?);

    helm(site, &["upgrade", "--set=nmstate.create=true", "--set=image.tag=next"]).await?;
    site.until("all pods to be of the next version", async || {
        let pods = site.api.kubectl(["get", "pods", "-n", NAMESPACE, "-o", "json"]).await?.json()?;
        let all = pods["items"].as_array().context("a list")?;
        for pod in all {
            let image = &pod["spec"]["containers"][0]["image"];
            ensure!(image == images::NEXT, "{} has {image}", pod["metadata"]["name"]);
        }
        ensure!(all.len() >= 5, "an operator, two controllers, two handlers: {}", all.len());
        Ok(())
    })
    .await?;
    site.until_deployed().await?;
    site.until_enacted("in-the-middle").await?;
    let log = ["logs", "-n", NAMESPACE, "-l", "component=kubernetes-nmstate-handler", "--tail=-1"];
    let log = site.api.kubectl(log).await?.success()?;
    ensure!(log.contains(&format!("knmstate {}", images::NEXT_VERSION)), "{log}");

    for (link, index) in self::links(site).await? {
        // What was there before has not been made anew.
        ensure!(links.get(&link).is_none_or(|before| *before == index), "{link} is another one");
    }
    let after = self::results(site).await?;
    for (enactment, told) in results {
        assert_eq!(after.get(&enactment), Some(&told), "{enactment} was told again");
    }
    Ok(())
}

/// The number that the kernel has given to each link, by node and name.
async fn links(site: &Site) -> Result<BTreeMap<String, u64>> {
    let mut links = BTreeMap::new();
    for node in &site.nodes {
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

/// When each enactment that is Available became so.
async fn results(site: &Site) -> Result<BTreeMap<String, Value>> {
    let all = site.api.kubectl(["get", "nnce", "-o", "json"]).await?.json()?;
    let available = all["items"].as_array().context("a list")?.iter().filter_map(|one| {
        let told = condition(one, "Available");
        let name = one["metadata"]["name"].as_str()?.to_owned();
        (told["status"] == "True").then(|| (name, told["lastTransitionTime"].clone()))
    });
    Ok(available.collect())
}
