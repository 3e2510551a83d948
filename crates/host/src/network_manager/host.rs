//! The handle that the rest of the program holds.

use knmstate_document::NetworkState;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OnceCell, oneshot};
use tokio::time::timeout;

use super::options::{NetworkManagerLimits, NetworkManagerOptions};
use super::watcher::Watcher;
use super::worker::{Request, Worker};
use super::{abilities, aside, links};
use crate::error::HostError;
use crate::events::Events;
use crate::host::{Abilities, Checkpoint, Host, Link, OpenCheckpoint, Operation, Plan, Versions};
use crate::set_aside::SetAside;

/// The version of nmstate that is linked in. The crate does not export it; a test compares it with the lock file.
pub const NMSTATE_VERSION: &str = "2.2.62";

/// The machine that this process runs on, by nmstate and NetworkManager.
#[derive(Debug, Clone)]
pub struct NetworkManagerHost {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    worker: Worker,
    watcher: Watcher,
    limits: NetworkManagerLimits,
    journal: PathBuf,
    abilities: OnceCell<Abilities>,
}

impl NetworkManagerHost {
    /// Starts the two threads that serve the machine. It does not need NetworkManager to run already.
    pub async fn start(options: NetworkManagerOptions) -> Result<Self, HostError> {
        let (limits, journal) = (options.limits, options.journal.clone());
        let (watcher, stop) = Watcher::start(limits.answer).await?;
        let worker = Worker::start(options, watcher.source(), stop)?;
        Ok(Self { shared: Arc::new(Shared { worker, watcher, limits, journal, abilities: OnceCell::new() }) })
    }

    /// The threads that hang, by name. They keep to limits of their own, so only a restart of the process helps them.
    pub fn hung_threads(&self) -> Vec<&'static str> {
        let threads = [
            ("network-worker", self.shared.worker.is_hung()),
            ("network-watcher", self.shared.watcher.is_hung()),
        ];
        threads.into_iter().filter(|(_, is_hung)| *is_hung).map(|(name, _)| name).collect()
    }

    /// Puts a request to the worker and waits for the answer, no longer than `limit` altogether.
    async fn ask<T>(
        &self,
        operation: Operation,
        limit: Duration,
        request: impl FnOnce(oneshot::Sender<Result<T, HostError>>) -> Request,
    ) -> Result<T, HostError> {
        let (reply, answer) = oneshot::channel();
        let whole = async {
            self.shared.worker.submit(request(reply), limit).await?;
            answer.await.unwrap_or_else(|_| Err(gone()))
        };
        timeout(limit, whole).await.unwrap_or(Err(HostError::Timeout { operation, after: limit }))
    }
}

pub(super) fn gone() -> HostError {
    HostError::Unavailable { why: "the thread that speaks to it has ended".to_owned() }
}

impl Host for NetworkManagerHost {
    fn observe(&self) -> impl Future<Output = Result<NetworkState, HostError>> + Send {
        self.ask(Operation::Observe, self.shared.limits.observe, |reply| Request::Observe { reply })
    }

    fn events(&self) -> Events {
        self.shared.watcher.events()
    }

    fn plan(&self, desired: &NetworkState) -> impl Future<Output = Result<Plan, HostError>> + Send {
        let limit = self.shared.limits.observe + self.shared.limits.answer * 4;
        let desired = desired.clone();
        self.ask(Operation::Plan, limit, move |reply| Request::Plan { desired, reply })
    }

    fn begin(
        &self,
        desired: &NetworkState,
        deadline: Duration,
    ) -> impl Future<Output = Result<Checkpoint, HostError>> + Send {
        let NetworkManagerLimits { observe, answer, roll_back, settle } = self.shared.limits;
        // The worker keeps to its own limits; this one is for a worker that does not.
        let limit = observe + deadline + roll_back + settle + answer * 4;
        let desired = desired.clone();
        self.ask(Operation::Begin, limit, move |reply| Request::Begin { desired, deadline, reply })
    }

    fn leave_open(
        &self,
        checkpoint: &Checkpoint,
        deadline: Duration,
    ) -> impl Future<Output = Result<(), HostError>> + Send {
        let checkpoint = checkpoint.clone();
        let limit = self.shared.limits.observe + self.shared.limits.answer * 3;
        self.ask(Operation::Begin, limit, move |reply| Request::LeaveOpen { checkpoint, deadline, reply })
    }

    fn commit(&self, checkpoint: &Checkpoint) -> impl Future<Output = Result<(), HostError>> + Send {
        let checkpoint = checkpoint.clone();
        let limit = self.shared.limits.observe + self.shared.limits.answer * 2;
        self.ask(Operation::Commit, limit, move |reply| Request::Commit { checkpoint, reply })
    }

    fn roll_back(&self, checkpoint: &Checkpoint) -> impl Future<Output = Result<(), HostError>> + Send {
        let NetworkManagerLimits { observe, answer, roll_back, settle } = self.shared.limits;
        let checkpoint = checkpoint.clone();
        let limit = observe + roll_back * 2 + settle + answer * 4;
        self.ask(Operation::RollBack, limit, move |reply| Request::RollBack { checkpoint, reply })
    }

    fn open_checkpoints(&self) -> impl Future<Output = Result<Vec<OpenCheckpoint>, HostError>> + Send {
        self.ask(Operation::Observe, self.shared.limits.observe, |reply| Request::List { reply })
    }

    async fn links(&self) -> Vec<Link> {
        tokio::task::spawn_blocking(|| links::read(Path::new(links::SYS_CLASS_NET))).await.unwrap_or_default()
    }

    async fn set_aside(&self) -> Vec<SetAside> {
        let journal = self.shared.journal.clone();
        tokio::task::spawn_blocking(move || aside::list(&journal)).await.unwrap_or_default()
    }

    async fn versions(&self) -> Versions {
        Versions {
            nmstate: NMSTATE_VERSION.to_owned(),
            network_manager: self.shared.watcher.network_manager_version(),
        }
    }

    async fn abilities(&self) -> Abilities {
        let asked = self.shared.abilities.get_or_try_init(abilities::ask).await;
        asked.copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_nmstate_is_the_one_that_is_linked() {
        let lock = include_str!("../../../../Cargo.lock");
        let package = lock.split("[[package]]").find(|package| package.contains("name = \"nmstate\"\n"));
        let line = format!("version = \"{NMSTATE_VERSION}\"\n");
        assert!(package.is_some_and(|package| package.contains(&line)), "{package:?}");
    }

    #[test]
    fn its_futures_can_be_spawned() {
        fn sendable<T: Send>(_: &T) {}
        fn all(host: &NetworkManagerHost, state: &NetworkState, checkpoint: &Checkpoint) {
            sendable(&host.observe());
            sendable(&host.plan(state));
            sendable(&host.abilities());
            sendable(&host.begin(state, Duration::ZERO));
            sendable(&host.commit(checkpoint));
            sendable(&host.roll_back(checkpoint));
        }
        let _ = all;
    }
}
