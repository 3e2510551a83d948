//! `knmstate operator` as a process on a real API server, with nodes that nobody runs: what it makes, mends and removes.

mod gate;
mod life;
mod mends;
mod migration;
mod monitoring;
mod openshift;
mod settings;

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context as _, Result, ensure};
use knmstate_api::NMState;
use knmstate_operator::catalogue::{DEFINITION, KINDS};
use kube::{Api, api::PostParams};
use rig::{
    ApiServer, Lab, binaries,
    role::{RoleProcess, RoleSetup},
    wait,
};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_mins(1);
const NAMESPACE: &str = "nmstate";
/// Where the operator lives in these tests, so that the other namespace is its own to make and to remove.
const HOME: &str = "knmstate-operator";

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
        api.kubectl(["create", "namespace", HOME]).await?.success()?;
        let kubeconfig = api.kubeconfig_for("admin", &["system:masters"])?;
        let setup = RoleSetup::new(&lab, program, "operator", &kubeconfig)?
            .env("RELATED_IMAGE_HANDLER_IMAGE", "localhost/knmstate:dev")
            .env("HANDLER_NAMESPACE", NAMESPACE)
            .env("OPERATOR_NAMESPACE", HOME)
            .arg("--health-address=0")
            .with_lease(Duration::from_secs(3));
        Ok(Self { api, setup, _lab: lab })
    }

    fn start(&self) -> Result<RoleProcess> {
        self.setup.start("operator")
    }

    async fn switch_on(&self, spec: Value) -> Result<()> {
        let nmstate: NMState = serde_json::from_value(json!({
            "apiVersion": "nmstate.io/v1",
            "kind": "NMState",
            "metadata": {"name": "nmstate"},
            "spec": spec,
        }))?;
        Api::all(self.api.client()).create(&PostParams::default(), &nmstate).await?;
        Ok(())
    }

    async fn switch_off(&self) -> Result<()> {
        self.api.kubectl(["delete", "nmstate", "nmstate"]).await?.success()?;
        Ok(())
    }

    /// Everything that the operator has made, as `kind namespace/name`; definitions left out.
    async fn made(&self) -> Result<BTreeSet<String>> {
        let kinds = KINDS.iter().filter(|kind| kind.everywhere && **kind != DEFINITION);
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

    /// Waits until all is made: the handlers come last.
    async fn until_made(&self) -> Result<BTreeSet<String>> {
        self.until("everything to be made", async || {
            let made = self.made().await?;
            ensure!(made.contains("DaemonSet nmstate/nmstate-handler"), "{made:#?}");
            Ok(())
        })
        .await?;
        // Kinds are listed one after the other: the first ones may have been before the last of them was made.
        self.made().await
    }

    /// Waits for a condition; says what the operator has logged when it does not come true.
    async fn until<T>(&self, what: &str, check: impl AsyncFnMut() -> Result<T>) -> Result<T> {
        let reached = wait::until(LIMIT, what, check).await;
        if reached.is_err() {
            println!("{}", self.setup.logs(30));
        }
        reached
    }

    /// Makes a kind that only some clusters have, as far as it matters here, and waits until it is served.
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
        self.until("the API server to take it", async || {
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
