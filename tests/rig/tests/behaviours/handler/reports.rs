//! The node state.

use std::time::Duration;

use anyhow::Result;
use tokio::time::Instant;

use super::{HandlerFixture, SHORT_LIMIT};

#[tokio::test]
async fn a_manual_change_is_in_the_node_state_at_once() -> Result<()> {
    let fixture = HandlerFixture::new().await?;
    let _handler = fixture.handler().await?;
    fixture.until_reported("eth0", SHORT_LIMIT).await?;
    fixture.until_quiet().await?;
    let began = Instant::now();
    fixture.node.exec(["ip", "addr", "add", "10.97.0.1/24", "dev", "eth2"]).await?.success()?;
    // A benchmark measures the time, on a machine that does nothing else.
    fixture.until_reported("10.97.0.1", Duration::from_secs(5)).await?;
    println!("in the node state after {:?}", began.elapsed());
    Ok(())
}
