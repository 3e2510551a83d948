//! The product as its users run it: controllers and handlers as processes with their own tokens, a real API server,
//! real NetworkManagers, and kubectl.

mod adoption;
mod failing_node;
mod node_states;
mod policies;
pub(crate) mod recording;

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use knmstate_api::{
    NodeNetworkConfigurationEnactment as Enactment, NodeNetworkConfigurationPolicy as Policy,
    NodeNetworkState,
};
use kube::{Api, ResourceExt as _, api::ListParams};
use rig::{
    ApiServer, Lab, NmNode, NmNodeBuilder, Settings, binaries,
    handler::{Handler, HandlerSetup},
    role::RoleSetup,
    wait,
};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_mins(1);
const AVAILABLE: [&str; 3] = ["Available", "SuccessfullyConfigured", "3/3 nodes successfully configured"];

/// Nodes, and an API server that has the CRDs and nothing else of the product.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<NmNode>,
    pub(crate) api: ApiServer,
    pub(crate) policies: Api<Policy>,
    pub(crate) enactments: Api<Enactment>,
    pub(crate) states: Api<NodeNetworkState>,
    pub(crate) lab: Lab,
}

impl Cluster {
    /// Starts `node1`, `node2` and so on; `configure` changes the builder of each, by its number.
    pub(crate) async fn new(
        count: usize,
        configure: impl Fn(usize, NmNodeBuilder) -> NmNodeBuilder,
    ) -> Result<Self> {
        let lab = Lab::new().await?;
        lab.dns().on().await?;
        lab.dhcp().on().await?;
        let nodes =
            (1..=count).map(|number| configure(number, lab.nm_node(&format!("node{number}"))).start());
        let (api, nodes) = tokio::try_join!(
            async {
                let api = lab.api_server().start().await?;
                api.install_crds().await?;
                Ok(api)
            },
            try_join_all(nodes),
        )?;
        for node in &nodes {
            // There is no IPv6 router here, so a node that waits for one would never settle.
            let link_local = ["nmcli", "connection", "modify", "eth0", "ipv6.method", "link-local"];
            node.exec(link_local).await?.success()?;
            node.settle().await?;
            api.add_ready_node(node.name()).await?;
        }
        let (policies, enactments, states) =
            (Api::all(api.client()), Api::all(api.client()), Api::all(api.client()));
        Ok(Self { nodes, api, policies, enactments, states, lab })
    }

    /// Installs the product, without starting any of it.
    pub(crate) async fn install(&self, settings: &Settings) -> Result<Installed> {
        let program = binaries::knmstate().await?;
        self.api.apply_product_objects(settings).await?;
        let controllers = RoleSetup::controller(&self.lab, &self.api, program.clone()).await?;
        let mut handlers = Vec::new();
        for node in &self.nodes {
            let setup = HandlerSetup::new(&self.lab, &self.api, node.name(), program.clone()).await?;
            handlers.push(setup.env("NNCP_MAX_RETRIES", "2"));
        }
        Ok(Installed { controllers, handlers })
    }

    /// Starts the handlers of all nodes.
    pub(crate) async fn handlers(&self, installed: &Installed) -> Result<Vec<Handler>> {
        let pairs = self.nodes.iter().zip(&installed.handlers);
        let mut handlers = pairs.map(|(node, setup)| setup.start(node)).collect::<Result<Vec<_>>>()?;
        for handler in &mut handlers {
            handler.until_ready().await?;
        }
        Ok(handlers)
    }

    pub(crate) async fn apply(&self, object: &Value) -> Result<()> {
        self.api.kubectl_with(&object.to_string(), ["apply", "-f", "-"]).await?.success()?;
        Ok(())
    }

    /// Waits until the true condition of a policy has this type, reason and message.
    pub(crate) async fn until_condition(&self, policy: &str, expected: [&str; 3]) -> Result<()> {
        let reached = wait::until(LIMIT, &format!("{policy} to be {expected:?}"), async || {
            let policy = self.policies.get(policy).await?;
            let condition = policy.status.conditions.first_true().context("it has no condition yet")?;
            let shown = [&condition.type_, &condition.reason, &condition.message].map(|text| &**text);
            ensure!(shown == expected, "{shown:?}");
            Ok(())
        })
        .await;
        if reached.is_err() {
            println!("{}", self.api.kubectl(["get", "nncp,nnce,events", "-A", "-o", "wide"]).await?.stdout());
            for one in &self.enactments.list(&ListParams::default()).await? {
                println!("{}: {}", one.name_any(), serde_json::to_string(&one.status.conditions)?);
            }
        }
        reached
    }

    /// Type, reason and message of the true condition of each enactment of a policy.
    pub(crate) async fn enactments_of(&self, policy: &str) -> Result<BTreeMap<String, [String; 3]>> {
        let selected = ListParams::default().labels(&format!("nmstate.io/policy={policy}"));
        let shown = |one: &Enactment| {
            let condition = one.status.conditions.first_true().cloned().unwrap_or_default();
            (one.name_any(), [condition.type_, condition.reason, condition.message])
        };
        Ok(self.enactments.list(&selected).await?.iter().map(shown).collect())
    }

    /// Events of a policy: type, reason, source and message.
    pub(crate) async fn events_of(&self, policy: &str) -> Result<Vec<[String; 4]>> {
        let selector = format!("--field-selector=involvedObject.name={policy}");
        let list =
            self.api.kubectl(["get", "events", "-n", "default", &selector, "-o", "json"]).await?.json()?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let events = list["items"].as_array().into_iter().flatten();
        let mut events: Vec<_> = events
            .map(|event| {
                [&event["type"], &event["reason"], &event["source"]["component"], &event["message"]].map(text)
            })
            .collect();
        events.sort();
        Ok(events)
    }
}

/// How to start the processes of the product.
pub(crate) struct Installed {
    pub(crate) controllers: RoleSetup,
    /// In the order of the nodes.
    pub(crate) handlers: Vec<HandlerSetup>,
}

pub(crate) fn policy(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "nmstate.io/v1",
        "kind": "NodeNetworkConfigurationPolicy",
        "metadata": {"name": name},
        "spec": spec,
    })
}

/// An Ethernet interface with this MTU.
fn nic(name: &str, mtu: u32) -> Value {
    json!({"interfaces": [{"name": name, "type": "ethernet", "state": "up", "mtu": mtu}]})
}

/// The MTU of an interface, as the kernel has it.
async fn mtu(node: &NmNode, interface: &str) -> Result<Value> {
    Ok(node.exec(["ip", "-j", "link", "show", interface]).await?.json()?[0]["mtu"].clone())
}

/// The rows of a table of kubectl, split into columns.
fn table(text: &str) -> Vec<Vec<&str>> {
    let columns = |line| str::split(line, "   ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
    text.lines().map(columns).collect()
}
