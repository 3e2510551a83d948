//! The product in a cluster: its kinds, accounts, rights, guards and rules, as they are installed everywhere.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use knmstate_api::names;
use knmstate_operator::{Settings, cluster_objects};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{ApiServer, BoundTo, request::Request, wait};

const LIMIT: Duration = Duration::from_secs(30);
/// An enactment that is there until its guard is.
const BAIT: &str = "rig.bait";
const NMSTATE: &str = "/apis/nmstate.io/v1";

impl ApiServer {
    /// Installs the product without its processes, and waits until every rule of it is in force.
    pub async fn admit_product(&self, settings: &Settings) -> Result<()> {
        self.install_crds().await?;
        self.apply_product(settings).await
    }

    /// The same, in a cluster that has the kinds already.
    pub async fn apply_product(&self, settings: &Settings) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.client());
        wait::until(LIMIT, "the namespaces that every cluster has", async || {
            for name in ["default", "kube-node-lease"] {
                namespaces.get(name).await?;
            }
            Ok(())
        })
        .await?;
        let objects = json!({"apiVersion": "v1", "kind": "List", "items": cluster_objects(settings)});
        let manager = format!("--field-manager={}", names::OPERATOR_FIELD_MANAGER);
        let apply = ["apply", "--server-side", &manager, "-f", "-"];
        self.kubectl_with(&objects.to_string(), apply).await?.success()?;
        self.rules_are_in_force(settings).await
    }

    /// The API server takes over new rules after a while; so it is asked for what they refuse until they do.
    async fn rules_are_in_force(&self, settings: &Settings) -> Result<()> {
        // Nothing is to come of a request that no rule refuses yet.
        let policies = format!("{NMSTATE}/nodenetworkconfigurationpolicies?dryRun=All");
        let states = format!("{NMSTATE}/nodenetworkstates?dryRun=All");
        let enactments = format!("{NMSTATE}/nodenetworkconfigurationenactments");
        let bait = format!("{enactments}/{BAIT}");
        let admin = self.client();
        let put_out = Request::create(&enactments, object("NodeNetworkConfigurationEnactment", BAIT));
        let answer = put_out.send(&admin).await?;
        ensure!(answer.status.is_success(), "{put_out}: {answer}");
        let handler = format!("system:serviceaccount:{}:{}", settings.namespace, settings.handler_account());
        let reserved = object("NodeNetworkConfigurationPolicy", names::NODE_STATE_POLICY);
        let mut managed = object("NodeNetworkState", BAIT);
        managed["spec"] = json!({"managed": true});
        let nothing = json!({"status": {}});
        let refusals = [
            ("nncp-validation-policy", Request::create(&policies, reserved)),
            (
                "nmstate-node-guard-states",
                Request::create(&states, object("NodeNetworkState", BAIT)).impersonating(&handler),
            ),
            (
                "nmstate-node-guard-enactments",
                Request::merge(&format!("{bait}/status"), nothing).impersonating(&handler),
            ),
            ("nns-validation-policy", Request::create(&states, managed)),
        ];
        let expected = if settings.allow_node_state_configuration { &refusals[..3] } else { &refusals };
        for (rules, request) in expected {
            wait::until(LIMIT, &format!("{rules} to be in force"), async || {
                let answer = request.send(&admin).await?;
                ensure!(answer.message.contains(rules), "{request}: {answer}");
                Ok(())
            })
            .await?;
        }
        Request::delete(&bait).send(&admin).await?;
        Ok(())
    }

    /// The pod of a node's handler as others see it, though no kubelet runs it. Returns its name.
    pub async fn add_handler_pod(&self, node: &str) -> Result<String> {
        let Settings { namespace, .. } = Settings::default();
        let account = Settings::default().handler_account();
        let name = format!("{account}-{node}");
        let pod = json!({
            "metadata": {
                "name": name,
                "labels": {names::APP_LABEL: names::APP, names::COMPONENT_LABEL: names::HANDLER_COMPONENT},
            },
            "spec": {
                "nodeName": node,
                "serviceAccountName": account,
                "containers": [{"name": "nmstate-handler", "image": "knmstate"}],
                "tolerations": [{"operator": "Exists"}],
            },
        });
        let pods: Api<Pod> = Api::namespaced(self.client(), &namespace);
        pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
        let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
        let ready = Patch::Merge(json!({"status": ready}));
        pods.patch_status(&name, &PatchParams::default(), &ready).await?;
        Ok(name)
    }

    /// The token of a node's handler: bound to its pod, which is made if it is not there.
    pub async fn handler_token(&self, node: &str) -> Result<String> {
        let Settings { namespace, .. } = Settings::default();
        let account = Settings::default().handler_account();
        let name = format!("{account}-{node}");
        let pods: Api<Pod> = Api::namespaced(self.client(), &namespace);
        if pods.get_opt(&name).await?.is_none() {
            self.add_handler_pod(node).await?;
        }
        self.token(&namespace, &account, BoundTo::Pod(&name)).await
    }
}

fn object(kind: &str, name: &str) -> Value {
    json!({"apiVersion": "nmstate.io/v1", "kind": kind, "metadata": {"name": name}})
}
