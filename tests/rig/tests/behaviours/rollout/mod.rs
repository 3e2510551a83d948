//! Policies on many nodes: real controllers, a real API server, real handlers on simulated machines.

mod controller_pair;
mod hand_over;
mod handler_kills;
mod leader_kills;
mod long_names;
mod node_events;
mod policy_events;
mod pools;
mod random;
mod recorded_rollout;
mod recorder;
mod recording;
mod server_faults;
mod traffic;
mod unreadable;

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Node;
use knmstate_api::{
    NodeNetworkConfigurationEnactment as Enactment, NodeNetworkConfigurationPolicy as Policy,
};
use knmstate_operator::Settings;
use kube::{
    Api, ResourceExt as _,
    api::{ListParams, Patch, PatchParams},
};
use rig::{
    ApiServer, Lab, binaries,
    fleet::{Fleet, FleetOptions},
    role::RoleSetup,
    wait,
};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_mins(1);

/// A cluster of simulated nodes.
struct FleetCluster {
    fleet: Fleet,
    controllers: RoleSetup,
    policies: Api<Policy>,
    enactments: Api<Enactment>,
    api: ApiServer,
    _lab: Lab,
}

impl FleetCluster {
    async fn new(options: FleetOptions) -> Result<Self> {
        Self::with(async |lab, api| Fleet::new(lab, api, options).await).await
    }

    /// A cluster with these nodes.
    async fn with_nodes(names: &[String]) -> Result<Self> {
        Self::with(async |lab, api| Fleet::with_names(lab, api, names.to_vec(), Duration::ZERO).await).await
    }

    async fn with(fleet: impl AsyncFnOnce(&Lab, &ApiServer) -> Result<Fleet>) -> Result<Self> {
        let program = binaries::knmstate().await?;
        let lab = Lab::new().await?;
        let api = lab.api_server().start().await?;
        api.install_product_objects(&Settings::default()).await?;
        let mut fleet = fleet(&lab, &api).await?;
        fleet.start().await?;
        let controllers = RoleSetup::controller(&lab, &api, program).await?;
        let (policies, enactments) = (Api::all(api.client()), Api::all(api.client()));
        Ok(Self { fleet, controllers, policies, enactments, api, _lab: lab })
    }

    async fn apply(&self, name: &str, spec: &Value) -> Result<()> {
        let policy = json!({
            "apiVersion": "nmstate.io/v1",
            "kind": "NodeNetworkConfigurationPolicy",
            "metadata": {"name": name},
            "spec": spec,
        });
        self.api.kubectl_with(&policy.to_string(), ["apply", "-f", "-"]).await?.success()?;
        Ok(())
    }

    /// Sets or removes a label of a node.
    async fn label(&self, node: &str, key: &str, value: Option<&str>) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.api.client());
        let patch = Patch::Merge(json!({"metadata": {"labels": {key: value}}}));
        nodes.patch(node, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Type, reason and message of the true condition of a policy.
    async fn condition(&self, policy: &str) -> Result<[String; 3]> {
        let policy = self.policies.get(policy).await?;
        let condition = policy.status.conditions.first_true().context("it has no condition yet")?;
        Ok([&condition.type_, &condition.reason, &condition.message].map(String::clone))
    }

    async fn until_condition(&self, policy: &str, expected: [&str; 3]) -> Result<()> {
        let reached = wait::until(LIMIT, &format!("{policy} to be {expected:?}"), async || {
            let condition = self.condition(policy).await?;
            ensure!(condition == expected, "{condition:?}");
            Ok(())
        })
        .await;
        if reached.is_err() {
            self.print_diagnostics().await;
        }
        reached
    }

    /// Prints all enactments and the logs of the controllers, for a failed test.
    async fn print_diagnostics(&self) {
        let enactments = self.enactments.list(&ListParams::default()).await;
        for one in enactments.iter().flatten() {
            let order = one.spec.as_ref().map(|spec| (spec.policy_generation, spec.permit));
            let message = one.status.conditions.first_true().map(|condition| &*condition.message);
            println!(
                "{}: order {order:?}; status of generation {}: {}",
                one.name_any(),
                one.status.policy_generation,
                message.unwrap_or_default()
            );
        }
        println!("{}", self.controllers.logs(20));
    }
}

/// A bond with a VLAN on top.
fn bond() -> Value {
    json!({"desiredState": {"interfaces": [
        {"name": "bond0", "type": "bond", "state": "up",
         "link-aggregation": {"mode": "active-backup", "port": ["eth1", "eth2"]}},
        {"name": "bond0.102", "type": "vlan", "state": "up", "vlan": {"base-iface": "bond0", "id": 102}},
    ]}})
}
