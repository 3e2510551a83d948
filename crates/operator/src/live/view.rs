//! What the watches have shown, reduced to what decisions depend on.

use std::{
    collections::{BTreeMap, BTreeSet, hash_map::DefaultHasher},
    hash::{Hash as _, Hasher as _},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use k8s_openapi::ByteString;
use knmstate_api::{NMState, names::CA_BUNDLE_KEY};
use knmstate_client::store::{NamespacedName, Store};
use kube::{ResourceExt as _, api::DynamicObject};
use serde_json::Value;
use tokio::sync::Notify;

use super::addresses::Key;
use crate::{
    ca_bundle::read_bundle,
    cluster::NodeInfo,
    kinds::{CONFIG_MAP, DAEMON_SET, DEPLOYMENT, Kind},
    status::Workload,
};

/// The latest snapshot. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct View(Arc<SharedSnapshot>);

#[derive(Debug, Default)]
struct SharedSnapshot {
    snapshot: Mutex<Snapshot>,
    changed: Notify,
}

/// The objects of the cluster that the operator depends on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    pub nmstates: Store<NMState>,
    pub nodes: Store<NodeInfo>,
    pub api_ports: Store<BTreeSet<u16>>,
    /// What the operator has made, by kind; each kind is there once it was listed.
    pub objects: BTreeMap<Kind, Store<ObservedObject, NamespacedName>>,
}

/// An object that the operator has made.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ObservedObject {
    /// Differs whenever a client changes what the operator has applied; a change of the status makes no difference.
    pub fingerprint: u64,
    pub workload: Option<Workload>,
    /// The bundle in a ConfigMap, if it has a usable one.
    pub ca_bundle: Option<ByteString>,
}

impl View {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Snapshot> {
        self.0.snapshot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the snapshot. `change` returns whether anything differs; then [`changed`](Self::changed) returns.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Snapshot) -> bool) {
        if change(&mut self.lock()) {
            self.0.changed.notify_one();
        }
    }

    /// Waits for a change since the last call.
    pub(crate) async fn changed(&self) {
        self.0.changed.notified().await;
    }
}

impl Snapshot {
    /// One of the objects that the operator has made.
    pub(crate) fn object(&self, key: &Key) -> Option<&ObservedObject> {
        let name = NamespacedName { namespace: key.namespace.clone(), name: key.name.clone() };
        self.objects.get(&key.kind)?.get(&name)
    }

    /// The keys of all objects that the operator has made.
    pub(crate) fn keys(&self) -> impl DoubleEndedIterator<Item = Key> {
        self.objects.iter().flat_map(|(kind, objects)| {
            objects.keys().map(|key| Key {
                kind: *kind,
                namespace: key.namespace.clone(),
                name: key.name.clone(),
            })
        })
    }
}

impl ObservedObject {
    pub(crate) fn new(kind: &Kind, object: &DynamicObject) -> Self {
        let mut hasher = DefaultHasher::new();
        let metadata = &object.metadata;
        (&metadata.labels, &metadata.annotations, &metadata.finalizers).hash(&mut hasher);
        metadata.deletion_timestamp.is_some().hash(&mut hasher);
        match metadata.generation {
            Some(generation) => generation.hash(&mut hasher),
            None => metadata.resource_version.hash(&mut hasher),
        }
        let is_workload = *kind == DAEMON_SET || *kind == DEPLOYMENT;
        Self {
            fingerprint: hasher.finish(),
            workload: is_workload.then(|| workload(object)),
            ca_bundle: published(kind, object),
        }
    }
}

fn published(kind: &Kind, object: &DynamicObject) -> Option<ByteString> {
    read_bundle(object.data["data"][CA_BUNDLE_KEY].as_str().filter(|_| *kind == CONFIG_MAP)?)
}

/// Deployments and DaemonSets have different names for the same counts.
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

/// The labels and taints, which decide which pods a node runs.
pub(crate) fn node_info(node: &DynamicObject) -> NodeInfo {
    let taints = node.data["spec"].get("taints").cloned().unwrap_or(Value::Array(Vec::new()));
    NodeInfo { labels: node.labels().clone(), taints: serde_json::from_value(taints).unwrap_or_default() }
}
