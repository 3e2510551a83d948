//! The requests that write decisions to the API server.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{
    api::core::v1::Event,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use knmstate_api::{
    NodeNetworkConfigurationEnactment, NodeNetworkConfigurationEnactmentSpec,
    NodeNetworkConfigurationPolicyStatus,
    names::{CONTROLLER_FIELD_MANAGER, NODE_LABEL, POLICY_LABEL, enactment_name, node_label},
};
use knmstate_client::{
    apply,
    call::{CallError, within},
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
};
use serde_json::{Value, json};

use crate::cluster_state::{SlimEnactment, SlimPolicy};

/// One thing to write.
#[derive(Clone, Debug)]
pub(crate) enum Write {
    Order {
        order: Arc<NodeNetworkConfigurationEnactmentSpec>,
        /// The UID of the node, which owns the enactment.
        owner: String,
    },
    Removal {
        policy: String,
        node: String,
        uid: String,
    },
    Status {
        policy: String,
        status: Box<NodeNetworkConfigurationPolicyStatus>,
        /// Turns the status at the server into this one. A merge patch, so that counters which other clients have left
        /// there are removed in the same write.
        patch: Value,
        /// The event that follows once it is written.
        then: Option<Box<Event>>,
        /// How long the rollout took, if this status ends it.
        rollout_took: Option<Duration>,
    },
    Event(Box<Event>),
}

/// The result of a write.
#[derive(Debug)]
pub(crate) enum Written {
    Order(Box<SlimEnactment>),
    /// The enactment is deleted, or it was another object of the same name.
    Removal,
    /// The version that it made; `None` if the policy does not exist any more.
    Status(Option<String>),
    Event,
}

impl Write {
    /// The label of this write in metrics.
    pub(crate) fn object(&self) -> &'static str {
        match self {
            Self::Order { .. } => "order",
            Self::Removal { .. } => "removal",
            Self::Status { .. } => "status",
            Self::Event(_) => "event",
        }
    }

    /// Makes the request, with a limit that ends before another controller may lead.
    pub(crate) async fn execute(&self, client: Client, limit: Duration) -> Result<Written, CallError> {
        match self {
            Self::Order { order, owner } => write_order(client, order, owner, limit).await,
            Self::Removal { policy, node, uid } => remove(client, policy, node, uid, limit).await,
            Self::Status { policy, patch, .. } => write_status(client, policy, patch, limit).await,
            Self::Event(event) => {
                let namespace = event.metadata.namespace.as_deref().unwrap_or("default");
                let api: Api<Event> = Api::namespaced(client, namespace);
                within(limit, api.create(&PostParams::default(), event)).await?;
                Ok(Written::Event)
            }
        }
    }
}

async fn write_order(
    client: Client,
    order: &Arc<NodeNetworkConfigurationEnactmentSpec>,
    owner: &str,
    limit: Duration,
) -> Result<Written, CallError> {
    let NodeNetworkConfigurationEnactmentSpec { node_name: node, policy_name: policy, .. } = &**order;
    let name = enactment_name(node, policy);
    let mut enactment = NodeNetworkConfigurationEnactment::new(&name, Some((**order).clone()));
    enactment.metadata = ObjectMeta {
        name: Some(name.clone()),
        labels: Some(
            [(NODE_LABEL, node_label(node).into_owned()), (POLICY_LABEL, policy.clone())]
                .map(|(key, value)| (key.to_owned(), value))
                .into(),
        ),
        owner_references: Some(vec![OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
            name: node.clone(),
            uid: owner.to_owned(),
            ..OwnerReference::default()
        }]),
        ..ObjectMeta::default()
    };
    let api: Api<SlimEnactment> = Api::all(client);
    let manager = apply::as_manager(CONTROLLER_FIELD_MANAGER);
    let answer = within(limit, api.patch(&name, &manager, &Patch::Apply(&enactment))).await?;
    Ok(Written::Order(Box::new(answer)))
}

async fn remove(
    client: Client,
    policy: &str,
    node: &str,
    uid: &str,
    limit: Duration,
) -> Result<Written, CallError> {
    let api: Api<NodeNetworkConfigurationEnactment> = Api::all(client);
    let preconditions = Preconditions { uid: Some(uid.to_owned()), ..Preconditions::default() };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    match within(limit, api.delete(&enactment_name(node, policy), &params)).await {
        Ok(_) => Ok(Written::Removal),
        // It is deleted; the response has the object, which need not be readable.
        Err(error) if error.is_unreadable() => Ok(Written::Removal),
        // It was deleted, or created again since; the watch shows which.
        Err(error) if error.is_not_found() || error.code() == Some(409) => Ok(Written::Removal),
        Err(error) => Err(error),
    }
}

async fn write_status(
    client: Client,
    policy: &str,
    patch: &Value,
    limit: Duration,
) -> Result<Written, CallError> {
    let api: Api<SlimPolicy> = Api::all(client);
    let manager =
        PatchParams { field_manager: Some(CONTROLLER_FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let patch = Patch::Merge(json!({ "status": patch }));
    match within(limit, api.patch_status(policy, &manager, &patch)).await {
        Ok(answer) => Ok(Written::Status(answer.resource_version())),
        Err(error) if error.is_not_found() => Ok(Written::Status(None)),
        Err(error) => Err(error),
    }
}
