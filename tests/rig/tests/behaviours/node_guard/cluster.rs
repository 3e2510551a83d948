//! A cluster with objects that a stolen token must not reach.

use std::collections::BTreeMap;

use anyhow::Result;
use kube::Client;
use rig::{ApiServer, BoundTo, Lab, Settings};
use serde_json::{Value, json};

use super::{DOTTED, OTHER, OWN, attempts::Target};

/// Three nodes with their handlers' objects, and objects of other kinds.
pub struct GuardedCluster {
    pub api: ApiServer,
    pub admin: Client,
    _lab: Lab,
}

impl GuardedCluster {
    pub async fn start(settings: &Settings) -> Result<Self> {
        let lab = Lab::new().await?;
        let api = lab.api_server().start().await?;
        api.install_product_objects(settings).await?;
        for node in [OWN, OTHER, DOTTED] {
            api.add_ready_node(node).await?;
            api.add_handler_pod(node).await?;
            let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": node, "namespace": "kube-node-lease"}});
            put(&api, &lease).await?;
            put(&api, &enactment(node, "p")).await?;
        }
        for node in [OTHER, DOTTED] {
            put(&api, &state(node)).await?;
        }
        let in_nmstate = |api_version: &str, kind: &str, name: &str| json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": "nmstate"}});
        for object in [
            json!({"apiVersion": "nmstate.io/v1", "kind": "NMState", "metadata": {"name": "nmstate"}}),
            json!({"apiVersion": "nmstate.io/v1", "kind": "NodeNetworkConfigurationPolicy", "metadata": {"name": "p"}}),
            in_nmstate("v1", "Secret", "nmstate-ca"),
            in_nmstate("v1", "Secret", "unrelated"),
            in_nmstate("v1", "ConfigMap", "settings"),
            in_nmstate("coordination.k8s.io/v1", "Lease", "nmstate-controller"),
            json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration", "metadata": {"name": "other"}}),
        ] {
            put(&api, &object).await?;
        }
        Ok(Self { admin: api.client(), api, _lab: lab })
    }

    pub async fn client_of(&self, account: &str, bound: BoundTo<'_>) -> Result<Client> {
        let token = self.api.token("nmstate", account, bound).await?;
        self.api.client_with_token(&token).await
    }

    pub async fn versions(&self, targets: &[Target]) -> Result<BTreeMap<String, String>> {
        let mut versions = BTreeMap::new();
        for target in targets {
            versions.append(&mut target.versions(&self.admin).await?);
        }
        Ok(versions)
    }
}

pub async fn put(api: &ApiServer, object: &Value) -> Result<()> {
    api.kubectl_with(&object.to_string(), ["create", "-f", "-"]).await?.success()?;
    Ok(())
}

pub fn enactment(node: &str, policy: &str) -> Value {
    json!({
        "apiVersion": "nmstate.io/v1beta1",
        "kind": "NodeNetworkConfigurationEnactment",
        "metadata": {"name": format!("{node}.{policy}"), "labels": {"nmstate.io/node": node, "nmstate.io/policy": policy}},
        "spec": {"nodeName": node, "policyName": policy, "policyGeneration": 1, "permit": "Wait"},
    })
}

/// An enactment as kubernetes-nmstate creates it.
pub fn enactment_without_order(name: &str, labels: &Value) -> Value {
    json!({
        "apiVersion": "nmstate.io/v1beta1",
        "kind": "NodeNetworkConfigurationEnactment",
        "metadata": {"name": name, "labels": labels},
    })
}

pub fn state(node: &str) -> Value {
    json!({
        "apiVersion": "nmstate.io/v1beta1",
        "kind": "NodeNetworkState",
        "metadata": {"name": node},
        "spec": {"nodeName": node},
    })
}

pub fn owner(node: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "name": node, "uid": format!("uid-of-{node}")})
}
