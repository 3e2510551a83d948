//! The network of the node, as the cluster sees it.

use std::time::Duration;

use anyhow::Result;
use tokio::time::Instant;

use super::{SOON, Trial};

#[tokio::test]
async fn a_change_by_hand_is_in_the_node_state_at_once() -> Result<()> {
    let trial = Trial::new().await?;
    let _handler = trial.handler().await?;
    trial.shows("eth0", SOON).await?;
    trial.quiet().await?;
    let began = Instant::now();
    trial.node.exec(["ip", "addr", "add", "10.97.0.1/24", "dev", "eth2"]).await?.success()?;
    // The figure is taken by a benchmark, on a machine that does nothing else.
    trial.shows("10.97.0.1", Duration::from_secs(5)).await?;
    println!("in the node state after {:?}", began.elapsed());
    Ok(())
}
