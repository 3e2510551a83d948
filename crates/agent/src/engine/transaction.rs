//! One change of the network by orders of this node, from the last look before it to its end.
//!
//! ```text
//!   plan ── nothing to do ──► unchanged
//!     │
//!   noted that it is begun, on disk and to the world
//!     │
//!   the guarded change itself, see `guarded`
//!     ▼
//!   changed, or failed and as before
//! ```

use std::time::Duration;

use knmstate_api::enactment::{ProbeResult, Timings};
use knmstate_core::{
    probes::Probe,
    progress::{Progress, Setback},
};
use knmstate_host::{Events, Host, NetworkState, Topic};
use tokio::{sync::watch, time::Instant};

use super::{
    enactments::Enactments,
    guarded::{Conclusion, Failure, Guarded, Laps},
    prepare::Prepared,
};
use crate::{probes::Prober, store::Store};

/// How a transaction ended.
#[derive(Debug)]
pub(super) enum End {
    Unchanged(Timings),
    Changed {
        took: Duration,
        timings: Timings,
        probes: Vec<ProbeResult>,
    },
    Failed {
        failure: Failure,
        timings: Timings,
    },
    /// We were told to stop. The network is as before, or will be: the next start sees to it.
    Stopped,
}

/// One or several orders, to be carried out as one change.
pub(super) struct Transaction<'a, H, S> {
    pub host: &'a H,
    pub prober: &'a Prober<H>,
    pub enactments: &'a mut Enactments<S>,
    pub progress: &'a Progress,
    pub orders: &'a [&'a Prepared],
    pub desired: NetworkState,
    pub stop: watch::Receiver<bool>,
}

impl<H: Host, S: Store> Transaction<'_, H, S> {
    pub(super) async fn carry_out(mut self) -> End {
        let mut timings = Timings::default();
        let begun = Instant::now();
        let result = self.steps(&mut timings).await;
        match result {
            Ok(Some(probes)) => End::Changed { took: begun.elapsed(), timings, probes },
            Ok(None) => End::Unchanged(timings),
            Err(_) if *self.stop.borrow() => End::Stopped,
            Err(failure) => End::Failed { failure, timings },
        }
    }

    /// `None` when there was nothing to do.
    async fn steps(&mut self, timings: &mut Timings) -> Result<Option<Vec<ProbeResult>>, Failure> {
        let mut clock = Laps::start();
        let plan = self.host.plan(&self.desired).await.map_err(|error| Failure::of_host(&error))?;
        timings.prepare_milliseconds = Some(clock.lap());
        if plan.is_empty() {
            return Ok(None);
        }
        let policies: Vec<&str> = self.orders.iter().map(|order| &*order.policy).collect();
        tracing::info!(?policies, difference = %plan.difference.into_value(), "the network is about to be changed");
        for order in self.orders {
            let failures = self.progress.failures(&order.policy);
            self.enactments.begun(order, failures).map_err(|error| cannot_note(&error))?;
        }
        let longest = |time: fn(&Prepared) -> Duration| self.orders.iter().map(|order| time(order)).max();
        let guarded = Guarded {
            host: self.host,
            prober: self.prober,
            desired: &self.desired,
            probes: self.probes(),
            deadline: longest(|order| order.transaction_deadline).unwrap_or_default(),
            probe_deadline: longest(|order| order.probe_deadline).unwrap_or_default(),
            conclusion: Conclusion::Commit,
            stop: self.stop.clone(),
        };
        guarded.carry_out(timings, &mut clock).await.map(|kept| Some(kept.probes))
    }

    /// The probes of all orders; those that several ask for, once.
    fn probes(&self) -> Vec<Probe> {
        let mut probes: Vec<Probe> = Vec::new();
        for probe in self.orders.iter().flat_map(|order| &order.probes) {
            if !probes.contains(probe) {
                probes.push(probe.clone());
            }
        }
        probes
    }
}

fn cannot_note(error: &std::io::Error) -> Failure {
    Failure {
        why: format!("the order could not be noted on the node's disk, so nothing was touched: {error}"),
        setback: Setback::Again,
        is_open: false,
        probes: Vec::new(),
    }
}

/// Waits until something of this topic happens; for ever when nothing will any more.
pub(crate) async fn wait_for(events: &mut Events, topic: Topic) {
    loop {
        match events.next().await {
            Some(changes) if changes.contains(topic) => return,
            Some(_) => {}
            None => std::future::pending().await,
        }
    }
}
