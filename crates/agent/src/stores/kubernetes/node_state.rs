//! The network of the node as it is to be shown, and as it is shown.

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
    watch::{Seen, is_older},
};
use kube::{Api, Client, ResourceExt as _, api::Patch, core::DeserializeGuard};
use tokio::time::Instant;

use super::desk::{Carrier, Desk, Next, Papers};
use crate::store::ReportedNetwork;

/// How long what was written stands before it is written again because somebody else has changed it.
const PEACE: Duration = Duration::from_secs(5);

/// The newest network that was published, and the object at the server.
#[derive(Debug)]
pub struct NodeState {
    node: String,
    labels: BTreeMap<String, String>,
    now: fn() -> Timestamp,
    wanted: Option<ReportedNetwork>,
    there: There,
    /// When it may be written; see [`PEACE`].
    from: Option<Instant>,
    delivered: bool,
    /// The value of the label that asks for a report, when it was last seen.
    refresh: Option<String>,
}

#[derive(Debug, PartialEq)]
enum There {
    /// The server was not asked yet.
    Unknown,
    Nothing,
    Object(Box<Shown>),
}

#[derive(Debug, PartialEq)]
struct Shown {
    version: String,
    /// Whether owner, labels and node name are as they should be, or have been written: definitions of
    /// kubernetes-nmstate drop the node's name, and that must not be tried for ever.
    is_furnished: bool,
    status: NodeNetworkStateStatus,
}

/// What is to be written.
#[derive(Debug, PartialEq)]
pub enum Write {
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
            wanted: None,
            there: There::Unknown,
            from: None,
            delivered: true,
            refresh: None,
        }
    }

    pub fn publish(&mut self, network: ReportedNetwork) {
        if self.wanted.as_ref() != Some(&network) {
            self.wanted = Some(network);
            self.from = None;
            self.delivered = false;
            self.settle();
        }
    }

    /// Takes in what the watch has seen; true if a report is asked for.
    pub fn see(&mut self, seen: Seen<NodeNetworkState>) -> bool {
        match seen {
            // There is one of a name at most.
            Seen::All(mut all) => {
                let object = all.pop();
                if object.is_none() {
                    self.gone();
                }
                object.is_some_and(|object| self.see_object(object))
            }
            Seen::Changed(object) => {
                let version = object.resource_version().unwrap_or_default();
                !self.is_older(&version) && self.see_object(object)
            }
            Seen::Gone(object) => {
                let version = object.resource_version().unwrap_or_default();
                // Unless it has been made anew since.
                if !self.is_older(&version) {
                    self.gone();
                }
                false
            }
        }
    }

    fn see_object(&mut self, object: DeserializeGuard<NodeNetworkState>) -> bool {
        let refresh = object.labels().get(FORCE_REFRESH_LABEL).cloned();
        let asked = self.there != There::Unknown && refresh.is_some() && refresh != self.refresh;
        self.refresh = refresh;
        let version = object.resource_version().unwrap_or_default();
        let was_furnished = matches!(&self.there, There::Object(known) if known.is_furnished);
        // One that cannot be read is to be written over.
        let (is_furnished, status) = match object.0 {
            Ok(object) => (self.is_furnished(&object), object.status),
            Err(_) => (false, NodeNetworkStateStatus::default()),
        };
        let is_furnished = is_furnished || was_furnished;
        self.there = There::Object(Box::new(Shown { version, is_furnished, status }));
        self.settle();
        asked
    }

    /// Whether this version was there before the one that is known.
    fn is_older(&self, version: &str) -> bool {
        matches!(&self.there, There::Object(known) if is_older(version, &known.version))
    }

    fn gone(&mut self) {
        self.there = There::Nothing;
        self.refresh = None;
        self.from = None;
    }

    /// The object was written, which made this version.
    fn furnished(&mut self, object: NodeNetworkState) {
        let version = object.resource_version().unwrap_or_default();
        self.there = There::Object(Box::new(Shown { version, is_furnished: true, status: object.status }));
    }

    /// The status was written, which made this version.
    fn written(&mut self, status: NodeNetworkStateStatus, version: String, from: Instant) {
        self.from = Some(from);
        if self.is_older(&version) {
            return;
        }
        if let There::Object(shown) = &mut self.there {
            shown.version = version;
            shown.status = status;
        }
        self.settle();
    }

    fn settle(&mut self) {
        let is_known = self.there != There::Unknown;
        self.delivered |= is_known && self.unsaid().is_none();
    }

    /// What is still to be written; of nothing if nothing is known of either side.
    fn unsaid(&self) -> Option<Write> {
        let wanted = self.wanted.as_ref()?;
        match &self.there {
            There::Unknown => None,
            There::Nothing => Some(Write::Object),
            There::Object(shown) if !shown.is_furnished => Some(Write::Object),
            There::Object(shown) => {
                let status = wanted.status(&shown.status, (self.now)());
                (status != shown.status).then(|| Write::Status(Box::new(status)))
            }
        }
    }

    fn is_furnished(&self, object: &NodeNetworkState) -> bool {
        object.spec.node_name.as_ref() == Some(&self.node)
            && self.labels.iter().all(|(key, value)| object.labels().get(key) == Some(value))
            && object.owner_references().iter().any(|owner| owner.kind == "Node" && owner.name == self.node)
    }
}

impl Papers for NodeState {
    type Errand = Write;

    fn next(&mut self, now: Instant) -> Next<Write> {
        match (self.unsaid(), self.from) {
            (Some(_), Some(from)) if from > now => Next::Later(from),
            (Some(write), _) => Next::Write(write),
            (None, _) => Next::Nothing,
        }
    }

    fn is_delivered(&self) -> bool {
        self.delivered
    }
}

/// Writes the node's own state.
pub struct Writer {
    pub client: Client,
    pub node: String,
    pub labels: BTreeMap<String, String>,
}

impl Carrier<NodeState> for Writer {
    async fn carry(&self, desk: &Desk<NodeState>, write: Write) -> Result<(), CallError> {
        let api: Api<NodeNetworkState> = Api::all(self.client.clone());
        match write {
            Write::Object => {
                let object = self.object().await?;
                let patch = Patch::Apply(&object);
                let made =
                    within_limit(api.patch(&self.node, &apply::as_manager(HANDLER_FIELD_MANAGER), &patch))
                        .await?;
                desk.change(|state| state.furnished(made));
            }
            Write::Status(status) => {
                let mut object = NodeNetworkState::new(&self.node, NodeNetworkStateSpec::default());
                object.status = *status;
                match apply::status(&api, &object, |object| &object.status, HANDLER_FIELD_MANAGER).await {
                    Ok(version) => {
                        desk.change(|state| state.written(object.status, version, Instant::now() + PEACE));
                    }
                    Err(error) if error.is_not_found() => desk.change(NodeState::gone),
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }
}

impl Writer {
    /// The object without its status. It goes with its node, whose identity is asked for now: a node that was made
    /// anew is another one.
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
