//! How many machines are changed at the same time, as the machines themselves see it.
//!
//! A machine is being changed from the moment its handler begins until that change is committed or taken back. If the
//! handler dies in between, that lasts until its next life has settled the matter.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use knmstate_host::{
    Abilities, Checkpoint, Events, Host, HostError, NetworkState, OpenCheckpoint, Plan, Versions,
    simulated::SimulatedHost,
};

/// Which machines are being changed.
#[derive(Clone, Debug, Default)]
pub struct Overlap(Arc<Mutex<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    now: BTreeSet<Arc<str>>,
    most: usize,
}

impl Overlap {
    /// How many were ever changed at the same time.
    pub fn most(&self) -> usize {
        self.lock().most
    }

    /// Those that are being changed now.
    pub fn now(&self) -> BTreeSet<String> {
        self.lock().now.iter().map(ToString::to_string).collect()
    }

    fn begins(&self, node: &Arc<str>) {
        let mut counts = self.lock();
        counts.now.insert(Arc::clone(node));
        counts.most = counts.most.max(counts.now.len());
    }

    fn ends(&self, node: &Arc<str>) {
        self.lock().now.remove(node);
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
    overlap: Overlap,
}

impl CountedHost {
    pub(crate) fn new(host: SimulatedHost, node: &str, overlap: &Overlap) -> Self {
        Self { host, node: node.into(), overlap: overlap.clone() }
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
        self.overlap.begins(&self.node);
        let begun = self.host.begin(desired, deadline).await;
        if begun.is_err() {
            self.overlap.ends(&self.node);
        }
        begun
    }

    async fn leave_open(&self, checkpoint: &Checkpoint, deadline: Duration) -> Result<(), HostError> {
        self.host.leave_open(checkpoint, deadline).await
    }

    async fn commit(&self, checkpoint: &Checkpoint) -> Result<(), HostError> {
        let settled = self.host.commit(checkpoint).await;
        if settled.is_ok() {
            self.overlap.ends(&self.node);
        }
        settled
    }

    async fn roll_back(&self, checkpoint: &Checkpoint) -> Result<(), HostError> {
        let settled = self.host.roll_back(checkpoint).await;
        if matches!(settled, Ok(()) | Err(HostError::CheckpointGone { .. })) {
            self.overlap.ends(&self.node);
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
