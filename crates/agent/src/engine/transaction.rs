//! One change of the network for one or several orders.
//!
//! ```text
//!   plan ── nothing to do ──► unchanged
//!     │
//!   write to the ledger that the change begins, and report it ── the disk does not take it ──► not begun
//!     │
//!   the change itself, see `guarded_change`
//!     ▼
//!   changed, or failed and rolled back
//! ```

use std::{io, time::Duration};

use knmstate_api::enactment::{ProbeResult, Timings};
use knmstate_core::{OrderProgress, probes::Probe};
use knmstate_host::{Events, Host, NetworkState, RouteList, Topic, Warning};
use tokio::{sync::watch, time::Instant};

use super::{
    guarded_change::{Conclusion, Failure, GuardedChange, Stopwatch},
    prepare::PreparedOrder,
    status_recorder::StatusRecorder,
};
use crate::{probes::Prober, store::Store};

/// How a transaction ended.
#[derive(Debug)]
pub(super) enum TransactionEnd {
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
    /// The engine was stopped. The network was rolled back, or the next start does that.
    Stopped,
}

/// Why there was no change.
enum NotChanged {
    Failed(Failure),
    /// The disk has not taken the record that the change begins.
    NotRecorded(io::Error),
}

impl From<Failure> for NotChanged {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// One or several orders, applied as one change.
pub(super) struct Transaction<'a, H, S> {
    pub host: &'a H,
    pub prober: &'a Prober<H>,
    pub recorder: &'a mut StatusRecorder<S>,
    pub progress: &'a OrderProgress,
    /// Warnings about them are added to their notes.
    pub orders: &'a mut [PreparedOrder],
    pub desired: NetworkState,
    pub stop: watch::Receiver<bool>,
}

impl<H: Host, S: Store> Transaction<'_, H, S> {
    /// Fails when the ledger cannot be written. Nothing was touched then.
    pub(super) async fn run(mut self) -> io::Result<TransactionEnd> {
        let mut timings = Timings::default();
        let begun = Instant::now();
        let result = self.steps(&mut timings).await;
        Ok(match result {
            Ok(Some(probes)) => TransactionEnd::Changed { took: begun.elapsed(), timings, probes },
            Ok(None) => TransactionEnd::Unchanged(timings),
            Err(NotChanged::NotRecorded(error)) => return Err(error),
            Err(_) if *self.stop.borrow() => TransactionEnd::Stopped,
            Err(NotChanged::Failed(failure)) => TransactionEnd::Failed { failure, timings },
        })
    }

    /// The results of the probes; `None` when there was nothing to change.
    async fn steps(&mut self, timings: &mut Timings) -> Result<Option<Vec<ProbeResult>>, NotChanged> {
        let mut clock = Stopwatch::start();
        let plan = self.host.plan(&self.desired).await.map_err(|error| Failure::of_host(&error))?;
        timings.prepare_milliseconds = Some(clock.lap());
        add_warnings(self.orders, &plan.warnings);
        if plan.is_empty() {
            return Ok(None);
        }
        for order in &*self.orders {
            let failures = self.progress.failures(&order.policy);
            self.recorder.begun(order, failures).map_err(NotChanged::NotRecorded)?;
        }
        let policies: Vec<&str> = self.orders.iter().map(|order| &*order.policy).collect();
        tracing::info!(?policies, difference = %plan.difference.into_value(), "changing the network");
        let longest = |time: fn(&PreparedOrder) -> Duration| self.orders.iter().map(time).max();
        let guarded = GuardedChange {
            host: self.host,
            prober: self.prober,
            desired: &self.desired,
            before: &plan.before,
            probes: self.probes(),
            deadline: longest(|order| order.transaction_deadline).unwrap_or_default(),
            probe_deadline: longest(|order| order.probe_deadline).unwrap_or_default(),
            conclusion: Conclusion::Commit,
            stop: self.stop.clone(),
        };
        Ok(Some(guarded.run(timings, &mut clock).await?.probes))
    }

    /// The probes of all orders, without duplicates.
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

/// Adds to the notes of each order the warnings that concern it: those about its interfaces, and, if it has routes,
/// those about no interface. An order that is alone gets all warnings.
pub(crate) fn add_warnings(orders: &mut [PreparedOrder], warnings: &[Warning]) {
    let is_alone = orders.len() == 1;
    for order in orders {
        for warning in warnings {
            let concerns = match warning.place.interface_name() {
                Some(name) => order.desired.interface(name).is_some(),
                None => order.desired.routes(RouteList::Config).next().is_some(),
            };
            let note = warning.to_string();
            if (is_alone || concerns) && !order.notes.contains(&note) {
                order.notes.push(note);
            }
        }
    }
}

/// Waits for an event of this topic; for ever when the host has ended its events.
pub(crate) async fn wait_for(events: &mut Events, topic: Topic) {
    loop {
        match events.next().await {
            Some(changes) if changes.contains(topic) => return,
            Some(_) => {}
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use knmstate_host::Place;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_warning_goes_to_the_order_that_it_concerns() {
        let order = |policy: &str, document: serde_json::Value| PreparedOrder {
            policy: policy.to_owned(),
            leases: Vec::new(),
            desired: NetworkState::parse(document).expect("a state"),
            captured: std::collections::BTreeMap::default(),
            features: Vec::new(),
            notes: vec!["a plain bridge".to_owned()],
            probes: Vec::new(),
            transaction_deadline: Duration::ZERO,
            probe_deadline: Duration::ZERO,
        };
        let warning = |place: Place| Warning { place, what: "check it".to_owned() };
        let about_eth1 = warning(Place::interface("eth1").below("mtu"));
        let about_a_route = warning(Place::key("routes.config").entry(0));
        let eth1 = json!({ "interfaces": [{ "name": "eth1" }] });
        let route = json!({ "routes": { "config": [{ "next-hop-interface": "eth2" }] } });
        let mut orders = [order("link", eth1.clone()), order("route", route)];
        // Planned twice, for all orders and then for each, a warning is still added once.
        for _ in 0..2 {
            add_warnings(&mut orders, &[about_eth1.clone(), about_a_route.clone()]);
        }
        assert_eq!(orders[0].notes, ["a plain bridge", "interfaces[eth1].mtu: check it"]);
        assert_eq!(orders[1].notes, ["a plain bridge", "routes.config[0]: check it"]);
        let mut alone = [order("link", eth1)];
        add_warnings(&mut alone, &[about_a_route]);
        assert_eq!(alone[0].notes, ["a plain bridge", "routes.config[0]: check it"]);
    }
}
