//! Installs the cluster objects of the product without its processes: definitions, accounts, rights and admission
//! rules.

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
/// The name of the objects in the requests that wait for admission rules.
const PROBE: &str = "rig.probe";
const NMSTATE: &str = "/apis/nmstate.io/v1";

impl ApiServer {
    /// Installs the definitions and the cluster objects, and waits until the admission rules are in force.
    pub async fn install_product_objects(&self, settings: &Settings) -> Result<()> {
        self.install_crds().await?;
        self.apply_product_objects(settings).await
    }

    /// Applies the cluster objects, and waits until the admission rules are in force. The cluster must have the
    /// definitions.
    pub async fn apply_product_objects(&self, settings: &Settings) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.client());
        wait::until(LIMIT, "the namespaces of a new cluster", async || {
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
        self.wait_for_admission_rules(settings).await
    }

    /// The API server enforces new rules after a delay. So this sends one request for each rule until the rule refuses
    /// it.
    async fn wait_for_admission_rules(&self, settings: &Settings) -> Result<()> {
        // As dry runs, because a request is allowed as long as its rule is not in force.
        let policies = format!("{NMSTATE}/nodenetworkconfigurationpolicies?dryRun=All");
        let states = format!("{NMSTATE}/nodenetworkstates?dryRun=All");
        let enactments = format!("{NMSTATE}/nodenetworkconfigurationenactments");
        let enactment = format!("{enactments}/{PROBE}");
        let admin = self.client();
        let create = Request::create(&enactments, object("NodeNetworkConfigurationEnactment", PROBE));
        let answer = create.send(&admin).await?;
        ensure!(answer.status.is_success(), "{create}: {answer}");
        let user = |account: String| format!("system:serviceaccount:{}:{account}", settings.namespace);
        let handler = user(settings.handler_account());
        let controller = user(settings.controller_account());
        let namespaces = "/api/v1/namespaces";
        let secrets = format!("{namespaces}/{}/secrets?dryRun=All", settings.namespace);
        let bundle =
            format!("{namespaces}/{}/configmaps/{}", settings.namespace, settings.ca_bundle_config_map());
        let bundle = format!("{bundle}?dryRun=All");
        let leases = "/apis/coordination.k8s.io/v1/namespaces";
        let leases = format!("{leases}/{}/leases?dryRun=All", settings.namespace);
        let events = format!("{namespaces}/default/events?dryRun=All");
        let named = |api_version: &str, kind: &str| json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": PROBE}});
        let reserved = object("NodeNetworkConfigurationPolicy", names::NODE_STATE_POLICY);
        let mut managed = object("NodeNetworkState", PROBE);
        managed["spec"] = json!({"managed": true});
        let mut scripted = object("NodeNetworkConfigurationPolicy", PROBE);
        scripted["spec"] =
            json!({"desiredState": {"interfaces": [{"name": "eth1", "dispatch": {"post-activation": "x"}}]}});
        let mut event = named("v1", "Event");
        event["involvedObject"] = json!({"apiVersion": "v1", "kind": "Node", "name": PROBE});
        let empty_status = json!({"status": {}});
        let refusals = [
            ("nncp-validation-policy", Request::create(&policies, reserved)),
            (
                "nmstate-node-guard-states",
                Request::create(&states, object("NodeNetworkState", PROBE)).impersonating(&handler),
            ),
            (
                "nmstate-node-guard-enactments",
                Request::merge(&format!("{enactment}/status"), empty_status).impersonating(&handler),
            ),
            (
                "nmstate-controller-guard-secrets",
                Request::create(&secrets, named("v1", "Secret")).impersonating(&controller),
            ),
            (
                "nmstate-controller-guard-configmaps",
                Request::merge(&bundle, json!({"immutable": true})).impersonating(&controller),
            ),
            (
                "nmstate-controller-guard-leases",
                Request::create(&leases, named("coordination.k8s.io/v1", "Lease")).impersonating(&controller),
            ),
            ("nmstate-controller-guard-events", Request::create(&events, event).impersonating(&controller)),
            ("nns-validation-policy", Request::create(&states, managed)),
            ("dispatch-validation-policy", Request::create(&policies, scripted)),
        ];
        for (rules, request) in refusals {
            let is_switched_off = match rules {
                "nns-validation-policy" => settings.allow_node_state_configuration,
                "dispatch-validation-policy" => settings.allow_dispatch_scripts,
                _ => false,
            };
            if is_switched_off {
                continue;
            }
            wait::until(LIMIT, &format!("{rules} to be in force"), async || {
                let answer = request.send(&admin).await?;
                ensure!(answer.message.contains(rules), "{request}: {answer}");
                Ok(())
            })
            .await?;
        }
        Request::delete(&enactment).send(&admin).await?;
        Ok(())
    }

    /// Creates the pod of a node's handler in the API and sets it Ready, without a kubelet that runs it. Returns its
    /// name.
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

    /// A token for a node's handler, bound to the handler's pod. Creates the pod if it does not exist.
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
