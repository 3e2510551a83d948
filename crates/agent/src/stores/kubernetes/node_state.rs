//! The `NodeNetworkState` of this node: the network that was reported, and the object that the API server has.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::Node,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use knmstate_api::{
    NodeNetworkState, NodeNetworkStateSpec, NodeNetworkStateStatus,
    names::{FORCE_REFRESH_LABEL, HANDLER_FIELD_MANAGER},
};
use knmstate_client::{
    apply,
    call::{CallError, within_limit},
    outbox::{Outbox, Pending, Schedule, SharedOutbox, Writer},
    watch::{ObjectEvent, is_older},
};
use kube::{Api, Client, ResourceExt as _, api::Patch, core::DeserializeGuard};
use tokio::time::Instant;

use crate::store::ReportedNetwork;

/// How long after a write a state that another client has changed is written again.
const MIN_WRITE_INTERVAL: Duration = Duration::from_secs(5);

/// The newest network that was published, and the object that the API server has.
#[derive(Debug)]
pub struct NodeState {
    node: String,
    labels: BTreeMap<String, String>,
    now: fn() -> Timestamp,
    published: Option<ReportedNetwork>,
    stored: StoredState,
    /// When it may be written; see [`MIN_WRITE_INTERVAL`].
    not_before: Option<Instant>,
    delivered: bool,
    /// The value of the label that asks for a report, as it was in the last event.
    refresh: Option<String>,
    /// There is one object, and so one key.
    outbox: Outbox<(), NodeStateUpdate>,
}

#[derive(Debug, PartialEq)]
enum StoredState {
    /// Not listed yet.
    Unread,
    Missing,
    Present(Box<StoredObject>),
}

#[derive(Debug, PartialEq)]
struct StoredObject {
    version: String,
    /// Whether owner, labels and node name are complete, or have been written: definitions of kubernetes-nmstate drop
    /// the node's name, and that must not be tried for ever.
    is_complete: bool,
    status: NodeNetworkStateStatus,
}

/// What is to be written.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeStateUpdate {
    /// The object itself, with owner, labels and the node's name.
    Object,
    Status(Box<NodeNetworkStateStatus>),
}

impl NodeState {
    pub fn new(node: String, labels: BTreeMap<String, String>, now: fn() -> Timestamp) -> Self {
        Self {
            node,
            labels,
            now,
            published: None,
            stored: StoredState::Unread,
            not_before: None,
            delivered: true,
            refresh: None,
            outbox: Outbox::default(),
        }
    }

    pub fn publish(&mut self, network: ReportedNetwork) {
        if self.published.as_ref() != Some(&network) {
            self.published = Some(network);
            self.not_before = None;
            self.delivered = false;
            self.compare();
        }
    }

    /// Handles an event of the watch; true if a report is asked for.
    pub fn handle(&mut self, event: ObjectEvent<NodeNetworkState>) -> bool {
        match event {
            // There is one of a name at most.
            ObjectEvent::All(mut all) => {
                let object = all.pop();
                if object.is_none() {
                    self.deleted();
                }
                object.is_some_and(|object| self.changed(object))
            }
            ObjectEvent::Changed(object) => {
                let version = object.resource_version().unwrap_or_default();
                !self.is_older(&version) && self.changed(object)
            }
            ObjectEvent::Gone(object) => {
                let version = object.resource_version().unwrap_or_default();
                // Unless it was created again since.
                if !self.is_older(&version) {
                    self.deleted();
                }
                false
            }
        }
    }

    fn changed(&mut self, object: DeserializeGuard<NodeNetworkState>) -> bool {
        let refresh = object.labels().get(FORCE_REFRESH_LABEL).cloned();
        let asked = self.stored != StoredState::Unread && refresh.is_some() && refresh != self.refresh;
        self.refresh = refresh;
        let version = object.resource_version().unwrap_or_default();
        let was_complete = matches!(&self.stored, StoredState::Present(known) if known.is_complete);
        // One that cannot be read is overwritten.
        let (is_complete, status) = match object.0 {
            Ok(object) => (self.is_complete(&object), object.status),
            Err(_) => (false, NodeNetworkStateStatus::default()),
        };
        let is_complete = is_complete || was_complete;
        self.stored = StoredState::Present(Box::new(StoredObject { version, is_complete, status }));
        self.compare();
        asked
    }

    /// Whether this version is older than the one that is known.
    fn is_older(&self, version: &str) -> bool {
        matches!(&self.stored, StoredState::Present(known) if is_older(version, &known.version))
    }

    fn deleted(&mut self) {
        self.stored = StoredState::Missing;
        self.refresh = None;
        self.not_before = None;
        self.compare();
    }

    /// The object was written, which made this version.
    fn object_written(&mut self, object: NodeNetworkState) {
        let version = object.resource_version().unwrap_or_default();
        let stored = StoredObject { version, is_complete: true, status: object.status };
        self.stored = StoredState::Present(Box::new(stored));
        self.compare();
    }

    /// The status was written, which made this version.
    fn status_written(&mut self, status: NodeNetworkStateStatus, version: String, not_before: Instant) {
        self.not_before = Some(not_before);
        if !self.is_older(&version)
            && let StoredState::Present(stored) = &mut self.stored
        {
            stored.version = version;
            stored.status = status;
        }
        self.compare();
    }

    /// Puts into the outbox what the server does not have.
    fn compare(&mut self) {
        if let Some(update) = self.missing_update() {
            let schedule = Schedule { not_before: self.not_before, ..Schedule::default() };
            self.outbox.put((), update, schedule);
        } else {
            self.outbox.cancel(&());
            self.delivered |= self.stored != StoredState::Unread;
        }
    }

    /// What is still to be written: nothing before a network was published and the object was listed.
    fn missing_update(&self) -> Option<NodeStateUpdate> {
        let published = self.published.as_ref()?;
        match &self.stored {
            StoredState::Unread => None,
            StoredState::Missing => Some(NodeStateUpdate::Object),
            StoredState::Present(stored) if !stored.is_complete => Some(NodeStateUpdate::Object),
            StoredState::Present(stored) => {
                let status = published.status(&stored.status, (self.now)());
                (status != stored.status).then(|| NodeStateUpdate::Status(Box::new(status)))
            }
        }
    }

    fn is_complete(&self, object: &NodeNetworkState) -> bool {
        object.spec.node_name.as_ref() == Some(&self.node)
            && self.labels.iter().all(|(key, value)| object.labels().get(key) == Some(value))
            && object.owner_references().iter().any(|owner| owner.kind == "Node" && owner.name == self.node)
    }
}

impl Pending for NodeState {
    type Key = ();
    type Update = NodeStateUpdate;

    fn outbox(&mut self) -> &mut Outbox<(), NodeStateUpdate> {
        &mut self.outbox
    }

    fn is_delivered(&self) -> bool {
        self.delivered
    }
}

/// Writes the node's own state.
pub struct NodeStateWriter {
    pub client: Client,
    pub node: String,
    pub labels: BTreeMap<String, String>,
}

impl Writer<NodeState> for NodeStateWriter {
    async fn write(
        &self,
        outbox: &SharedOutbox<NodeState>,
        (): &(),
        update: NodeStateUpdate,
    ) -> Result<(), CallError> {
        let api: Api<NodeNetworkState> = Api::all(self.client.clone());
        match update {
            NodeStateUpdate::Object => {
                let object = self.object().await?;
                let patch = Patch::Apply(&object);
                let manager = apply::as_manager(HANDLER_FIELD_MANAGER);
                let written = match within_limit(api.patch(&self.node, &manager, &patch)).await {
                    // The status is one that cannot be read, and is written next.
                    Err(error) if error.is_unreadable() => object,
                    written => written?,
                };
                outbox.change(|state| state.object_written(written));
            }
            NodeStateUpdate::Status(status) => {
                let mut object = NodeNetworkState::new(&self.node, NodeNetworkStateSpec::default());
                object.status = *status;
                match apply::status(&api, &object, |object| &object.status, HANDLER_FIELD_MANAGER).await {
                    Ok(version) => {
                        let not_before = Instant::now() + MIN_WRITE_INTERVAL;
                        outbox.change(|state| state.status_written(object.status, version, not_before));
                    }
                    Err(error) if error.is_not_found() => outbox.change(NodeState::deleted),
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }
}

impl NodeStateWriter {
    /// The object without its status. Its owner is the node, whose UID is read now: a node that was created again has
    /// another one.
    async fn object(&self) -> Result<NodeNetworkState, CallError> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let node = within_limit(nodes.get(&self.node)).await?;
        let owner = OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
            name: self.node.clone(),
            uid: node.uid().unwrap_or_default(),
            ..OwnerReference::default()
        };
        Ok(NodeNetworkState {
            metadata: ObjectMeta {
                name: Some(self.node.clone()),
                labels: Some(self.labels.clone()).filter(|labels| !labels.is_empty()),
                owner_references: Some(vec![owner]),
                ..ObjectMeta::default()
            },
            spec: NodeNetworkStateSpec {
                node_name: Some(self.node.clone()),
                ..NodeNetworkStateSpec::default()
            },
            status: NodeNetworkStateStatus::default(),
        })
    }
}

#[cfg(test)]
mod tests;
