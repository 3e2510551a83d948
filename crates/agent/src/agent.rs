//! The parts of the agent, connected.

use std::{io, pin::pin, time::Duration};

use futures::{FutureExt as _, future::FusedFuture as _};
use knmstate_host::Host;
use tokio::{sync::watch, time::timeout};

use crate::{
    change_lock::ChangeLock,
    engine::{AgentParts, Engine, OrderOutcome},
    report::{ObservedNetwork, Reporter},
    store::Store,
};

/// How long the delivery of results may take when the process ends.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// How long the other parts have to roll back what is open when one has ended. NetworkManager does it otherwise.
const LAST_STEPS: Duration = Duration::from_secs(30);

/// Why the agent ended, although it was not asked to.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error("the node's disk cannot be used")]
    Disk(#[from] io::Error),
    /// Without this part the rest would look well and do nothing, so the process has to end, too.
    #[error("a part of the agent has ended: {what}")]
    PartEnded { what: String },
}

/// The agent of one node: an engine that applies orders, and a reporter of the network. A [`ChangeLock`] keeps the
/// reporter from reading while the engine changes the network.
#[derive(Debug)]
pub struct Agent<H, S> {
    engine: Engine<H, S>,
    reporter: Reporter<H, S>,
    store: S,
    stop: watch::Sender<bool>,
}

impl<H: Host, S: Store> Agent<H, S> {
    /// An agent that has not started. It waits until no other process works on the network of the node.
    pub async fn new(parts: AgentParts<H, S>) -> Self {
        let (host, store) = (parts.host.clone(), parts.store.clone());
        let change_lock = ChangeLock::with_file(parts.settings.work_lock.clone());
        let stop = watch::Sender::new(false);
        let reporter = Reporter::new(host, store.clone(), change_lock.clone())
            .with_percent(parts.settings.report_percent)
            .with_health(parts.health.clone());
        let engine = Engine::new(parts, change_lock, stop.subscribe()).await;
        Self { engine, reporter, store, stop }
    }

    /// Each new reading of the network, for other parts of the process.
    pub fn observed(&self) -> ObservedNetwork {
        self.reporter.observed()
    }

    /// Works until `stop`. A change that is open then is rolled back first. Fails when a part ends without being asked to,
    /// or when results are not on the node's disk at the end.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<(), AgentError> {
        let Self { engine, reporter, store, stop: stopper } = self;
        let mut stopped = stopper.subscribe();
        let stop_reporting = async move {
            let _ = stopped.wait_for(|stop| *stop).await;
        };
        let mut engine = pin!(engine.run().fuse());
        let mut reporter = pin!(reporter.run(stop_reporting).fuse());
        let ended = |what: &str| Some(AgentError::PartEnded { what: what.to_owned() });
        let failure = tokio::select! {
            end = &mut engine => match end {
                Ok(()) => ended("the engine, which applies orders"),
                Err(error) => Some(error.into()),
            },
            end = &mut reporter => match end {
                Ok(()) => ended("the report of the network"),
                Err(gone) => ended(&format!("the report of the network: {gone}")),
            },
            what = store.ended() => ended(&what),
            () = stop => None,
        };
        stopper.send_replace(true);
        let rest = async {
            if !reporter.is_terminated() {
                // It was asked to end.
                let _ = (&mut reporter).await;
            }
            if engine.is_terminated() { Ok(()) } else { (&mut engine).await }
        };
        let end = match failure {
            None => rest.await.map_err(AgentError::Disk),
            Some(failure) => {
                // The reason is already known.
                let _ = timeout(LAST_STEPS, rest).await;
                Err(failure)
            }
        };
        store.flush(SHUTDOWN_GRACE).await;
        end
    }

    /// Applies the orders that exist now, reports the network once, and ends. Fails when the node's disk cannot be
    /// used.
    pub async fn run_once(self, stop: impl Future<Output = ()>) -> io::Result<Vec<OrderOutcome>> {
        let Self { engine, reporter, store, stop: stopper } = self;
        let mut work = std::pin::pin!(engine.run_once());
        let mut stop = std::pin::pin!(stop);
        let outcomes = tokio::select! {
            outcomes = &mut work => {
                tokio::select! {
                    () = reporter.once() => {}
                    () = stop => {}
                }
                outcomes
            }
            // When stopped, only roll back what is open; do not report.
            () = &mut stop => {
                stopper.send_replace(true);
                work.await
            }
        };
        store.flush(SHUTDOWN_GRACE).await;
        outcomes
    }
}

#[cfg(test)]
mod tests;
