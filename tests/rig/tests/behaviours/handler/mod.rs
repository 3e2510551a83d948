//! `knmstate handler` on a real NetworkManager and a real API server, with no more than its own rights. The test
//! writes the orders, in place of the controller.

mod disk;
mod ephemeral;
mod lldp;
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
const SHORT_LIMIT: Duration = Duration::from_secs(20);
/// How long after the last write no other write can follow from it.
const QUIET_TIME: Duration = Duration::from_secs(3);

/// A cluster with one node, and how to start its handler.
struct HandlerFixture {
    api: ApiServer,
    node: NmNode,
    setup: HandlerSetup,
    enactments: Api<Enactment>,
    states: Api<NodeNetworkState>,
    lab: Lab,
}

impl HandlerFixture {
    async fn new() -> Result<Self> {
        let program = binaries::knmstate().await?;
        let lab = Lab::new().await?;
        lab.gateway().on().await?;
        lab.dns().on().await?;
        let node = lab.nm_node(NODE);
        let (api, node) = tokio::try_join!(lab.api_server().start(), node.start())?;
        node.settle().await?;
        api.install_product_objects(&Settings::default()).await?;
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

    /// Writes an order as the controller does; `rest` has the fields that not every order has.
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

    /// Orders a bridge with an address, and waits until it is applied and reported.
    async fn apply_bridge(&self) -> Result<()> {
        self.order("bridge", "Apply", &with_address(), &json!({})).await?;
        let status = self.settled("bridge").await?;
        ensure!(shown(&status) == "Available SuccessfullyConfigured", "{status}");
        self.until_reported("10.98.0.77", SHORT_LIMIT).await
    }

    async fn status(&self, policy: &str) -> Result<Value> {
        let enactment = self.enactments.get(&names::enactment_name(NODE, policy)).await?;
        Ok(serde_json::to_value(enactment.status)?)
    }

    /// An order as the handler keeps it on the node's disk.
    fn on_disk(&self, policy: &str) -> Result<Value> {
        let text =
            std::fs::read_to_string(self.setup.state_directory().join(format!("orders/{policy}.json")))?;
        Ok(serde_json::from_str(&text)?)
    }

    /// Waits until the status of an order shows that it is applied or has failed for good.
    async fn settled(&self, policy: &str) -> Result<Value> {
        wait::until(LIMIT, "the order to be finished", async || {
            let status = self.status(policy).await?;
            let shown = shown(&status);
            ensure!(shown.starts_with("Available") || shown == "Failing FailedToConfigure", "{status}");
            Ok(status)
        })
        .await
    }

    /// Waits until the node state in the cluster mentions a text, such as an address.
    async fn until_reported(&self, text: &str, limit: Duration) -> Result<()> {
        wait::until(limit, &format!("{text} in the node state"), async || {
            let state = self.states.get(NODE).await?;
            ensure!(serde_json::to_string(&state.status)?.contains(text), "it is not there");
            Ok(())
        })
        .await
    }

    /// Waits until the node itself has a text, such as an address, in its network.
    async fn until_present(&self, text: &str, limit: Duration) -> Result<()> {
        wait::until(limit, text, async || {
            ensure!(self.node.snapshot().await?.mentions(text), "it is not there");
            Ok(())
        })
        .await
    }

    /// Waits until the handler has not written anything for a while. Returns how many writes it has made by then.
    async fn until_quiet(&self) -> Result<u64> {
        let mut known = (self.api.writes_of_handlers().await?, Instant::now());
        wait::until(LIMIT, "the handler to stop writing", async || {
            let writes = self.api.writes_of_handlers().await?;
            if writes != known.0 {
                known = (writes, Instant::now());
            }
            ensure!(known.1.elapsed() >= QUIET_TIME, "{writes} writes");
            Ok(writes)
        })
        .await
    }

    /// The resource versions of all that the handler writes.
    async fn versions(&self, policy: &str) -> Result<[Option<String>; 2]> {
        let enactment = self.enactments.get(&names::enactment_name(NODE, policy)).await?;
        Ok([enactment.resource_version(), self.states.get(NODE).await?.resource_version()])
    }

    /// Records every change of the node's network from now on, once the network has settled.
    async fn monitor(&self) -> Result<Monitor> {
        self.node.monitor(&self.lab.directory().join("monitor.log")).await
    }

    /// Checks that the monitor records changes at all.
    async fn check_monitor(&self, monitor: &Monitor) -> Result<()> {
        let before = monitor.messages();
        self.node.exec(["ip", "addr", "add", "10.97.0.99/24", "dev", "eth2"]).await?.success()?;
        wait::until(SHORT_LIMIT, "the monitor to record the change", async || {
            ensure!(monitor.messages() != before, "it records nothing");
            Ok(())
        })
        .await
    }
}

/// The message of the condition Failing, if it is true.
fn message(status: &Value) -> String {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let failing = conditions.filter(|one| one["type"] == "Failing" && one["status"] == "True");
    failing.filter_map(|one| one["message"].as_str()).collect()
}
