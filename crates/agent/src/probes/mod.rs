//! Probes: what must work after a change for it to stay.
//!
//! Which of them count, and whether one can still pass, is decided by [`knmstate_core::probes`]; here they are tried.
//! Every try has sockets and connections of its own, so that it proves something of the moment it is made in.

mod address;
mod api;
mod attempt;
mod baseline;
mod dns;
mod http;
mod leases;
mod lookout;
mod ping;
mod pursuit;
mod tcp;
mod trouble;

#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, future::join_all, stream::FuturesUnordered};
use jiff::Timestamp;
use knmstate_api::enactment::{ProbeOutcome, ProbeResult};
use knmstate_core::probes::{Evidence, Need, Probe};
use knmstate_host::{Host, NetworkState};
use tokio::time::Instant;

pub use api::{ApiDoor, KubeDoor};
pub use attempt::DNS_HOST;
pub use baseline::Baseline;
pub use leases::Awaited;
pub use trouble::Unreached;

use attempt::Means;
use lookout::Lookout;
use pursuit::Pursuit;

/// Tries probes on one node.
#[derive(Debug)]
pub struct Prober<H> {
    host: H,
    means: Means,
}

/// A change that must not stay.
#[derive(Clone, Debug, PartialEq)]
pub struct Failed {
    /// All probes as far as they had come.
    pub results: Vec<ProbeResult>,
    /// The one that decided.
    pub probe: String,
    /// A sentence that names the probe, its target, the time and the reason.
    pub message: String,
    /// It could not have passed any more, so that its time was not waited out.
    pub hopeless: bool,
}

impl<H: Host> Prober<H> {
    /// A prober of this machine and of the API server that it belongs to, if it does. `dns_host` is what name servers
    /// are asked for; see [`DNS_HOST`].
    pub fn new(host: H, api: Option<Arc<dyn ApiDoor>>, dns_host: impl Into<String>) -> Self {
        Self { host, means: Means { api, dns_host: dns_host.into(), dns_port: 53 } }
    }

    /// Tries every probe before a change, all at once; takes three seconds at most, however many there are. What
    /// cannot pass, by `current`, is not tried.
    pub async fn baseline(&self, probes: &[Probe], current: &NetworkState) -> Baseline {
        let current = Arc::new(current.clone());
        let lookout = Lookout::fixed(Arc::clone(&current));
        let end = Instant::now() + baseline::LIMIT;
        let entries =
            join_all(probes.iter().map(|probe| baseline::entry(&self.means, probe, &lookout, end))).await;
        Baseline::new(current, entries)
    }

    /// Tries those probes that count, after a change was applied, all at once and again and again, until all have
    /// passed or the first one cannot pass any more: because its time is over, or `deadline`, or because the network
    /// as it is now lacks what it takes.
    ///
    /// Called when the change is in force: what is seen from then on counts. Nothing goes on when it is dropped.
    #[expect(
        clippy::disallowed_methods,
        reason = "kubelets write the time of the clock on the wall, so that is compared"
    )]
    pub async fn after(
        &self,
        probes: &[Probe],
        baseline: &Baseline,
        deadline: Duration,
    ) -> Result<Vec<ProbeResult>, Failed> {
        self.after_change_at(Timestamp::now(), probes, baseline, deadline).await
    }

    async fn after_change_at(
        &self,
        changed_at: Timestamp,
        probes: &[Probe],
        baseline: &Baseline,
        deadline: Duration,
    ) -> Result<Vec<ProbeResult>, Failed> {
        let started = Instant::now();
        let lookout = Lookout::after(baseline.state());
        let mut results: Vec<_> = probes.iter().map(|probe| baseline.result(probe)).collect();
        let mut running = FuturesUnordered::new();
        for (index, probe) in probes.iter().enumerate() {
            let need = baseline.need(probe);
            if need != Need::Nothing {
                let evidence = Evidence::after(changed_at);
                let pursuit =
                    Pursuit { means: &self.means, probe, need, lookout: &lookout, started, deadline };
                running.push(async move { (index, pursuit.run(evidence).await) });
            }
        }
        let mut looking = std::pin::pin!(lookout.keep(&self.host));
        loop {
            let (index, ended) = tokio::select! {
                next = running.next() => match next {
                    Some(ended) => ended,
                    None => return Ok(results),
                },
                never = &mut looking => match never {},
            };
            let (probe, result) = (&probes[index], &mut results[index]);
            match ended {
                Ok(()) => {
                    result.after = Some(ProbeOutcome::Passed);
                    result.message.clear();
                }
                Err(fall) => {
                    let message = fall.message(probe, &baseline.asked(probe), &self.means);
                    result.after = Some(ProbeOutcome::Failed);
                    result.message.clone_from(&message);
                    return Err(Failed {
                        results,
                        probe: probe.name.clone(),
                        message,
                        hopeless: fall.is_hopeless(),
                    });
                }
            }
        }
    }
}
