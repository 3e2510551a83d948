//! Counts the machines that are changed at the same time, at the machines themselves.
//!
//! A machine is being changed from the moment its handler begins until that change is committed or rolled back. If the
//! handler dies in between, the change stays open until its next process has settled it.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use knmstate_host::{
    Abilities, Checkpoint, Events, Host, HostError, NetworkState, OpenCheckpoint, Plan, Versions,
};
use knmstate_simulated_host::SimulatedHost;

/// The machines that are being changed. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub struct ConcurrentChanges(Arc<Mutex<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    current: BTreeSet<Arc<str>>,
    max: usize,
}

impl ConcurrentChanges {
    /// The largest number of machines that were changed at the same time.
    pub fn max(&self) -> usize {
        self.lock().max
    }

    /// The names of the machines that are being changed now.
    pub fn current(&self) -> BTreeSet<String> {
        self.lock().current.iter().map(ToString::to_string).collect()
    }

    fn begin(&self, node: &Arc<str>) {
        let mut counts = self.lock();
        counts.current.insert(Arc::clone(node));
        counts.max = counts.max.max(counts.current.len());
    }

    fn end(&self, node: &Arc<str>) {
        self.lock().current.remove(node);
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A simulated host whose changes are counted.
#[derive(Clone, Debug)]
pub(crate) struct CountedHost {
    host: SimulatedHost,
    node: Arc<str>,
    concurrent_changes: ConcurrentChanges,
}

impl CountedHost {
    pub(crate) fn new(host: SimulatedHost, node: &str, concurrent_changes: &ConcurrentChanges) -> Self {
        Self { host, node: node.into(), concurrent_changes: concurrent_changes.clone() }
    }
}

impl Host for CountedHost {
    async fn observe(&self) -> Result<NetworkState, HostError> {
        self.host.observe().await
    }

    fn events(&self) -> Events {
        self.host.events()
    }

    async fn plan(&self, desired: &NetworkState) -> Result<Plan, HostError> {
        self.host.plan(desired).await
    }

    async fn begin(&self, desired: &NetworkState, deadline: Duration) -> Result<Checkpoint, HostError> {
        self.concurrent_changes.begin(&self.node);
        let begun = self.host.begin(desired, deadline).await;
        if begun.is_err() {
            self.concurrent_changes.end(&self.node);
        }
        begun
    }

    async fn leave_open(&self, checkpoint: &Checkpoint, deadline: Duration) -> Result<(), HostError> {
        self.host.leave_open(checkpoint, deadline).await
    }

    async fn commit(&self, checkpoint: &Checkpoint) -> Result<(), HostError> {
        let settled = self.host.commit(checkpoint).await;
        if settled.is_ok() {
            self.concurrent_changes.end(&self.node);
        }
        settled
    }

    async fn roll_back(&self, checkpoint: &Checkpoint) -> Result<(), HostError> {
        let settled = self.host.roll_back(checkpoint).await;
        if matches!(settled, Ok(()) | Err(HostError::CheckpointGone { .. })) {
            self.concurrent_changes.end(&self.node);
        }
        settled
    }

    async fn open_checkpoints(&self) -> Result<Vec<OpenCheckpoint>, HostError> {
        self.host.open_checkpoints().await
    }

    async fn versions(&self) -> Versions {
        self.host.versions().await
    }

    async fn abilities(&self) -> Abilities {
        self.host.abilities().await
    }
}
