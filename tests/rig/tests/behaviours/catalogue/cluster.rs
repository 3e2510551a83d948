//! The test of an example in a cluster: through kubectl, API server, controller and handler, and back in the status.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use knmstate_api::{
    NodeNetworkConfigurationEnactment as Enactment, NodeNetworkConfigurationPolicy as Policy,
    NodeNetworkState,
};
use kube::{Api, ResourceExt as _, api::ListParams};
use rig::{
    ApiServer, Lab, Settings, binaries,
    handler::HandlerSetup,
    role::{RoleProcess, RoleSetup},
    shell::Shell as _,
    wait::{self, Fatal},
};

use super::{
    check::{all_pass, some_fail},
    example::{Case, Example},
    node::{ExampleNode, NAME, NodeChoice},
    reported::missing,
    standalone::settled,
};

const LIMIT: Duration = Duration::from_mins(3);
const SHORT_LIMIT: Duration = Duration::from_secs(30);

/// A cluster of one node.
pub(super) struct ExampleCluster {
    pub(super) node: ExampleNode,
    policies: Api<Policy>,
    enactments: Api<Enactment>,
    states: Api<NodeNetworkState>,
    _controller: RoleProcess,
    api: ApiServer,
}

impl ExampleCluster {
    pub(super) async fn start(lab: &Lab, choice: NodeChoice) -> Result<Self> {
        let program = binaries::knmstate().await?;
        let (api, node) = tokio::try_join!(lab.api_server().start(), ExampleNode::start(lab, choice))?;
        api.install_product_objects(&Settings::default()).await?;
        api.add_ready_node(NAME).await?;
        let label = format!("kubernetes.io/hostname={NAME}");
        api.kubectl(["label", "node", NAME, &label]).await?.success()?;
        let controller = RoleSetup::controller(lab, &api, program.clone()).await?.start("a")?;
        let handler = HandlerSetup::new(lab, &api, NAME, program).await?;
        handler.env("NNCP_MAX_RETRIES", "1").start_inside(&node).await?;
        let (policies, enactments, states) =
            (Api::all(api.client()), Api::all(api.client()), Api::all(api.client()));
        Ok(Self { node, policies, enactments, states, _controller: controller, api })
    }

    pub(super) async fn run(&self, case: &Case) -> Result<()> {
        let (node, expectation) = (&self.node, &case.expectation);
        let before = settled(node).await?;
        node.run_script(&expectation.setup.join("\n"), SHORT_LIMIT).await?.success().context("setup")?;

        self.apply(&case.example).await?;
        all_pass(&expectation.kernel, node).await?;
        let enactment = self.enactments.get(&format!("{NAME}.{}", case.example.policy)).await?;
        let desired = serde_json::to_value(enactment.status.desired_state)?;
        wait::until(SHORT_LIMIT, "the node state to show it", async || {
            let reported = serde_json::to_value(self.states.get(NAME).await?.status.current_state)?;
            let missing = missing(&desired, &reported, &expectation.unreported);
            ensure!(missing.is_empty(), "not reported: {}", missing.join("\n"));
            Ok(())
        })
        .await?;
        // Deleting a policy undoes nothing, but the removal would be refused because it conflicts with it.
        self.delete(&case.example).await?;

        let removal = case.removal.as_ref().context("there is no example that removes it")?;
        self.apply(removal).await.context("removal")?;
        self.delete(removal).await?;
        ensure!(some_fail(&expectation.kernel, node).await, "the checks pass after the removal");
        node.run_script(&expectation.cleanup.join("\n"), SHORT_LIMIT).await?.success().context("cleanup")?;
        before.wait_until_restored_on(node, SHORT_LIMIT).await.context("after the removal")
    }

    /// Applies a policy, and waits until it is available.
    async fn apply(&self, example: &Example) -> Result<()> {
        let file = example.path.display().to_string();
        self.api.kubectl(["apply", "-f", &file]).await?.success()?;
        wait::until(LIMIT, &format!("{} to be available", example.policy), async || {
            let status = self.policies.get(&example.policy).await?.status;
            let condition = status.conditions.first_true().context("it has no condition yet")?;
            let shown = format!("{}: {}", condition.type_, condition.message);
            if condition.type_ == "Degraded" {
                return Err(Fatal(format!("{shown}; {}", self.messages().await?)).into());
            }
            ensure!(condition.type_ == "Available", shown);
            Ok(())
        })
        .await
    }

    async fn delete(&self, example: &Example) -> Result<()> {
        self.api.kubectl(["delete", "nncp", &example.policy, "--wait=true"]).await?.success()?;
        wait::until(SHORT_LIMIT, "the enactment to be deleted", async || {
            let left = self.enactments.list(&ListParams::default()).await?;
            ensure!(left.items.is_empty(), "{} is left", left.items[0].name_any());
            Ok(())
        })
        .await
    }

    /// The messages of all enactments.
    async fn messages(&self) -> Result<String> {
        let all = self.enactments.list(&ListParams::default()).await?;
        let conditions = all.iter().filter_map(|one| one.status.conditions.first_true());
        Ok(conditions.map(|condition| condition.message.clone()).collect::<Vec<_>>().join("\n"))
    }
}
