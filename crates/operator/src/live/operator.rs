//! The operator as a process: the replica that leads works, and all of them serve health checks.

use std::{fmt, io, time::Duration};

use axum::{Router, http::StatusCode, routing::get};
use jiff::Timestamp;
use knmstate_client::{
    call::Backoff,
    connection::connect,
    lease::{LeaderElector, LeaseOptions},
    parts::PartEnded,
    progress::Progress,
};
use knmstate_core::lease::LeaseTiming;
use kube::Client;
use tokio::{
    net::TcpListener,
    sync::watch,
    time::{Instant, sleep, sleep_until},
};

use super::{
    reconcile::{ReconcileError, Reconciler},
    sources::Watches,
    surroundings::{self, Surroundings},
    view::View,
};
use crate::{Config, cluster::ClusterInfo};

/// How often the operator checks whether the cluster still has the same kinds and the same platform.
const INSPECT_INTERVAL: Duration = Duration::from_secs(30);
/// How long to wait for further changes before they are handled together.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// A pass that takes longer hangs. Each of its calls and deletions has a limit, which add up if the API server is slow.
const PASS_LIMIT: Duration = Duration::from_mins(30);

/// What an operator needs.
#[derive(Clone)]
pub struct OperatorOptions {
    pub client: Client,
    pub config: Config,
    /// Different for every process.
    pub identity: String,
    pub lease: LeaseTiming,
    pub now: fn() -> Timestamp,
}

impl fmt::Debug for OperatorOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("OperatorOptions").field("config", &self.config).finish_non_exhaustive()
    }
}

/// A client without the retries of kube: the operator repeats what failed by itself.
pub fn client(config: kube::Config) -> kube::Result<Client> {
    connect(config, Duration::from_secs(5))
}

/// Why an operator has ended without being asked to.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    #[error("cannot serve the health checks of the operator: {0}")]
    Serve(#[from] io::Error),
    #[error(transparent)]
    Part(#[from] PartEnded),
}

/// Works until it is asked to stop. Fails if a part of the process ends.
pub async fn run(
    options: OperatorOptions,
    health: Option<TcpListener>,
    mut stop: watch::Receiver<bool>,
) -> Result<(), OperatorError> {
    let progress = Progress::default();
    let lease = LeaseOptions {
        namespace: options.config.operator_namespace.clone(),
        name: options.config.settings(false).operator(),
        identity: options.identity.clone(),
        terms: options.lease,
        now: options.now,
    };
    let mut elector = LeaderElector::start(options.client.clone(), lease, progress.clone());
    let mut leadership = elector.leadership();
    let in_turn = async {
        loop {
            leadership.gained().await;
            tokio::select! {
                () = leadership.lost() => {}
                ended = lead(&options, &progress) => return ended,
            }
        }
    };
    let answer = async {
        match health {
            Some(listener) => axum::serve(listener, health_router(&progress)).await,
            None => std::future::pending().await,
        }
    };
    let ended = tokio::select! {
        ended = in_turn => Err(ended.into()),
        ended = elector.ended() => Err(ended.into()),
        ended = answer => ended.map_err(OperatorError::from),
        _ = stop.wait_for(|stop| *stop) => Ok(()),
    };
    elector.release().await;
    ended
}

/// It is healthy as long as its loops make progress: what fails is shown in the NMState, and a restart would not help.
fn health_router(progress: &Progress) -> Router {
    let progress = progress.clone();
    let healthz = async move || {
        let hung = progress.hung();
        if hung.is_empty() {
            return (StatusCode::OK, "ok\n".to_owned());
        }
        (StatusCode::SERVICE_UNAVAILABLE, format!("not responding: {}\n", hung.join(", ")))
    };
    Router::new().route("/healthz", get(healthz)).route("/readyz", get(async || "ok"))
}

/// Keeps the cluster as the NMState says. It returns only if a watch ends.
async fn lead(options: &OperatorOptions, progress: &Progress) -> PartEnded {
    let view = View::default();
    let mut reconciler = Reconciler::new(options.client.clone(), options.config.clone(), options.now);
    retry(async || reconciler.define_kinds().await).await;
    let settings = options.config.settings(false);
    let mut watches = Watches::start(&options.client, &settings, &view);
    let mut surroundings = None;
    let mut inspected_at = Instant::now();
    let mut backoff = Backoff::new();
    loop {
        let pass = async {
            if surroundings.is_none() || inspected_at.elapsed() >= INSPECT_INTERVAL {
                let found = surroundings.insert(inspect(options).await?);
                watches.include(&ClusterInfo { kinds: found.kinds.clone(), ..ClusterInfo::default() });
                inspected_at = Instant::now();
            }
            let (Some(surroundings), true) = (&surroundings, watches.are_complete()) else { return Ok(()) };
            let snapshot = view.lock().clone();
            reconciler.pass(&snapshot, surroundings).await
        };
        let turn = progress.begin("operator", PASS_LIMIT);
        let result = pass.await;
        drop(turn);
        if let Err(failure) = result {
            tracing::warn!("{failure}; it will be tried again");
            tokio::select! {
                () = sleep(backoff.next_delay()) => continue,
                ended = watches.ended() => return ended,
            }
        }
        backoff = Backoff::new();
        tokio::select! {
            () = view.changed() => sleep(DEBOUNCE).await,
            () = sleep_until(inspected_at + INSPECT_INTERVAL) => {}
            ended = watches.ended() => return ended,
        }
    }
}

async fn inspect(options: &OperatorOptions) -> Result<Surroundings, ReconcileError> {
    surroundings::inspect(&options.client, &options.config).await.map_err(|error| ReconcileError::Call {
        doing: "cannot find out what kind of cluster this is",
        error,
    })
}

async fn retry<E: fmt::Display>(mut attempt: impl AsyncFnMut() -> Result<(), E>) {
    let mut backoff = Backoff::new();
    while let Err(failure) = attempt().await {
        tracing::warn!("{failure}; it will be tried again");
        sleep(backoff.next_delay()).await;
    }
}
