//! Whether the operator creates an NMState by itself: by platform and by setting.

use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::time::sleep;

use super::*;

async fn on_platform(cluster: &Installation, platform: &str) -> Result<()> {
    cluster.define("config.openshift.io", "Infrastructure", "infrastructures", "Cluster").await?;
    cluster
        .apply(&json!({
            "apiVersion": "config.openshift.io/v1",
            "kind": "Infrastructure",
            "metadata": {"name": "cluster"},
            "status": {"platform": platform, "platformStatus": {"type": platform}},
        }))
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_platform_decides_unless_auto_create_is_set() -> Result<()> {
    let mut cluster = Installation::new().await?;
    let usual = cluster.setup.clone();
    // Without OpenShift's API the platform is not known.
    let cases = [
        (None, None, None, false),
        (None, Some("always"), None, true),
        (Some("AWS"), None, None, false),
        (Some("AWS"), Some("always"), None, true),
        (Some("None"), None, None, false),
        (Some("None"), None, Some("BareMetal,None"), true),
        (Some("BareMetal"), Some("never"), None, false),
        (Some("BareMetal"), None, None, true),
    ];
    for (platform, mode, platforms, expected) in cases {
        if let Some(platform) = platform {
            on_platform(&cluster, platform).await?;
        }
        cluster.setup = usual.clone();
        for (name, value) in [("AUTO_CREATE", mode), ("AUTO_CREATE_PLATFORMS", platforms)] {
            if let Some(value) = value {
                cluster.setup = cluster.setup.clone().env(name, value);
            }
        }
        let operator = cluster.start()?;
        if expected {
            cluster.until_created().await?;
            cluster.get("nmstate", "nmstate").await?;
        } else {
            // It does not show that it has decided against it, so the test waits.
            cluster
                .until("the operator to lead", async || {
                    ensure!(operator.log_tail(20).contains("leading"), "{}", operator.log_tail(20));
                    Ok(())
                })
                .await?;
            sleep(Duration::from_secs(3)).await;
            let nmstates = cluster.api.kubectl(["get", "nmstates", "--output=name"]).await?.success()?;
            ensure!(nmstates.is_empty(), "{platform:?} {mode:?} {platforms:?}: {nmstates}");
        }
        operator.stop().await?;
        // The operator stops first, or it would create everything again.
        let remove = cluster.setup.run("remove").await?;
        remove.success()?;
        ensure!(cluster.created().await?.is_empty(), "{platform:?}");
    }
    Ok(())
}
