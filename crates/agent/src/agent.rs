//! The parts of the agent, put together.

use std::{io, time::Duration};

use knmstate_host::Host;
use tokio::sync::watch;

use crate::{
    engine::{Engine, Outcome, Parts},
    report::{Observed, Reporter},
    steady::Steady,
    store::Store,
};

/// How long results may take to be delivered when the process ends.
const FAREWELL: Duration = Duration::from_secs(5);

/// The agent of one node: an engine that carries out orders, and a report of the network, which keep out of each
/// other's way.
#[derive(Debug)]
pub struct Agent<H, S> {
    engine: Engine<H, S>,
    reporter: Reporter<H, S>,
    store: S,
    stop: watch::Sender<bool>,
}

impl<H: Host, S: Store> Agent<H, S> {
    pub async fn new(parts: Parts<H, S>) -> Self {
        let (host, store) = (parts.host.clone(), parts.store.clone());
        let steady = Steady::shared_by(parts.settings.work_lock.clone());
        let stop = watch::Sender::new(false);
        let reporter =
            Reporter::new(host, store.clone(), steady.clone()).with_percent(parts.settings.report_percent);
        let engine = Engine::new(parts, steady, stop.subscribe()).await;
        Self { engine, reporter, store, stop }
    }

    /// Each fresh reading of the network, for others who want to know.
    pub fn observed(&self) -> Observed {
        self.reporter.observed()
    }

    /// Works until `stop`. A change that is under way then is rolled back first.
    pub async fn run(self, stop: impl Future<Output = ()>) -> io::Result<()> {
        let Self { engine, reporter, store, stop: stopper } = self;
        let mut stopped = stopper.subscribe();
        let stop_reporting = async move {
            let _ = stopped.wait_for(|stop| *stop).await;
        };
        let mut work = std::pin::pin!(async {
            let (end, ()) = tokio::join!(engine.run(), reporter.run(stop_reporting));
            end
        });
        let end = tokio::select! {
            end = &mut work => end,
            () = stop => {
                stopper.send_replace(true);
                work.await
            }
        };
        store.flush(FAREWELL).await;
        end
    }

    /// Carries out the orders that are there, reports the network, and ends.
    pub async fn run_once(self, stop: impl Future<Output = ()>) -> io::Result<Vec<Outcome>> {
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
            // Whoever is asked to end puts things in order, and does nothing else.
            () = &mut stop => {
                stopper.send_replace(true);
                work.await
            }
        };
        store.flush(FAREWELL).await;
        outcomes
    }
}
