//! The thread that owns nmstate and takes requests one at a time.

use knmstate_document::NetworkState;
use std::thread;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::change::GuardedChanges;
use super::host::gone;
use super::options::NetworkManagerOptions;
use super::readings::KEPT;
use crate::error::HostError;
use crate::events::Events;
use crate::host::{Checkpoint, OpenCheckpoint, Plan};

/// More requests than this can only come from callers that do not wait for their answers.
const QUEUE: usize = 16;

pub(super) type Reply<T> = oneshot::Sender<Result<T, HostError>>;

#[derive(Debug)]
pub(super) enum Request {
    Observe { reply: Reply<NetworkState> },
    Plan { desired: NetworkState, reply: Reply<Plan> },
    Begin { desired: NetworkState, deadline: Duration, reply: Reply<Checkpoint> },
    LeaveOpen { checkpoint: Checkpoint, deadline: Duration, reply: Reply<()> },
    Commit { checkpoint: Checkpoint, reply: Reply<()> },
    RollBack { checkpoint: Checkpoint, reply: Reply<()> },
    List { reply: Reply<Vec<OpenCheckpoint>> },
}

/// The way to the thread. It ends when this is dropped, after the request it is busy with.
#[derive(Debug)]
pub(super) struct Worker(mpsc::Sender<Request>);

impl Worker {
    /// `events` are those of the machine.
    pub(super) fn start(options: NetworkManagerOptions, events: Events) -> Result<Self, HostError> {
        let (sender, requests) = mpsc::channel(QUEUE);
        let runtime = runtime()?;
        thread::Builder::new()
            .name("network-worker".to_owned())
            .spawn(move || runtime.block_on(serve(requests, GuardedChanges::new(options, events))))
            .map_err(|error| HostError::Unavailable { why: format!("no thread to speak to it: {error}") })?;
        Ok(Self(sender))
    }

    pub(super) async fn submit(&self, request: Request) -> Result<(), HostError> {
        self.0.send(request).await.map_err(|_| gone())
    }
}

/// A runtime for one thread of ours.
pub(super) fn runtime() -> Result<tokio::runtime::Runtime, HostError> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| HostError::Unavailable { why: format!("no runtime to speak to it: {error}") })
}

async fn serve(mut requests: mpsc::Receiver<Request>, mut machine: GuardedChanges) {
    loop {
        let next = if let Ok(next) = timeout(KEPT, requests.recv()).await {
            next
        } else {
            machine.rest();
            requests.recv().await
        };
        let Some(request) = next else { return };
        match request {
            Request::Observe { reply } => answer(reply, Box::pin(machine.observe())).await,
            Request::Plan { desired, reply } => answer(reply, Box::pin(machine.plan(&desired))).await,
            Request::Begin { desired, deadline, reply } => {
                answer(reply, Box::pin(machine.begin(&desired, deadline))).await;
            }
            Request::LeaveOpen { checkpoint, deadline, reply } => {
                answer(reply, Box::pin(machine.leave_open(&checkpoint, deadline))).await;
            }
            Request::Commit { checkpoint, reply } => answer(reply, machine.commit(&checkpoint)).await,
            Request::RollBack { checkpoint, reply } => {
                answer(reply, Box::pin(machine.roll_back(&checkpoint))).await;
            }
            Request::List { reply } => answer(reply, machine.open_checkpoints()).await,
        }
    }
}

/// Handles a request, unless its caller has stopped waiting. A request that has begun is finished in any case.
async fn answer<T>(reply: Reply<T>, work: impl Future<Output = Result<T, HostError>>) {
    if !reply.is_closed() {
        let _ = reply.send(work.await);
    }
}
