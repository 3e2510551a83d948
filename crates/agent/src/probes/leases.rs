//! Waiting for addresses that others lend.

use std::time::Duration;

use knmstate_core::probes::{Lease, Network, Outlook};
use knmstate_host::{Host, NetworkState};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout},
};

use super::Prober;
use crate::engine::guarded::stopped;

/// How long a reading may take.
const READING: Duration = Duration::from_secs(10);
/// The time between two readings, however much happens.
const PACE: Duration = Duration::from_millis(500);

/// What came of waiting for a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Awaited {
    Came,
    /// With the sentence that says so.
    Missing(String),
}

impl<H: Host> Prober<H> {
    /// Waits until all leases are there, but no longer than `limit`; `None` when told to stop before. The network is
    /// read once, and again only when something has changed.
    pub async fn await_leases(
        &self,
        leases: &[Lease],
        limit: Duration,
        stop: &mut watch::Receiver<bool>,
    ) -> Option<Vec<Awaited>> {
        let end = Instant::now() + limit;
        // From before the first reading, so that nothing falls between the two.
        let mut events = self.host.events();
        let mut last: Option<NetworkState> = None;
        loop {
            let at = Instant::now();
            tokio::select! {
                read = timeout(READING, self.host.observe()) => match read {
                    Ok(Ok(state)) => last = Some(state),
                    Ok(Err(error)) => tracing::debug!(%error, "whether there are leases cannot be read"),
                    Err(_) => tracing::debug!("whether there are leases cannot be read in time"),
                },
                () = stopped(stop) => return None,
            }
            let is_there = |lease: &Lease| {
                last.as_ref().is_some_and(|state| {
                    let network = Network { now: state.sections(), before: None };
                    network.lease(lease) == Outlook::Now(())
                })
            };
            // Once more at the very end: what is told is what is so then.
            if at >= end || leases.iter().all(is_there) {
                let state = last.as_ref().map(NetworkState::sections);
                let judge = |lease: &Lease| {
                    if is_there(lease) {
                        Awaited::Came
                    } else {
                        Awaited::Missing(lease.missing(state, limit))
                    }
                };
                return Some(leases.iter().map(judge).collect());
            }
            let stirred = async {
                if events.next().await.is_none() {
                    std::future::pending::<()>().await;
                }
                sleep_until(at + PACE).await;
            };
            tokio::select! {
                () = stirred => {}
                () = sleep_until(end) => {}
                () = stopped(stop) => return None,
            }
        }
    }
}
