//! The watches of the leader: everything is read anew when it takes over, and followed from there.
//!
//! It could keep watching while another one leads, and be quicker by a list. But what was read before the lease was
//! taken may lack the last writes of the leader before, and an enactment whose policy is not known yet looks like one
//! whose policy is gone.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use knmstate_api::names::{COMPONENT_LABEL, HANDLER_COMPONENT};
use knmstate_client::watch::{Seen, Selection, follow};
use kube::{Api, Client, Resource, core::DeserializeGuard};
use serde::de::DeserializeOwned;
use tokio::{
    sync::{Notify, watch as channel},
    task::JoinSet,
};

use crate::{
    certificates::{Intervals, intervals},
    pool_watch,
    world::{Happening, World},
};

/// How many happenings are kept for those who tell about them.
const MOST_HAPPENINGS: usize = 512;

/// A world that is kept up to date.
#[derive(Clone, Debug, Default)]
pub struct LiveWorld(Arc<Live>);

#[derive(Debug, Default)]
struct Live {
    world: Mutex<World>,
    happenings: Mutex<Vec<Happening>>,
    bell: Notify,
    intervals: channel::Sender<Option<Intervals>>,
    needs_pools: channel::Sender<bool>,
}

impl LiveWorld {
    pub fn lock(&self) -> MutexGuard<'_, World> {
        self.0.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something has changed.
    pub async fn changed(&self) {
        self.0.bell.notified().await;
    }

    /// What has happened since this was last asked.
    pub fn take_happenings(&self) -> Vec<Happening> {
        std::mem::take(&mut *self.0.happenings.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Forgets everything.
    pub fn forget(&self) {
        *self.lock() = World::default();
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut World)) {
        let mut world = self.lock();
        change(&mut world);
        let needs_pools = world.needs_pools();
        drop(world);
        self.0.needs_pools.send_if_modified(|known| std::mem::replace(known, needs_pools) != needs_pools);
        self.0.bell.notify_one();
    }

    /// Whether a policy is to be rolled out through MachineConfigPools.
    pub(crate) fn needs_pools(&self) -> channel::Receiver<bool> {
        self.0.needs_pools.subscribe()
    }

    /// How often certificates are replaced, once that is known.
    pub fn intervals(&self) -> channel::Receiver<Option<Intervals>> {
        self.0.intervals.subscribe()
    }

    fn publish_intervals(&self) {
        let Some((wanted, remarks)) = self.lock().self_sign().map(intervals) else { return };
        let is_new = self.0.intervals.send_if_modified(|known| known.replace(wanted) != Some(wanted));
        for remark in remarks.iter().filter(|_| is_new) {
            tracing::warn!("selfSignConfiguration: {remark}");
        }
    }

    fn tell(&self, new: Vec<Happening>) {
        let mut happenings = self.0.happenings.lock().unwrap_or_else(PoisonError::into_inner);
        let room = MOST_HAPPENINGS.saturating_sub(happenings.len());
        happenings.extend(new.into_iter().take(room));
    }
}

/// Begins to watch; ends when dropped.
pub fn watch(client: &Client, namespace: &str, world: &LiveWorld, now: fn() -> Timestamp) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    let all = || Selection::All;
    let handlers = Selection::Label(format!("{COMPONENT_LABEL}={HANDLER_COMPONENT}"));
    let to = world.clone();
    start(&mut tasks, Api::all(client.clone()), all(), "watch policies", move |seen| {
        to.change(|world| world.see_policies(seen));
    });
    let to = world.clone();
    start(&mut tasks, Api::all(client.clone()), all(), "watch nodes", move |seen| {
        to.change(|world| world.see_nodes(seen));
    });
    let to = world.clone();
    let pods = Api::namespaced(client.clone(), namespace);
    start(&mut tasks, pods, handlers, "watch the pods of handlers", move |seen| {
        to.change(|world| world.see_handlers(seen, now()));
    });
    let to = world.clone();
    start(&mut tasks, Api::all(client.clone()), all(), "watch enactments", move |seen| {
        let mut happenings = Vec::new();
        to.change(|world| happenings = world.see_enactments(seen));
        to.tell(happenings);
    });
    let to = world.clone();
    start(&mut tasks, Api::all(client.clone()), all(), "watch the states of nodes", move |seen| {
        to.change(|world| world.see_node_states(seen));
    });
    let to = world.clone();
    start(&mut tasks, Api::all(client.clone()), all(), "watch the settings", move |seen| {
        to.change(|world| world.see_settings(seen));
        to.publish_intervals();
    });
    tasks.spawn(pool_watch::keep(client.clone(), world.clone()));
    tasks
}

fn start<K>(
    tasks: &mut JoinSet<()>,
    api: Api<DeserializeGuard<K>>,
    selection: Selection,
    doing: &'static str,
    see: impl FnMut(Seen<K>) + Send + 'static,
) where
    K: Resource + DeserializeOwned + Clone + std::fmt::Debug + Send + 'static,
{
    tasks.spawn(follow(api, selection, doing, |_| {}, see));
}
