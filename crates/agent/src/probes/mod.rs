//! Runs probes: the tests that the node still works after a change.
//!
//! [`knmstate_core::probes`] decides which of them count and whether one can still pass. Every attempt uses new sockets
//! and connections, so that it proves that they can be opened at that moment.

mod address;
mod api;
mod attempt;
mod attempt_error;
mod baseline;
mod dns;
mod http;
mod leases;
mod network_observer;
mod ping;
mod probe_loop;
mod tcp;

#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, future::join_all, stream::FuturesUnordered};
use jiff::Timestamp;
use knmstate_api::enactment::{ProbeOutcome, ProbeResult};
use knmstate_core::probes::{Evidence, Probe, Requirement};
use knmstate_host::{Host, NetworkState};
use tokio::time::Instant;

pub use api::{ApiEndpoint, KubeApiEndpoint};
pub use attempt::PROBE_DNS_HOST;
pub use attempt_error::Unreachable;
pub(crate) use baseline::Baseline;
pub(crate) use leases::LeaseResult;

use attempt::ProbeRunner;
use network_observer::NetworkObserver;
use probe_loop::ProbeLoop;

/// Runs probes on one node.
#[derive(Debug)]
pub struct Prober<H> {
    host: H,
    runner: ProbeRunner,
}

/// The probes of a change that has to be rolled back.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ProbesFailed {
    /// The results of all probes, as far as they are known.
    pub results: Vec<ProbeResult>,
    /// The name of the probe that failed.
    pub probe: String,
    /// A sentence that names the probe, its target, the time and the reason.
    pub message: String,
    /// The probe could not pass any more, so it failed before its deadline.
    pub cannot_pass: bool,
}

impl<H: Host> Prober<H> {
    /// A prober of this host and of the API server of its cluster, if it has one. `dns_host` is the name that the name
    /// servers have to resolve; see [`PROBE_DNS_HOST`].
    pub fn new(host: H, api: Option<Arc<dyn ApiEndpoint>>, dns_host: impl Into<String>) -> Self {
        Self { host, runner: ProbeRunner { api, dns_host: dns_host.into(), dns_port: 53 } }
    }

    /// Runs all probes at the same time before a change, for three seconds at most. A probe that cannot pass in the
    /// state `current` is not tried.
    pub(crate) async fn baseline(&self, probes: &[Probe], current: &NetworkState) -> Baseline {
        let current = Arc::new(current.clone());
        let observer = NetworkObserver::fixed(Arc::clone(&current));
        let end = Instant::now() + baseline::LIMIT;
        let entries =
            join_all(probes.iter().map(|probe| baseline::run_probe(&self.runner, probe, &observer, end)))
                .await;
        Baseline::new(current, entries)
    }

    /// Runs the probes that count after a change was applied, all at the same time and repeatedly. Returns when all
    /// have passed. Fails with the first probe that cannot pass any more: its timeout or `deadline` is over, or the
    /// network lacks what the probe needs.
    ///
    /// To be called when the change is applied: only evidence from then on counts. Dropping the future stops all
    /// probes.
    #[expect(clippy::disallowed_methods, reason = "compared with times that kubelets write")]
    pub(crate) async fn after(
        &self,
        probes: &[Probe],
        baseline: &Baseline,
        deadline: Duration,
    ) -> Result<Vec<ProbeResult>, ProbesFailed> {
        self.after_change_at(Timestamp::now(), probes, baseline, deadline).await
    }

    async fn after_change_at(
        &self,
        changed_at: Timestamp,
        probes: &[Probe],
        baseline: &Baseline,
        deadline: Duration,
    ) -> Result<Vec<ProbeResult>, ProbesFailed> {
        let started = Instant::now();
        let observer = NetworkObserver::after(baseline.state());
        let mut results: Vec<_> = probes.iter().map(|probe| baseline.result(probe)).collect();
        let mut running = FuturesUnordered::new();
        for (index, probe) in probes.iter().enumerate() {
            let need = baseline.need(probe);
            if need != Requirement::Nothing {
                let evidence = Evidence::after(changed_at);
                let probe_loop =
                    ProbeLoop { runner: &self.runner, probe, need, observer: &observer, started, deadline };
                running.push(async move { (index, probe_loop.run(evidence).await) });
            }
        }
        let mut observing = std::pin::pin!(observer.run(&self.host));
        loop {
            let (index, ended) = tokio::select! {
                next = running.next() => match next {
                    Some(ended) => ended,
                    None => return Ok(results),
                },
                never = &mut observing => match never {},
            };
            let (probe, result) = (&probes[index], &mut results[index]);
            match ended {
                Ok(()) => {
                    result.after = Some(ProbeOutcome::Passed);
                    result.message.clear();
                }
                Err(failure) => {
                    let message = failure.message(probe, &baseline.targets(probe), &self.runner);
                    result.after = Some(ProbeOutcome::Failed);
                    result.message.clone_from(&message);
                    return Err(ProbesFailed {
                        results,
                        probe: probe.name.clone(),
                        message,
                        cannot_pass: failure.cannot_pass(),
                    });
                }
            }
        }
    }
}
