//! Nodes whose names are too long for the value of a label, or with a policy for the name of an object.

use knmstate_api::names;

use super::*;

/// Where tools stop: a label takes 63 characters, the name of an object 253.
const LENGTHS: [usize; 4] = [63, 64, 189, 200];

#[tokio::test(flavor = "multi_thread")]
async fn nodes_with_long_names_get_their_policies() -> Result<()> {
    let nodes = LENGTHS.map(|length| format!("n{}", "0123456789".repeat(20))[..length].to_owned());
    let cluster = FleetCluster::with_nodes(&nodes).await?;
    let _controller = cluster.controllers.start("a")?;
    let policy = "p".repeat(63);
    cluster.apply(&policy, &bond()).await?;
    let all = ["Available", "SuccessfullyConfigured", "4/4 nodes successfully configured"];
    cluster.until_condition(&policy, all).await?;
    for node in &nodes {
        let enactment = cluster.enactments.get(&names::enactment_name(node, &policy)).await?;
        ensure!(enactment.spec.context("no order")?.node_name == *node);
    }

    // The enactments of a deleted policy are deleted there, too.
    cluster.api.kubectl(["delete", "nncp", &policy]).await?.success()?;
    wait::until(LIMIT, "no enactment", async || {
        let left = cluster.enactments.list(&ListParams::default()).await?;
        ensure!(left.items.is_empty(), "{} are left", left.items.len());
        Ok(())
    })
    .await?;
    cluster.apply("short", &bond()).await?;
    cluster.until_condition("short", all).await
}
