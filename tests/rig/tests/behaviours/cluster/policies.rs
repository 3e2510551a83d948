//! The policies of `examples/` in a cluster, from `kubectl apply` to the kernel of each node.

use anyhow::{Result, ensure};
use rig::{Primary, Settings, machine::rig_file, wait};

use super::{AVAILABLE, Cluster, LIMIT, table};

/// Those that this kernel supports; bonds and VLANs are tested on full-kernel nodes.
const QUICKSTART: [&str; 2] = ["search-domain", "storage-bridge"];

fn example(path: &str) -> String {
    rig_file("../../examples").join(path).display().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn examples_do_in_a_cluster_what_they_say() -> Result<()> {
    let cluster = Cluster::new(3, |_, node| node.primary(Primary::Dhcp)).await?;
    let installed = cluster.install(&Settings::default()).await?;
    let leader = installed.controllers.start("first")?;
    let _handlers = cluster.handlers(&installed).await?;
    let _follower = installed.controllers.start("second")?;

    cluster.api.kubectl(["apply", "-f", &example("quickstart")]).await?.success()?;
    for policy in QUICKSTART {
        cluster.until_condition(policy, AVAILABLE).await?;
    }
    kubectl_shows_the_known_tables(&cluster).await?;
    for node in &cluster.nodes {
        // NetworkManager writes the resolver's file some time after it has confirmed a change of the profile.
        wait::until(LIMIT, &format!("{} to have the network of all policies", node.name()), async || {
            let network = node.snapshot().await?;
            for wanted in
                ["10.98.0.77", "198.51.100.0/24", "search storage.example.com", "nameserver 10.99.0.53"]
            {
                ensure!(network.mentions(wanted), "{wanted} is missing: {network:?}");
            }
            Ok(())
        })
        .await?;
    }

    // The other controller takes over.
    leader.stop().await?;
    is_rolled_back(&cluster).await?;

    let refusal = cluster.api.kubectl(["apply", "-f", &example("refused")]).await?;
    ensure!(
        !refusal.status.success() && refusal.stderr().contains("is invalid: spec."),
        "{}",
        refusal.stderr()
    );

    stays_when_the_policy_is_deleted(&cluster).await
}

/// The tables that users of kubernetes-nmstate know.
async fn kubectl_shows_the_known_tables(cluster: &Cluster) -> Result<()> {
    let get = async |what: &str| cluster.api.kubectl(["get", what]).await?.success();
    let policies = "\
        NAME             STATUS      REASON\n\
        search-domain    Available   SuccessfullyConfigured\n\
        storage-bridge   Available   SuccessfullyConfigured\n";
    assert_eq!(get("nncp").await?, policies);

    let enactments = get("nnce").await?;
    let shown = table(&enactments);
    assert_eq!(shown[0], ["NAME", "STATUS", "STATUS AGE", "REASON"]);
    let expected =
        ["node1", "node2", "node3"].map(|node| QUICKSTART.map(|policy| format!("{node}.{policy}")));
    let expected: Vec<String> = expected.into_iter().flatten().collect();
    assert!(shown[1..].iter().map(|row| row[0]).eq(expected.iter()), "{enactments}");
    for row in &shown[1..] {
        assert_eq!([row[1], row[3]], ["Available", "SuccessfullyConfigured"], "{enactments}");
    }

    let states = get("nns").await?;
    let shown = table(&states);
    assert_eq!(shown[0], ["NAME", "AGE"]);
    assert!(shown[1..].iter().map(|row| row[0]).eq(["node1", "node2", "node3"]), "{states}");
    wait::until(LIMIT, "every node state to show the bridge", async || {
        for node in ["node1", "node2", "node3"] {
            let state = cluster.states.get(node).await?;
            let bridge = serde_json::to_string(&state.status)?;
            ensure!(bridge.contains("10.98.0.77"), "{node} does not");
        }
        Ok(())
    })
    .await
}

/// Half of the nodes try the policy and roll back; the others are not changed.
async fn is_rolled_back(cluster: &Cluster) -> Result<()> {
    let mut before = Vec::new();
    for node in &cluster.nodes {
        node.wait_for_duplicate_address_detection().await?;
        before.push(node.snapshot().await?);
    }
    cluster.api.kubectl(["apply", "-f", &example("rolled-back")]).await?.success()?;
    let message = "2/3 nodes failed to configure, 1 nodes aborted configuration";
    cluster.until_condition("wrong-nic", ["Degraded", "FailedToConfigure", message]).await?;
    for (node, before) in cluster.nodes.iter().zip(&before) {
        node.wait_until_restored(before, LIMIT).await?;
    }
    let enactments = cluster.enactments_of("wrong-nic").await?;
    for node in ["node1", "node2"] {
        let [type_, reason, message] = &enactments[&format!("{node}.wrong-nic")];
        assert_eq!([&**type_, &**reason], ["Failing", "FailedToConfigure"]);
        ensure!(message.contains("no default route is left") && message.contains("rolled back"), "{message}");
    }
    Ok(())
}

/// Deleting a policy does not change the network.
async fn stays_when_the_policy_is_deleted(cluster: &Cluster) -> Result<()> {
    cluster.api.kubectl(["delete", "nncp", "storage-bridge"]).await?.success()?;
    wait::until(LIMIT, "its enactments to be deleted", async || {
        let left = cluster.enactments_of("storage-bridge").await?;
        ensure!(left.is_empty(), "{left:?}");
        Ok(())
    })
    .await?;
    for node in &cluster.nodes {
        ensure!(node.snapshot().await?.mentions("10.98.0.77"), "{} has lost its bridge", node.name());
    }
    Ok(())
}
