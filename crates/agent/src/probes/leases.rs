//! Waits for dynamic addresses.

use std::time::Duration;

use knmstate_core::probes::{AddressLease, Forecast, Network};
use knmstate_host::{Host, NetworkState};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout},
};

use super::Prober;
use crate::engine::guarded_change::stopped;

/// How long a reading may take.
const READING_TIMEOUT: Duration = Duration::from_secs(10);
/// The least time between two readings.
const PAUSE: Duration = Duration::from_millis(500);

/// The result of waiting for a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LeaseResult {
    /// The address has arrived.
    Obtained,
    /// The address has not arrived; with a message about that.
    Missing(String),
}

impl<H: Host> Prober<H> {
    /// Waits until all leases are there, but not longer than `limit`; `None` at the request to stop. The network is
    /// read once, and again only after a change.
    pub(crate) async fn await_leases(
        &self,
        leases: &[AddressLease],
        limit: Duration,
        stop: &mut watch::Receiver<bool>,
    ) -> Option<Vec<LeaseResult>> {
        let end = Instant::now() + limit;
        // Subscribe before the first reading, so that no change in between is missed.
        let mut events = self.host.events();
        let mut last: Option<NetworkState> = None;
        loop {
            let at = Instant::now();
            tokio::select! {
                read = timeout(READING_TIMEOUT, self.host.observe()) => match read {
                    Ok(Ok(state)) => last = Some(state),
                    Ok(Err(error)) => tracing::debug!(%error, "cannot read the leases"),
                    Err(_) => tracing::debug!("cannot read the leases in time"),
                },
                () = stopped(stop) => return None,
            }
            let is_there = |lease: &AddressLease| {
                last.as_ref().is_some_and(|state| {
                    let network = Network { now: state.sections(), before: None };
                    network.lease(lease) == Forecast::Now(())
                })
            };
            // The last reading begins at the end of the wait, so that the message is correct then.
            if at >= end || leases.iter().all(is_there) {
                let state = last.as_ref().map(NetworkState::sections);
                let judge = |lease: &AddressLease| {
                    if is_there(lease) {
                        LeaseResult::Obtained
                    } else {
                        LeaseResult::Missing(lease.missing(state, limit))
                    }
                };
                return Some(leases.iter().map(judge).collect());
            }
            let changed = async {
                if events.next().await.is_none() {
                    std::future::pending::<()>().await;
                }
                sleep_until(at + PAUSE).await;
            };
            tokio::select! {
                () = changed => {}
                () = sleep_until(end) => {}
                () = stopped(stop) => return None,
            }
        }
    }
}
