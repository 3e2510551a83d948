//! The thread that owns nmstate and takes requests one at a time.
//!
//! A panic ends the request that it happens in, and no other: what was known about the machine is dropped, and the next
//! request reads it again. A change that was open then is in the journal.

use knmstate_document::NetworkState;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use futures::FutureExt as _;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};

use super::change::GuardedChanges;
use super::host::gone;
use super::options::NetworkManagerOptions;
use super::readings::KEPT;
use super::watcher::StopOnDrop;
use crate::error::HostError;
use crate::events::EventSource;
use crate::host::{Checkpoint, OpenCheckpoint, Operation, Plan};

#[cfg(panic = "abort")]
compile_error!("a panic in nmstate must end a request, not the process: build with panic = \"unwind\"");

/// More requests than this can only come from callers that do not wait for their answers.
const QUEUE: usize = 16;

/// How much longer than its caller waits a request may take before the thread counts as hung.
const MARGIN: Duration = Duration::from_mins(1);

pub(super) type Reply<T> = oneshot::Sender<Result<T, HostError>>;

#[derive(Debug)]
pub(super) enum Request {
    Observe {
        reply: Reply<NetworkState>,
    },
    Plan {
        desired: NetworkState,
        reply: Reply<Plan>,
    },
    Begin {
        desired: NetworkState,
        deadline: Duration,
        reply: Reply<Checkpoint>,
    },
    LeaveOpen {
        checkpoint: Checkpoint,
        deadline: Duration,
        reply: Reply<()>,
    },
    Commit {
        checkpoint: Checkpoint,
        reply: Reply<()>,
    },
    RollBack {
        checkpoint: Checkpoint,
        reply: Reply<()>,
    },
    List {
        reply: Reply<Vec<OpenCheckpoint>>,
    },
    #[cfg(test)]
    Panic {
        reply: Reply<()>,
    },
}

/// A request, and how long its caller waits.
#[derive(Debug)]
struct Job {
    request: Request,
    limit: Duration,
}

/// The way to the thread. It ends when this is dropped, after the request it is busy with.
#[derive(Debug)]
pub(super) struct Worker {
    jobs: mpsc::Sender<Job>,
    busy: Arc<Busy>,
}

/// When the request that the thread is busy with should be done.
#[derive(Debug, Default)]
struct Busy(Mutex<Option<Instant>>);

impl Busy {
    fn until(&self, end: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = end;
    }

    fn is_late(&self) -> bool {
        let end = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        end.is_some_and(|end| Instant::now() > end)
    }
}

impl Worker {
    /// `events` are those of the machine; `watcher` stops when the thread ends, because watching is of no use then.
    pub(super) fn start(
        options: NetworkManagerOptions,
        events: EventSource,
        watcher: StopOnDrop,
    ) -> Result<Self, HostError> {
        let (sender, jobs) = mpsc::channel(QUEUE);
        let busy = Arc::<Busy>::default();
        let runtime = runtime()?;
        let progress = busy.clone();
        thread::Builder::new()
            .name("network-worker".to_owned())
            .spawn(move || {
                let _watcher = watcher;
                let machine = || GuardedChanges::new(options.clone(), events.subscribe());
                runtime.block_on(serve(jobs, machine, &progress));
            })
            .map_err(|error| HostError::Unavailable { why: format!("no thread to speak to it: {error}") })?;
        Ok(Self { jobs: sender, busy })
    }

    /// Puts a request into the queue, for a caller that waits no longer than `limit`.
    pub(super) async fn submit(&self, request: Request, limit: Duration) -> Result<(), HostError> {
        self.jobs.send(Job { request, limit }).await.map_err(|_| gone())
    }

    /// Whether a request takes much longer than its caller waits. The requests keep to limits of their own, so the
    /// thread hangs then.
    pub(super) fn is_hung(&self) -> bool {
        self.busy.is_late()
    }
}

/// A runtime for one thread of ours.
pub(super) fn runtime() -> Result<tokio::runtime::Runtime, HostError> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| HostError::Unavailable { why: format!("no runtime to speak to it: {error}") })
}

async fn serve(mut jobs: mpsc::Receiver<Job>, new_machine: impl Fn() -> GuardedChanges, busy: &Busy) {
    let mut machine = new_machine();
    loop {
        let next = if let Ok(next) = timeout(KEPT, jobs.recv()).await {
            next
        } else {
            machine.rest();
            jobs.recv().await
        };
        let Some(Job { request, limit }) = next else { return };
        busy.until(Some(Instant::now() + limit + MARGIN));
        let panicked = handle(request, &mut machine).await.is_err();
        busy.until(None);
        if panicked {
            machine = new_machine();
        }
    }
}

async fn handle(request: Request, machine: &mut GuardedChanges) -> Result<(), Panicked> {
    match request {
        Request::Observe { reply } => answer(reply, Operation::Observe, Box::pin(machine.observe())).await,
        Request::Plan { desired, reply } => {
            answer(reply, Operation::Plan, Box::pin(machine.plan(&desired))).await
        }
        Request::Begin { desired, deadline, reply } => {
            answer(reply, Operation::Begin, Box::pin(machine.begin(&desired, deadline))).await
        }
        Request::LeaveOpen { checkpoint, deadline, reply } => {
            answer(reply, Operation::Begin, Box::pin(machine.leave_open(&checkpoint, deadline))).await
        }
        Request::Commit { checkpoint, reply } => {
            answer(reply, Operation::Commit, machine.commit(&checkpoint)).await
        }
        Request::RollBack { checkpoint, reply } => {
            answer(reply, Operation::RollBack, Box::pin(machine.roll_back(&checkpoint))).await
        }
        Request::List { reply } => answer(reply, Operation::Observe, machine.open_checkpoints()).await,
        #[cfg(test)]
        Request::Panic { reply } => answer(reply, Operation::Begin, tests::panics()).await,
    }
}

/// The request has panicked; the caller knows it already.
struct Panicked;

/// Handles a request, unless its caller has stopped waiting. A request that has begun is finished in any case.
async fn answer<T>(
    reply: Reply<T>,
    operation: Operation,
    work: impl Future<Output = Result<T, HostError>>,
) -> Result<(), Panicked> {
    if reply.is_closed() {
        return Ok(());
    }
    // What the panic leaves half done, `serve` throws away.
    let result = AssertUnwindSafe(work).catch_unwind().await;
    let ended = if result.is_ok() { Ok(()) } else { Err(Panicked) };
    let error = HostError::Panicked { during: operation.to_string() };
    let _ = reply.send(result.unwrap_or(Err(error)));
    ended
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::Announcer;

    const LIMIT: Duration = Duration::from_secs(30);

    pub(super) fn panics() -> impl Future<Output = Result<(), HostError>> {
        futures::future::lazy(|_| panic!("a bug that quotes {}", std::hint::black_box("hush")))
    }

    struct Fixture {
        worker: Worker,
        watcher: oneshot::Receiver<()>,
        _announcer: Announcer,
        _journal: tempfile::TempDir,
    }

    impl Fixture {
        fn new() -> Self {
            let (journal, announcer) = (tempfile::tempdir().expect("a directory"), Announcer::new());
            let (stop, watcher) = StopOnDrop::new();
            let options = NetworkManagerOptions::new(journal.path());
            let worker = Worker::start(options, announcer.source(), stop).expect("a thread");
            Self { worker, watcher, _announcer: announcer, _journal: journal }
        }

        async fn ask<T>(
            &self,
            limit: Duration,
            request: impl FnOnce(Reply<T>) -> Request,
        ) -> Result<T, HostError> {
            let (reply, answer) = oneshot::channel();
            self.worker.submit(request(reply), limit).await?;
            timeout(LIMIT, answer).await.expect("an answer in time").expect("an answer")
        }
    }

    #[tokio::test]
    async fn a_panic_ends_its_request_and_the_next_one_works() {
        let fixture = Fixture::new();
        for _ in 0..3 {
            let error = fixture.ask(LIMIT, |reply| Request::Panic { reply }).await.expect_err("a panic");
            assert_eq!(error, HostError::Panicked { during: "applying".to_owned() });
            assert!(!error.to_string().contains("hush"));
            // It asks NetworkManager, if there is one here, and only reads.
            fixture.ask(LIMIT, |reply| Request::List { reply }).await.expect("a list");
        }
        assert!(!fixture.worker.is_hung());
    }

    #[tokio::test]
    async fn the_watcher_stops_when_the_thread_ends() {
        let Fixture { worker, watcher, .. } = Fixture::new();
        drop(worker);
        timeout(LIMIT, watcher).await.expect("in time").expect_err("its sender is dropped");
    }

    #[test]
    fn a_request_that_is_late_is_noticed() {
        let busy = Busy::default();
        assert!(!busy.is_late());
        busy.until(Some(Instant::now() + LIMIT));
        assert!(!busy.is_late(), "long is not late");
        busy.until(Some(Instant::now()));
        while !busy.is_late() {
            thread::yield_now();
        }
        busy.until(None);
        assert!(!busy.is_late());
    }
}
