//! The watches of the leader. When it takes over, it lists all objects again.
//!
//! Watching while another controller leads would save the lists. But what was read before the lease was acquired may lack
//! the last writes of the previous leader, and an enactment whose policy was not read yet looks like one whose policy was
//! deleted.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use knmstate_api::names::{COMPONENT_LABEL, HANDLER_COMPONENT};
use knmstate_client::{
    parts::Parts,
    watch::{ObjectEvent, Selection, follow},
};
use kube::{Api, Client, Resource, core::DeserializeGuard};
use serde::de::DeserializeOwned;
use tokio::sync::{Notify, watch as channel};

use crate::{
    certificates::{RotationIntervals, parse_intervals},
    cluster_state::{ClusterState, EnactmentEvent},
    pool_watch,
};

/// How many events of enactments may wait until they are reported.
const MAX_PENDING_EVENTS: usize = 512;

/// The state of the cluster, which the watches keep up to date. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedClusterState(Arc<SharedParts>);

#[derive(Debug, Default)]
struct SharedParts {
    cluster: Mutex<ClusterState>,
    events: Mutex<Vec<EnactmentEvent>>,
    changed: Notify,
    intervals: channel::Sender<Option<RotationIntervals>>,
    needs_pools: channel::Sender<bool>,
}

impl SharedClusterState {
    pub(crate) fn lock(&self) -> MutexGuard<'_, ClusterState> {
        self.0.cluster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something has changed.
    pub(crate) async fn changed(&self) {
        self.0.changed.notified().await;
    }

    /// The events of enactments since the last call.
    pub(crate) fn take_events(&self) -> Vec<EnactmentEvent> {
        std::mem::take(&mut *self.0.events.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Drops everything that was read.
    pub(crate) fn forget(&self) {
        *self.lock() = ClusterState::default();
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut ClusterState)) {
        let mut cluster = self.lock();
        change(&mut cluster);
        let needs_pools = cluster.needs_pools();
        drop(cluster);
        self.0.needs_pools.send_if_modified(|known| std::mem::replace(known, needs_pools) != needs_pools);
        self.0.changed.notify_one();
    }

    /// Whether a policy is to be rolled out through MachineConfigPools.
    pub(crate) fn needs_pools(&self) -> channel::Receiver<bool> {
        self.0.needs_pools.subscribe()
    }

    /// How often certificates are replaced, once that is known.
    pub(crate) fn intervals(&self) -> channel::Receiver<Option<RotationIntervals>> {
        self.0.intervals.subscribe()
    }

    fn publish_intervals(&self) {
        let state = self.lock();
        if !state.has_settings() {
            return;
        }
        let (wanted, remarks) = parse_intervals(state.self_sign());
        drop(state);
        let is_new = self.0.intervals.send_if_modified(|known| known.replace(wanted) != Some(wanted));
        for remark in remarks.iter().filter(|_| is_new) {
            tracing::warn!("selfSignConfiguration: {remark}");
        }
    }

    fn report(&self, new: Vec<EnactmentEvent>) {
        let mut events = self.0.events.lock().unwrap_or_else(PoisonError::into_inner);
        let room = MAX_PENDING_EVENTS.saturating_sub(events.len());
        events.extend(new.into_iter().take(room));
    }
}

/// Starts the watches, which end when the result is dropped.
pub(crate) fn watch(
    client: &Client,
    namespace: &str,
    cluster: &SharedClusterState,
    now: fn() -> Timestamp,
) -> Parts {
    let mut watches = Parts::default();
    let all = || Selection::All;
    let handlers = Selection::Label(format!("{COMPONENT_LABEL}={HANDLER_COMPONENT}"));
    let to = cluster.clone();
    start(&mut watches, Api::all(client.clone()), all(), "watch policies", move |seen| {
        to.change(|cluster| cluster.observe_policies(seen));
    });
    let to = cluster.clone();
    start(&mut watches, Api::all(client.clone()), all(), "watch nodes", move |seen| {
        to.change(|cluster| cluster.observe_nodes(seen));
    });
    let to = cluster.clone();
    let pods = Api::namespaced(client.clone(), namespace);
    start(&mut watches, pods, handlers, "watch the pods of handlers", move |seen| {
        to.change(|cluster| cluster.observe_handlers(seen, now()));
    });
    let to = cluster.clone();
    start(&mut watches, Api::all(client.clone()), all(), "watch enactments", move |seen| {
        let mut events = Vec::new();
        to.change(|cluster| events = cluster.observe_enactments(seen));
        to.report(events);
    });
    let to = cluster.clone();
    start(&mut watches, Api::all(client.clone()), all(), "watch the states of nodes", move |seen| {
        to.change(|cluster| cluster.observe_node_states(seen));
    });
    let to = cluster.clone();
    start(&mut watches, Api::all(client.clone()), all(), "watch the settings", move |seen| {
        to.change(|cluster| cluster.observe_nmstates(seen));
        to.publish_intervals();
    });
    watches.spawn("watch MachineConfigPools", pool_watch::keep(client.clone(), cluster.clone()));
    watches
}

fn start<K>(
    watches: &mut Parts,
    api: Api<DeserializeGuard<K>>,
    selection: Selection,
    doing: &'static str,
    see: impl FnMut(ObjectEvent<K>) + Send + 'static,
) where
    K: Resource + DeserializeOwned + Clone + std::fmt::Debug + Send + 'static,
{
    watches.spawn(doing, follow(api, selection, doing, |_| {}, see));
}
