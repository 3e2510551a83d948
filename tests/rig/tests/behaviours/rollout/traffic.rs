//! What a rollout costs the API server. `bench/rollout.rs` measures it for many more nodes.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_costs_few_writes_no_conflict_and_no_list() -> Result<()> {
    let nodes = 20;
    let cluster = Cluster::new(Making { nodes, apply: Duration::from_millis(200) }).await?;
    let _controller = cluster.controllers.start("a")?;
    // With a first policy everybody has read everything that there is to read.
    cluster.apply("other", &json!({"nodeSelector": {"no": "node"}})).await?;
    cluster.until_says("other", ["Ignored", "NoMatchingNode", "Policy does not match any node"]).await?;
    let before = cluster.api.traffic().await?;
    cluster.apply("bond", &bond()).await?;
    let expected = format!("{nodes}/{nodes} nodes successfully configured");
    cluster.until_says("bond", ["Available", "SuccessfullyConfigured", &expected]).await?;
    let traffic = cluster.api.traffic().await?.since(&before);
    println!("{nodes} nodes: {traffic:?}");
    ensure!(traffic.conflicts == 0, "{traffic:?}");
    ensure!(traffic.lists == 0, "{traffic:?}");
    // An order, a permit, that it waits, that it works, that it is done, and its network; some of them are spared when
    // nodes are quick, which a busy machine cannot promise. Besides, the policy says how far it is.
    ensure!(traffic.writes <= 6 * u64::try_from(nodes)? + 20, "{traffic:?}");
    Ok(())
}
