//! The operator as a process: one of its replicas works, and all of them answer for their health.

use std::{fmt, io, time::Duration};

use axum::{Router, routing::get};
use jiff::Timestamp;
use knmstate_client::{
    call::Pauses,
    lease::{self, Keeper},
};
use knmstate_core::lease::Terms;
use kube::Client;
use tokio::{
    net::TcpListener,
    sync::watch,
    time::{Instant, sleep, sleep_until},
};

use super::{
    converge::{Converger, Failure},
    sources::Watches,
    surroundings::{self, Surroundings},
    view::View,
};
use crate::{Config, facts::Facts};

/// How often it is looked whether the cluster is still of the same kind.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// What happens together is done together.
const GATHERING: Duration = Duration::from_millis(100);

/// What an operator works with.
#[derive(Clone)]
pub struct Options {
    pub client: Client,
    pub config: Config,
    /// Different for every process.
    pub identity: String,
    pub lease: Terms,
    pub now: fn() -> Timestamp,
}

impl fmt::Debug for Options {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Options").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Works until it is asked to stop.
pub async fn run(
    options: Options,
    health: Option<TcpListener>,
    mut stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let keeper = Keeper::start(
        options.client.clone(),
        lease::Options {
            namespace: options.config.operator_namespace.clone(),
            name: options.config.settings(false).operator(),
            identity: options.identity.clone(),
            terms: options.lease,
            now: options.now,
        },
    );
    let mut leadership = keeper.leadership();
    let in_turn = async {
        loop {
            leadership.gained().await;
            tokio::select! {
                () = leadership.lost() => {}
                () = lead(&options) => {}
            }
        }
    };
    let answer = async {
        match health {
            Some(listener) => axum::serve(listener, doors()).await,
            None => std::future::pending().await,
        }
    };
    let ended = tokio::select! {
        () = in_turn => Ok(()),
        ended = answer => ended,
        _ = stop.wait_for(|stop| *stop) => Ok(()),
    };
    keeper.give_back().await;
    ended
}

/// A process that answers is well: what does not go well is told in the NMState, and starting anew would not help.
fn doors() -> Router {
    Router::new().route("/healthz", get(async || "ok")).route("/readyz", get(async || "ok"))
}

/// Keeps the cluster as the NMState says, for ever.
async fn lead(options: &Options) {
    let view = View::default();
    let mut converger = Converger::new(options.client.clone(), options.config.clone(), options.now);
    persistently(async || converger.define_kinds().await).await;
    let settings = options.config.settings(false);
    let mut watches = Watches::start(&options.client, &settings, &view);
    let mut surroundings = None;
    let mut looked = Instant::now();
    let mut pauses = Pauses::new();
    loop {
        let pass = async {
            if surroundings.is_none() || looked.elapsed() >= LOOK_AGAIN {
                let found = surroundings.insert(look(options).await?);
                watches.include(&Facts { kinds: found.kinds.clone(), ..Facts::default() });
                looked = Instant::now();
            }
            let (Some(surroundings), true) = (&surroundings, watches.are_complete()) else { return Ok(()) };
            let seen = view.lock().clone();
            converger.pass(&seen, surroundings).await
        };
        if let Err(failure) = pass.await {
            tracing::warn!("{failure}; it will be tried again");
            sleep(pauses.longer()).await;
            continue;
        }
        pauses = Pauses::new();
        tokio::select! {
            () = view.changed() => sleep(GATHERING).await,
            () = sleep_until(looked + LOOK_AGAIN) => {}
        }
    }
}

async fn look(options: &Options) -> Result<Surroundings, Failure> {
    surroundings::look(&options.client, &options.config)
        .await
        .map_err(|error| Failure::Call { doing: "cannot find out what kind of cluster this is", error })
}

async fn persistently<E: fmt::Display>(mut attempt: impl AsyncFnMut() -> Result<(), E>) {
    let mut pauses = Pauses::new();
    while let Err(failure) = attempt().await {
        tracing::warn!("{failure}; it will be tried again");
        sleep(pauses.longer()).await;
    }
}
