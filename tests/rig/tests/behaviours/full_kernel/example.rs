//! The example of a bond with a VLAN on top.

use anyhow::{Result, ensure};
use rig::wait;

use super::{FullKernelFixture, LIMIT, NODE};

#[tokio::test(flavor = "multi_thread")]
async fn the_example_of_a_bond_with_a_vlan_becomes_available() -> Result<()> {
    let fixture = FullKernelFixture::new().await?;
    fixture.handler().await?;
    let example = rig::machine::rig_file("../../examples/vlan/on-bond.yaml").display().to_string();
    fixture.api.kubectl(["apply", "-f", &example]).await?.success()?;
    fixture.until_condition("bond-with-vlan", "Available", "1/1 nodes successfully configured").await?;
    let shown = fixture.api.kubectl(["get", "nncp", "bond-with-vlan", "--no-headers"]).await?.success()?;
    assert_eq!(shown.trim(), "bond-with-vlan   Available   SuccessfullyConfigured");
    let address = fixture.link("bond0.102").await?;
    assert_eq!(address["link"], "bond0", "{address}");
    assert_eq!(address["addr_info"][0]["local"], "10.102.0.11", "{address}");
    wait::until(LIMIT, "the node state to show it", async || {
        let state = fixture.api.kubectl(["get", "nns", NODE, "-o", "json"]).await?.json()?;
        ensure!(state["status"]["currentState"].to_string().contains("bond0.102"), "{state}");
        Ok(())
    })
    .await
}
