//! What an example goes through in a cluster: kubectl, API server, controller, handler, and the way back.

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
    course::at_rest,
    example::{Case, Example},
    reported::missing,
    stage::{NAME, Node, Stage},
};

const LIMIT: Duration = Duration::from_mins(3);
const SOON: Duration = Duration::from_secs(30);

/// A cluster of one node.
pub(super) struct Cluster {
    pub(super) stage: Stage,
    policies: Api<Policy>,
    enactments: Api<Enactment>,
    states: Api<NodeNetworkState>,
    _controller: RoleProcess,
    api: ApiServer,
}

impl Cluster {
    pub(super) async fn start(lab: &Lab, node: Node) -> Result<Self> {
        let program = binaries::knmstate().await?;
        let (api, stage) = tokio::try_join!(lab.api_server().start(), Stage::start(lab, node))?;
        api.admit_product(&Settings::default()).await?;
        api.add_ready_node(NAME).await?;
        let label = format!("kubernetes.io/hostname={NAME}");
        api.kubectl(["label", "node", NAME, &label]).await?.success()?;
        let controller = RoleSetup::controller(lab, &api, program.clone()).await?.start("a")?;
        let handler = HandlerSetup::new(lab, &api, NAME, program).await?;
        handler.env("NNCP_MAX_RETRIES", "1").start_inside(&stage).await?;
        let (policies, enactments, states) =
            (Api::all(api.client()), Api::all(api.client()), Api::all(api.client()));
        Ok(Self { stage, policies, enactments, states, _controller: controller, api })
    }

    pub(super) async fn walk(&self, case: &Case) -> Result<()> {
        let (stage, expectation) = (&self.stage, &case.expectation);
        let before = at_rest(stage).await?;
        stage.lines(&expectation.given.join("\n"), SOON).await?.success().context("what is given")?;

        self.apply(&case.example).await?;
        all_pass(&expectation.kernel, stage).await?;
        let enactment = self.enactments.get(&format!("{NAME}.{}", case.example.policy)).await?;
        let desired = serde_json::to_value(enactment.status.desired_state)?;
        wait::until(SOON, "the node to report it", async || {
            let reported = serde_json::to_value(self.states.get(NAME).await?.status.current_state)?;
            let missing = missing(&desired, &reported, &expectation.unreported);
            ensure!(missing.is_empty(), "not reported: {}", missing.join("\n"));
            Ok(())
        })
        .await?;
        // Nothing is undone by taking a policy away, and two that contradict each other would be refused.
        self.delete(&case.example).await?;

        let removal = case.removal.as_ref().context("nothing takes it away")?;
        self.apply(removal).await.context("removal")?;
        self.delete(removal).await?;
        ensure!(some_fail(&expectation.kernel, stage).await, "what is expected is so after the removal");
        stage.lines(&expectation.undo.join("\n"), SOON).await?.success().context("undo")?;
        before.is_again_on(stage, SOON).await.context("after the removal")
    }

    /// Applies a policy, and waits until it is available.
    async fn apply(&self, example: &Example) -> Result<()> {
        let file = example.path.display().to_string();
        self.api.kubectl(["apply", "-f", &file]).await?.success()?;
        wait::until(LIMIT, &format!("{} to be available", example.policy), async || {
            let status = self.policies.get(&example.policy).await?.status;
            let said = status.conditions.first_true().context("it says nothing yet")?;
            let so = format!("{}: {}", said.type_, said.message);
            if said.type_ == "Degraded" {
                return Err(Fatal(format!("{so}; {}", self.why().await?)).into());
            }
            ensure!(said.type_ == "Available", so);
            Ok(())
        })
        .await
    }

    async fn delete(&self, example: &Example) -> Result<()> {
        self.api.kubectl(["delete", "nncp", &example.policy, "--wait=true"]).await?.success()?;
        wait::until(SOON, "the order to be gone", async || {
            let left = self.enactments.list(&ListParams::default()).await?;
            ensure!(left.items.is_empty(), "{} is left", left.items[0].name_any());
            Ok(())
        })
        .await
    }

    /// What the node says.
    async fn why(&self) -> Result<String> {
        let all = self.enactments.list(&ListParams::default()).await?;
        let said = all.iter().filter_map(|one| one.status.conditions.first_true());
        Ok(said.map(|condition| condition.message.clone()).collect::<Vec<_>>().join("\n"))
    }
}
