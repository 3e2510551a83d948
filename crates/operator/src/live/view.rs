//! What watches have seen, in the little that decisions need of it.

use std::{
    collections::{BTreeMap, BTreeSet, hash_map::DefaultHasher},
    hash::{Hash as _, Hasher as _},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use knmstate_api::NMState;
use kube::{ResourceExt as _, api::DynamicObject};
use serde_json::Value;
use tokio::sync::Notify;

use super::addresses::Key;
use crate::{
    catalogue::{DAEMON_SET, DEPLOYMENT, Kind},
    facts::NodeFacts,
    status::Workload,
};

/// What is there. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct View(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    seen: Mutex<Seen>,
    changed: Notify,
}

/// Everything seen; `None` is what nobody has answered yet.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub nmstates: Option<BTreeMap<String, NMState>>,
    pub nodes: Option<BTreeMap<String, NodeFacts>>,
    pub api_ports: Option<BTreeMap<String, BTreeSet<u16>>>,
    pub objects: BTreeMap<Kind, BTreeMap<Key, Found>>,
}

/// An object of ours.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// Changes whenever somebody changes what we have said, and not with its status.
    pub fingerprint: u64,
    pub workload: Option<Workload>,
}

impl View {
    pub fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what was seen, and wakes who waits for it if it is news.
    pub fn note(&self, note: impl FnOnce(&mut Seen) -> bool) {
        if note(&mut self.lock()) {
            self.0.changed.notify_one();
        }
    }

    /// Waits for news, also for those that came since the last time.
    pub async fn changed(&self) {
        self.0.changed.notified().await;
    }
}

impl Found {
    pub fn new(kind: &Kind, object: &DynamicObject) -> Self {
        let mut hasher = DefaultHasher::new();
        let metadata = &object.metadata;
        (&metadata.labels, &metadata.annotations, &metadata.finalizers).hash(&mut hasher);
        metadata.deletion_timestamp.is_some().hash(&mut hasher);
        match metadata.generation {
            Some(generation) => generation.hash(&mut hasher),
            None => metadata.resource_version.hash(&mut hasher),
        }
        let is_workload = *kind == DAEMON_SET || *kind == DEPLOYMENT;
        Self { fingerprint: hasher.finish(), workload: is_workload.then(|| workload(object)) }
    }
}

/// Deployments and DaemonSets count the same things by other names.
fn workload(object: &DynamicObject) -> Workload {
    let number = |names: &[&str]| {
        let status = &object.data["status"];
        names.iter().find_map(|name| status[name].as_i64()).unwrap_or_default()
    };
    let wanted = match object.data["spec"]["replicas"].as_i64() {
        Some(replicas) => replicas,
        None => number(&["desiredNumberScheduled"]),
    };
    Workload {
        generation: object.metadata.generation.unwrap_or_default(),
        observed_generation: number(&["observedGeneration"]),
        wanted,
        updated: number(&["updatedNumberScheduled", "updatedReplicas"]),
        available: number(&["numberAvailable", "availableReplicas"]),
    }
}

/// The key of something of `kind` that a watch has seen.
pub fn key(kind: &Kind, object: &impl kube::Resource) -> Key {
    Key {
        kind: *kind,
        namespace: object.meta().namespace.clone(),
        name: object.meta().name.clone().unwrap_or_default(),
    }
}

/// What decides about pods on a node.
pub fn node_facts(node: &DynamicObject) -> NodeFacts {
    let taints = node.data["spec"].get("taints").cloned().unwrap_or(Value::Array(Vec::new()));
    NodeFacts { labels: node.labels().clone(), taints: serde_json::from_value(taints).unwrap_or_default() }
}
