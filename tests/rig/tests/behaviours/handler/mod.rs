//! `knmstate handler` on a real NetworkManager and a real API server, with no more than its own rights. Orders are
//! given by the test, in place of the controller.

mod ephemeral;
mod neighbours;
mod orders;
mod outages;
mod recording;
mod reports;
mod restarts;

use std::time::Duration;

use anyhow::{Result, ensure};
use knmstate_api::{NodeNetworkConfigurationEnactment as Enactment, NodeNetworkState, names};
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams},
};
use rig::{
    ApiServer, Lab, NmNode, Settings, binaries,
    handler::{Handler, HandlerSetup},
    monitor::Monitor,
    wait,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::standalone::{shown, with_address};

const NODE: &str = "node1";
const LIMIT: Duration = Duration::from_mins(3);
const SOON: Duration = Duration::from_secs(20);
/// As long as this after the last write, nothing follows from it any more.
const QUIET: Duration = Duration::from_secs(3);

/// A cluster with one node, and how to start its handler.
struct Trial {
    api: ApiServer,
    node: NmNode,
    setup: HandlerSetup,
    enactments: Api<Enactment>,
    states: Api<NodeNetworkState>,
    lab: Lab,
}

impl Trial {
    async fn new() -> Result<Self> {
        let program = binaries::knmstate().await?;
        let lab = Lab::new().await?;
        lab.gateway().on().await?;
        lab.dns().on().await?;
        let node = lab.nm_node(NODE);
        let (api, node) = tokio::try_join!(lab.api_server().start(), node.start())?;
        node.come_to_rest().await?;
        api.admit_product(&Settings::default()).await?;
        api.add_ready_node(NODE).await?;
        let setup = HandlerSetup::new(&lab, &api, NODE, program).await?;
        let (enactments, states) = (Api::all(api.client()), Api::all(api.client()));
        Ok(Self { api, node, setup, enactments, states, lab })
    }

    async fn handler(&self) -> Result<Handler> {
        let mut handler = self.setup.start(&self.node)?;
        handler.until_ready().await?;
        Ok(handler)
    }

    /// Gives an order as the controller does; `rest` is what it has besides what every order has.
    async fn order(&self, policy: &str, permit: &str, desired: &Value, rest: &Value) -> Result<()> {
        let mut spec = rest.clone();
        spec["nodeName"] = json!(NODE);
        spec["policyName"] = json!(policy);
        spec["policyGeneration"] = json!(1);
        spec["permit"] = json!(permit);
        spec["desiredState"] = desired.clone();
        let name = names::enactment_name(NODE, policy);
        let enactment = json!({
            "apiVersion": "nmstate.io/v1beta1",
            "kind": "NodeNetworkConfigurationEnactment",
            "metadata": {"name": name, "labels": {names::NODE_LABEL: NODE, names::POLICY_LABEL: policy}},
            "spec": spec,
        });
        self.enactments.patch(&name, &PatchParams::apply("controller"), &Patch::Apply(enactment)).await?;
        Ok(())
    }

    /// A bridge with an address, ordered and there.
    async fn bridge(&self) -> Result<()> {
        self.order("bridge", "Apply", &with_address(), &json!({})).await?;
        let status = self.settled("bridge").await?;
        ensure!(shown(&status) == "Available SuccessfullyConfigured", "{status}");
        self.shows("10.98.0.77", SOON).await
    }

    async fn status(&self, policy: &str) -> Result<Value> {
        let enactment = self.enactments.get(&names::enactment_name(NODE, policy)).await?;
        Ok(serde_json::to_value(enactment.status)?)
    }

    /// What is kept of an order on the node's disk.
    fn on_disk(&self, policy: &str) -> Result<Value> {
        let text = std::fs::read_to_string(self.setup.state_folder().join(format!("orders/{policy}.json")))?;
        Ok(serde_json::from_str(&text)?)
    }

    /// Waits until an order is carried out or has failed for good, and that is known in the cluster.
    async fn settled(&self, policy: &str) -> Result<Value> {
        wait::until(LIMIT, "the order to be settled", async || {
            let status = self.status(policy).await?;
            let shown = shown(&status);
            ensure!(shown.starts_with("Available") || shown == "Failing FailedToConfigure", "{status}");
            Ok(status)
        })
        .await
    }

    /// Waits until the node state in the cluster mentions a text, such as an address.
    async fn shows(&self, text: &str, limit: Duration) -> Result<()> {
        wait::until(limit, &format!("{text} in the node state"), async || {
            let state = self.states.get(NODE).await?;
            ensure!(serde_json::to_string(&state.status)?.contains(text), "it is not there");
            Ok(())
        })
        .await
    }

    /// Waits until the node itself has a text, such as an address, in its network.
    async fn has(&self, text: &str, limit: Duration) -> Result<()> {
        wait::until(limit, text, async || {
            ensure!(self.node.snapshot().await?.mentions(text), "it is not there");
            Ok(())
        })
        .await
    }

    /// Waits until the handler has had nothing to write for a while; how many writes it has made by then.
    async fn quiet(&self) -> Result<u64> {
        let mut known = (self.api.writes_of_handlers().await?, Instant::now());
        wait::until(LIMIT, "the handler to be quiet", async || {
            let writes = self.api.writes_of_handlers().await?;
            if writes != known.0 {
                known = (writes, Instant::now());
            }
            ensure!(known.1.elapsed() >= QUIET, "{writes} writes");
            Ok(writes)
        })
        .await
    }

    /// Versions of all that the handler writes, which move with every write that changes anything.
    async fn versions(&self, policy: &str) -> Result<[Option<String>; 2]> {
        let enactment = self.enactments.get(&names::enactment_name(NODE, policy)).await?;
        Ok([enactment.resource_version(), self.states.get(NODE).await?.resource_version()])
    }

    /// Listens to everything that the kernel of the node is told, once the kernel itself has come to rest.
    async fn monitor(&self) -> Result<Monitor> {
        self.node.monitor(&self.lab.folder().join("monitor.log")).await
    }

    /// Proves that the monitor hears anything at all.
    async fn would_have_heard(&self, monitor: &Monitor) -> Result<()> {
        let heard = monitor.heard();
        self.node.exec(["ip", "addr", "add", "10.97.0.99/24", "dev", "eth2"]).await?.success()?;
        wait::until(SOON, "the monitor", async || {
            ensure!(monitor.heard() != heard, "it hears nothing");
            Ok(())
        })
        .await
    }
}

/// The condition that is true, in words.
fn message(status: &Value) -> String {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let failing = conditions.filter(|one| one["type"] == "Failing" && one["status"] == "True");
    failing.filter_map(|one| one["message"].as_str()).collect()
}
