//! A policy of a cluster on a kernel that has bonds and VLANs.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use knmstate_api::NodeNetworkConfigurationPolicy as Policy;
use kube::Api;
use rig::{
    Lab, Settings, UmlNode, binaries,
    process::{Invocation, write_private},
    role::RoleSetup,
    wait,
};

const LIMIT: Duration = Duration::from_mins(3);
const LOG: &str = "/run/handler.log";

#[tokio::test(flavor = "multi_thread")]
async fn the_example_of_a_bond_with_a_vlan_becomes_available() -> Result<()> {
    let program = binaries::knmstate().await?;
    let lab = Lab::new().await?;
    let (api, node) = tokio::try_join!(lab.api_server().start(), lab.uml_node("node1").start())?;
    api.admit_product(&Settings::default()).await?;
    api.add_ready_node(node.name()).await?;
    let kubeconfig = lab.folder().join("handler.kubeconfig");
    write_private(&kubeconfig, &api.kubeconfig_with_token(&api.handler_token(node.name()).await?))?;

    let controllers = RoleSetup::controller(&lab, &api, program.clone()).await?;
    let _controller = controllers.start("a")?;
    // The guest has no terminal to hang up, and ends with everything in it.
    let start = format!(
        "NODE_NAME={} NMSTATE_INSTANCE_NODE_LOCK_FILE=/run/lock.handler {} handler --kubeconfig={} \
         --state-dir=/run/state >{LOG} 2>&1 &",
        node.name(),
        UmlNode::path_inside(&program)?,
        UmlNode::path_inside(&kubeconfig)?,
    );
    node.exec_with(Invocation::new(["sh", "-c", &start]), LIMIT).await?.success()?;
    let example = rig::machine::rig_file("../../examples/bond-with-vlan.yaml").display().to_string();
    api.kubectl(["apply", "-f", &example]).await?.success()?;

    let policies: Api<Policy> = Api::all(api.client());
    let reached = wait::until(LIMIT, "the policy to be available", async || {
        let status = policies.get("bond-with-vlan").await?.status;
        let said = status.conditions.first_true().context("it says nothing yet")?;
        ensure!(said.message == "1/1 nodes successfully configured", "{}: {}", said.type_, said.message);
        Ok(())
    })
    .await;
    if reached.is_err() {
        println!("{}\n{}", node.exec(["tail", "-n", "20", LOG]).await?.stdout(), controllers.logs(10));
    }
    reached?;
    let shown = api.kubectl(["get", "nncp", "bond-with-vlan", "--no-headers"]).await?.success()?;
    assert_eq!(shown.trim(), "bond-with-vlan   Available   SuccessfullyConfigured");
    let address = node.exec(["ip", "-j", "address", "show", "dev", "bond0.102"]).await?.json()?;
    assert_eq!(address[0]["link"], "bond0", "{address}");
    assert_eq!(address[0]["addr_info"][0]["local"], "10.102.0.11", "{address}");
    wait::until(LIMIT, "the node to report it", async || {
        let state = api.kubectl(["get", "nns", node.name(), "-o", "json"]).await?.json()?;
        ensure!(state["status"]["currentState"].to_string().contains("bond0.102"), "{state}");
        Ok(())
    })
    .await
}
