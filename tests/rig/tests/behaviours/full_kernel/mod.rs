//! The product on a kernel that has bonds and VLANs: a real API server, a controller, and the handler of a node that is
//! User Mode Linux.

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
struct Trial {
    node: UmlNode,
    api: ApiServer,
    policies: Api<Policy>,
    enactments: Api<Enactment>,
    states: Api<NodeNetworkState>,
    controllers: RoleSetup,
    _controller: RoleProcess,
    lab: Lab,
}

impl Trial {
    async fn new() -> Result<Self> {
        let program = binaries::knmstate().await?;
        let lab = Lab::new().await?;
        let (api, node) = tokio::try_join!(lab.api_server().start(), lab.uml_node(NODE).start())?;
        api.admit_product(&Settings::default()).await?;
        api.add_ready_node(NODE).await?;
        let controllers = RoleSetup::controller(&lab, &api, program).await?;
        let controller = controllers.start("a")?;
        let (policies, enactments, states) =
            (Api::all(api.client()), Api::all(api.client()), Api::all(api.client()));
        Ok(Self { node, api, policies, enactments, states, controllers, _controller: controller, lab })
    }

    /// Starts the handler of the node, by the usual way to the API server.
    async fn handler(&self) -> Result<()> {
        let token = self.api.handler_token(NODE).await?;
        self.handler_with(&self.api.kubeconfig_with_token(&token)).await
    }

    /// Starts the handler of the node, by this way.
    async fn handler_with(&self, kubeconfig: &str) -> Result<()> {
        // Reading is dear here, on a kernel that is a process, by a program that is not optimised.
        HandlerSetup::by(&self.lab, kubeconfig, NODE, binaries::knmstate().await?)?
            .arg("--report-cpu=100")
            .env("NNCP_MAX_RETRIES", "1")
            .start_inside(&self.node)
            .await?;
        wait::until(LIMIT, "the node to be reported", async || {
            self.states.get(NODE).await?.status.last_successful_update_time.context("nothing yet").map(drop)
        })
        .await
    }

    async fn apply(&self, object: &Value) -> Result<()> {
        self.api.kubectl_with(&object.to_string(), ["apply", "-f", "-"]).await?.success()?;
        Ok(())
    }

    /// Waits until the condition of a policy that is true is of this type, and says this or a sentence with it.
    async fn until_says(&self, policy: &str, type_: &str, message: &str) -> Result<()> {
        let reached = wait::until(LIMIT, &format!("{policy} to be {type_}"), async || {
            let status = self.policies.get(policy).await?.status;
            let said = status.conditions.first_true().context("it says nothing yet")?;
            ensure!(
                said.type_ == type_ && said.message.contains(message),
                "{}: {}",
                said.type_,
                said.message
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

    /// What the node says of a policy.
    async fn message(&self, policy: &str) -> Result<String> {
        let status = self.enactments.get(&format!("{NODE}.{policy}")).await?.status;
        Ok(status.conditions.first_true().context("it says nothing")?.message.clone())
    }

    /// An interface as the node's report has it, or nothing.
    async fn reported(&self, interface: &str) -> Result<Value> {
        let status = serde_json::to_value(self.states.get(NODE).await?.status)?;
        let interfaces = status["currentState"]["interfaces"].as_array().cloned().unwrap_or_default();
        Ok(interfaces.into_iter().find(|one| one["name"] == interface).unwrap_or_default())
    }

    /// What the kernel says about a link, its addresses included.
    async fn link(&self, interface: &str) -> Result<Value> {
        let links = self.node.exec(["ip", "-j", "-d", "address", "show"]).await?.json()?;
        let links = links.as_array().cloned().unwrap_or_default();
        Ok(links.into_iter().find(|one| one["ifname"] == interface).unwrap_or_default())
    }
}

/// The addresses of a link in the kernel's words, without those that every link has.
fn addresses(link: &Value) -> Vec<&str> {
    let all = link["addr_info"].as_array().into_iter().flatten();
    all.filter(|one| one["scope"] == "global").filter_map(|one| one["local"].as_str()).collect()
}
