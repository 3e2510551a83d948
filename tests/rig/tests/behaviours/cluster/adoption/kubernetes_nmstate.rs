//! Objects as kubernetes-nmstate leaves them in a cluster: without orders, with counters, written by its handlers.

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Resource, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::super::Cluster;

/// The field manager of kubernetes-nmstate.
const MANAGER: &str = "manager";
/// The time of all conditions.
pub(super) const OLD_TIME: &str = "2026-01-02T03:04:05Z";

/// The progress of a node. Types, statuses, reasons and messages have the order in which kubernetes-nmstate wrote them.
#[derive(Clone, Copy, Debug)]
pub(super) enum EnactmentPhase {
    Available,
    Failed,
    Progressing,
    Pending,
    Aborted,
}

impl EnactmentPhase {
    fn conditions(self) -> Value {
        let rows = |types: [&str; 5], statuses: [&str; 5], reason: &str, message: &str| {
            let row = |(type_, status): (&str, &str)| condition(type_, status, reason, message);
            types.into_iter().zip(statuses).map(row).collect::<Vec<_>>()
        };
        let begun = ["Progressing", "Failing", "Available", "Pending", "Aborted"];
        let waited = ["Pending", "Aborted", "Progressing", "Failing", "Available"];
        let (t, f, u) = ("True", "False", "Unknown");
        let rows = match self {
            Self::Available => {
                rows(begun, [f, f, t, f, f], "SuccessfullyConfigured", "successfully reconciled")
            }
            Self::Failed => {
                let mut rows = rows(begun, [f, t, f, f, f], "FailedToConfigure", "error reconciling");
                rows[4]["reason"] = json!("SuccessfullyConfigured");
                rows
            }
            Self::Progressing => {
                rows(begun, [t, u, u, f, f], "ConfigurationProgressing", "Applying desired state")
            }
            Self::Pending => rows(
                waited,
                [t, f, f, f, f],
                "MaxUnavailableLimitReached",
                "Waiting for progressing nodes to finish",
            ),
            Self::Aborted => rows(waited, [f, t, f, f, f], "ConfigurationAborted", "has aborted"),
        };
        Value::Array(rows)
    }
}

fn condition(type_: &str, status: &str, reason: &str, message: &str) -> Value {
    let mut condition = json!({"type": type_, "status": status, "reason": reason,
        "lastHeartbeatTime": OLD_TIME, "lastTransitionTime": OLD_TIME});
    if status == "True" {
        condition["message"] = json!(message);
    }
    condition
}

/// Creates a policy of generation 2 with its status. `conditions` has the statuses of Available, Degraded, Progressing
/// and Ignored, their reason, and the message of the one that is true.
pub(super) async fn policy(
    cluster: &Cluster,
    name: &str,
    spec: &Value,
    conditions: ([&str; 4], &str, &str),
    counters: &Value,
) -> Result<()> {
    let manifest = super::super::policy(name, spec);
    cluster.apply(&manifest).await?;
    let more = Patch::Merge(json!({"spec": {"maxUnavailable": 1}}));
    cluster.policies.patch(name, &PatchParams::default(), &more).await?;
    let (statuses, reason, message) = conditions;
    let types = ["Available", "Degraded", "Progressing", "Ignored"].into_iter();
    let mut status = counters.clone();
    status["conditions"] =
        types.zip(statuses).map(|(type_, status)| condition(type_, status, reason, message)).collect();
    put_status(&cluster.policies, name, &status).await
}

/// Creates an enactment of generation 2; `rest` is the rest of its status.
pub(super) async fn enactment(
    cluster: &Cluster,
    node: &str,
    policy: &str,
    phase: EnactmentPhase,
    rest: &Value,
) -> Result<()> {
    let name = format!("{node}.{policy}");
    let labels = json!({"nmstate.io/node": node, "nmstate.io/policy": policy});
    put(
        &cluster.enactments,
        &json!({"metadata": {
        "name": name, "labels": labels, "ownerReferences": owner(cluster, node).await?}}),
    )
    .await?;
    let mut status = rest.clone();
    status["policyGeneration"] = json!(2);
    status["conditions"] = phase.conditions();
    put_status(&cluster.enactments, &name, &status).await
}

/// Creates the NodeNetworkState of a node.
pub(super) async fn node_state(cluster: &Cluster, node: &str) -> Result<()> {
    let labels = json!({"nmstate.io/force-nns-refresh": "1753000000000000000"});
    put(
        &cluster.states,
        &json!({"metadata": {
        "name": node, "labels": labels, "ownerReferences": owner(cluster, node).await?}}),
    )
    .await?;
    let status = json!({
        "currentState": {"dns-resolver": {}, "interfaces": [], "ovn": {}, "routes": {"config": [], "running": []}},
        "handlerNmstateVersion": "2.2.43",
        "hostNetworkManagerVersion": "1.42.4",
        "lastSuccessfulUpdateTime": OLD_TIME,
    });
    put_status(&cluster.states, node, &status).await
}

/// The owner reference to a node; with an unknown UID if the node was deleted.
async fn owner(cluster: &Cluster, node: &str) -> Result<Value> {
    let nodes: Api<Node> = Api::all(cluster.api.client());
    let uid = nodes.get_opt(node).await?.and_then(|node| node.uid()).unwrap_or_else(|| "gone".to_owned());
    Ok(json!([{"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}]))
}

async fn put<K>(api: &Api<K>, object: &Value) -> Result<()>
where
    K: Resource + Clone + Serialize + DeserializeOwned + std::fmt::Debug,
{
    let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
    api.create(&params, &serde_json::from_value(object.clone())?)
        .await
        .with_context(|| object.to_string())?;
    Ok(())
}

async fn put_status<K>(api: &Api<K>, name: &str, status: &Value) -> Result<()>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
{
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    api.patch_status(name, &params, &Patch::Merge(json!({"status": status}))).await?;
    Ok(())
}
