//! The product on a kernel that has bonds and VLANs: a real API server, a controller, and the handler of a User Mode
//! Linux node.

mod example;
mod failover;
mod pings;
mod primary;

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use knmstate_api::{
    NodeNetworkConfigurationEnactment as Enactment, NodeNetworkConfigurationPolicy as Policy,
    NodeNetworkState,
};
use kube::Api;
use rig::{
    ApiServer, Lab, Settings, UmlNode, binaries,
    handler::{HandlerSetup, LOG_INSIDE},
    role::{RoleProcess, RoleSetup},
    wait,
};
use serde_json::Value;

const LIMIT: Duration = Duration::from_mins(3);
const NODE: &str = "node1";

/// A cluster with one such node, and a controller. The handler is not started.
struct FullKernelFixture {
    node: UmlNode,
    api: ApiServer,
    policies: Api<Policy>,
    enactments: Api<Enactment>,
    states: Api<NodeNetworkState>,
    controllers: RoleSetup,
    _controller: RoleProcess,
    lab: Lab,
}

impl FullKernelFixture {
    async fn new() -> Result<Self> {
        let program = binaries::knmstate().await?;
        let lab = Lab::new().await?;
        let (api, node) = tokio::try_join!(lab.api_server().start(), lab.uml_node(NODE).start())?;
        api.install_product_objects(&Settings::default()).await?;
        api.add_ready_node(NODE).await?;
        let controllers = RoleSetup::controller(&lab, &api, program).await?;
        let controller = controllers.start("a")?;
        let (policies, enactments, states) =
            (Api::all(api.client()), Api::all(api.client()), Api::all(api.client()));
        Ok(Self { node, api, policies, enactments, states, controllers, _controller: controller, lab })
    }

    /// Starts the handler of the node, with the usual address of the API server.
    async fn handler(&self) -> Result<()> {
        let token = self.api.handler_token(NODE).await?;
        self.handler_with(&self.api.kubeconfig_with_token(&token)).await
    }

    /// Starts the handler of the node with this kubeconfig.
    async fn handler_with(&self, kubeconfig: &str) -> Result<()> {
        // Reading the state is slow here: the kernel is a process, and the program is not optimised.
        HandlerSetup::with_kubeconfig(&self.lab, kubeconfig, NODE, binaries::knmstate().await?)?
            .arg("--report-cpu=100")
            .env("NNCP_MAX_RETRIES", "1")
            .start_inside(&self.node)
            .await?;
        wait::until(LIMIT, "the first report of the node", async || {
            self.states.get(NODE).await?.status.last_successful_update_time.context("no report yet").map(drop)
        })
        .await
    }

    async fn apply(&self, object: &Value) -> Result<()> {
        self.api.kubectl_with(&object.to_string(), ["apply", "-f", "-"]).await?.success()?;
        Ok(())
    }

    /// Waits until the true condition of a policy has this type and a message that contains this text.
    async fn until_condition(&self, policy: &str, type_: &str, message: &str) -> Result<()> {
        let reached = wait::until(LIMIT, &format!("{policy} to be {type_}"), async || {
            let status = self.policies.get(policy).await?.status;
            let condition = status.conditions.first_true().context("it has no condition yet")?;
            ensure!(
                condition.type_ == type_ && condition.message.contains(message),
                "{}: {}",
                condition.type_,
                condition.message
            );
            Ok(())
        })
        .await;
        if reached.is_err() {
            println!(
                "{}\n{}",
                self.node.exec(["tail", "-n", "20", LOG_INSIDE]).await?.stdout(),
                self.controllers.logs(10)
            );
        }
        reached
    }

    /// The message of the node's enactment of a policy.
    async fn message(&self, policy: &str) -> Result<String> {
        let status = self.enactments.get(&format!("{NODE}.{policy}")).await?.status;
        Ok(status.conditions.first_true().context("it has no condition")?.message.clone())
    }

    /// An interface as the node's report has it, or nothing.
    async fn reported(&self, interface: &str) -> Result<Value> {
        let status = serde_json::to_value(self.states.get(NODE).await?.status)?;
        let interfaces = status["currentState"]["interfaces"].as_array().cloned().unwrap_or_default();
        Ok(interfaces.into_iter().find(|one| one["name"] == interface).unwrap_or_default())
    }

    /// A link in the kernel, with its addresses.
    async fn link(&self, interface: &str) -> Result<Value> {
        let links = self.node.exec(["ip", "-j", "-d", "address", "show"]).await?.json()?;
        let links = links.as_array().cloned().unwrap_or_default();
        Ok(links.into_iter().find(|one| one["ifname"] == interface).unwrap_or_default())
    }
}

/// The addresses of a link, without those that every link has.
fn addresses(link: &Value) -> Vec<&str> {
    let all = link["addr_info"].as_array().into_iter().flatten();
    all.filter(|one| one["scope"] == "global").filter_map(|one| one["local"].as_str()).collect()
}
