//! `knmstate operator` as a process on a real API server without kubelets: what it creates, restores and removes.

mod auto_create;
mod ca_bundle;
mod lifecycle;
mod migration;
mod monitoring;
mod openshift;
mod repair;
mod settings;

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context as _, Result, ensure};
use knmstate_api::NMState;
use knmstate_operator::{DEFINITION, KINDS};
use kube::{Api, api::PostParams};
use rig::{
    ApiServer, Lab, binaries,
    role::{RoleProcess, RoleSetup},
    wait,
};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_mins(1);
const NAMESPACE: &str = "nmstate";
/// The operator's own namespace in these tests, so that it creates and removes the other one.
const OPERATOR_NAMESPACE: &str = "knmstate-operator";

struct Installation {
    api: ApiServer,
    setup: RoleSetup,
    _lab: Lab,
}

impl Installation {
    async fn new() -> Result<Self> {
        let program = binaries::knmstate().await?;
        let lab = Lab::new().await?;
        let api = lab.api_server().with_controllers().start().await?;
        api.install_crds().await?;
        api.kubectl(["create", "namespace", OPERATOR_NAMESPACE]).await?.success()?;
        let kubeconfig = api.kubeconfig_for("admin", &["system:masters"])?;
        let setup = RoleSetup::new(&lab, program, "operator", &kubeconfig)?
            .env("RELATED_IMAGE_HANDLER_IMAGE", "localhost/knmstate:dev")
            .env("HANDLER_NAMESPACE", NAMESPACE)
            .env("OPERATOR_NAMESPACE", OPERATOR_NAMESPACE)
            .arg("--health-address=0")
            .with_lease(Duration::from_secs(3));
        Ok(Self { api, setup, _lab: lab })
    }

    fn start(&self) -> Result<RoleProcess> {
        self.setup.start("operator")
    }

    async fn create_nmstate(&self, spec: Value) -> Result<()> {
        let nmstate: NMState = serde_json::from_value(json!({
            "apiVersion": "nmstate.io/v1",
            "kind": "NMState",
            "metadata": {"name": "nmstate"},
            "spec": spec,
        }))?;
        Api::all(self.api.client()).create(&PostParams::default(), &nmstate).await?;
        Ok(())
    }

    async fn delete_nmstate(&self) -> Result<()> {
        self.api.kubectl(["delete", "nmstate", "nmstate"]).await?.success()?;
        Ok(())
    }

    /// All objects that the operator has created, as `kind namespace/name`, without CRDs.
    async fn created(&self) -> Result<BTreeSet<String>> {
        let kinds = KINDS.iter().filter(|kind| kind.built_in && **kind != DEFINITION);
        let kinds: Vec<String> = kinds.map(|kind| format!("{}.{}", kind.plural, kind.group())).collect();
        let list = self
            .api
            .kubectl([
                "get",
                &kinds.join(","),
                "--all-namespaces",
                "--selector=app.kubernetes.io/managed-by=nmstate-operator",
                "--output=json",
            ])
            .await?
            .json()?;
        let items = list["items"].as_array().context("a list")?;
        let name = |item: &Value| {
            let metadata = &item["metadata"];
            let namespace = metadata["namespace"].as_str().unwrap_or_default();
            format!("{} {namespace}/{}", text(&item["kind"]), text(&metadata["name"]))
        };
        Ok(items.iter().map(name).collect())
    }

    /// Waits until all objects are created: the DaemonSet comes last.
    async fn until_created(&self) -> Result<BTreeSet<String>> {
        self.until("everything to be created", async || {
            let created = self.created().await?;
            ensure!(created.contains("DaemonSet nmstate/nmstate-handler"), "{created:#?}");
            Ok(())
        })
        .await?;
        // Kinds are listed one by one, so the list above may lack objects that were created meanwhile.
        self.created().await
    }

    /// Waits for a condition. Prints the operator's logs if it is not met in time.
    async fn until<T>(&self, what: &str, check: impl AsyncFnMut() -> Result<T>) -> Result<T> {
        let reached = wait::until(LIMIT, what, check).await;
        if reached.is_err() {
            println!("{}", self.setup.logs(30));
        }
        reached
    }

    /// Creates a minimal definition of a kind that only some clusters have, and waits until it is served.
    async fn define(&self, group: &str, kind: &str, plural: &str, scope: &str) -> Result<()> {
        let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{group}")},
            "spec": {
                "group": group,
                "scope": scope,
                "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase()},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": anything}}],
            },
        });
        self.apply(&definition).await?;
        let name = format!("crd/{plural}.{group}");
        self.api.kubectl(["wait", "--for=condition=Established", &name]).await?.success()?;
        Ok(())
    }

    /// Applies an object, as soon as the API server knows its kind.
    async fn apply(&self, object: &Value) -> Result<()> {
        self.until("the API server to accept it", async || {
            self.api.kubectl_with(&object.to_string(), ["apply", "-f", "-"]).await?.success()?;
            Ok(())
        })
        .await
    }

    async fn get(&self, kind: &str, name: &str) -> Result<Value> {
        self.api.kubectl(["get", kind, name, "--namespace", NAMESPACE, "--output=json"]).await?.json()
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
