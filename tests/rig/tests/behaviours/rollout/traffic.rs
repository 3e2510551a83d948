//! What a rollout costs the API server.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_costs_few_writes_per_node() -> Result<()> {
    let nodes = 20;
    let cluster = Cluster::new(Making { nodes, apply: Duration::from_millis(200) }).await?;
    let _controller = cluster.controllers.start("a")?;
    cluster.apply("bond", &bond()).await?;
    let expected = format!("{nodes}/{nodes} nodes successfully configured");
    cluster.until_says("bond", ["Available", "SuccessfullyConfigured", &expected]).await?;
    println!("{}", cluster.api.kubectl(["get", "nncp,nnce"]).await?.success()?);
    let request = http::Request::get("/metrics").body(Vec::new())?;
    let metrics = cluster.api.client().request_text(request).await?;
    for line in metrics.lines().filter(|line| {
        (line.starts_with("apiserver_request_total") || line.starts_with("apiserver_watch_events_total"))
            && (line.contains("nmstate.io") || line.contains("409"))
    }) {
        println!("{line}");
    }
    println!("{:?}", cluster.stages().await?);
    Ok(())
}
