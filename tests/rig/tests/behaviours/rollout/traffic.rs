//! The requests that a rollout sends to the API server. `bench/rollout.rs` measures it for many more nodes.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_costs_few_writes_no_conflict_and_no_list() -> Result<()> {
    let nodes = 20;
    let cluster = FleetCluster::new(FleetOptions { nodes, apply_time: Duration::from_millis(200) }).await?;
    let _controller = cluster.controllers.start("a")?;
    // After a first policy all clients have read what they need.
    cluster.apply("other", &json!({"nodeSelector": {"no": "node"}})).await?;
    cluster.until_condition("other", ["Ignored", "NoMatchingNode", "Policy does not match any node"]).await?;
    let before = cluster.api.traffic().await?;
    cluster.apply("bond", &bond()).await?;
    let expected = format!("{nodes}/{nodes} nodes successfully configured");
    cluster.until_condition("bond", ["Available", "SuccessfullyConfigured", &expected]).await?;
    let traffic = cluster.api.traffic().await?.since(&before);
    println!("{nodes} nodes: {traffic:?}");
    ensure!(traffic.conflicts == 0, "{traffic:?}");
    ensure!(traffic.lists == 0, "{traffic:?}");
    // For each node: its order, its permit, three statuses and its node state. Fast nodes leave out some of them, but
    // the machine may be busy. The rest is the status of the policy.
    ensure!(traffic.writes <= 6 * u64::try_from(nodes)? + 20, "{traffic:?}");
    Ok(())
}
