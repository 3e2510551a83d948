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
use knmstate_host::{Events, Host, NetworkState, RouteList, Topic, Warning};
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
    /// What is found out about them on the way is added to their notes.
    pub orders: &'a mut [Prepared],
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
        take_note(self.orders, &plan.warnings);
        if plan.is_empty() {
            return Ok(None);
        }
        let policies: Vec<&str> = self.orders.iter().map(|order| &*order.policy).collect();
        tracing::info!(?policies, difference = %plan.difference.into_value(), "the network is about to be changed");
        for order in &*self.orders {
            let failures = self.progress.failures(&order.policy);
            self.enactments.begun(order, failures).map_err(|error| cannot_note(&error))?;
        }
        let longest = |time: fn(&Prepared) -> Duration| self.orders.iter().map(time).max();
        let guarded = Guarded {
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

/// Gives each order the warnings that are about it: about an interface of its document, or about no interface at all.
pub(crate) fn take_note(orders: &mut [Prepared], warnings: &[Warning]) {
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

#[cfg(test)]
mod tests {
    use knmstate_host::Place;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_warning_goes_to_the_order_that_it_is_about() {
        let order = |policy: &str, document: serde_json::Value| Prepared {
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
        let warning = |place: Place| Warning { place, what: "mind it".to_owned() };
        let about_eth1 = warning(Place::interface("eth1").below("mtu"));
        let about_a_route = warning(Place::key("routes.config").entry(0));
        let eth1 = json!({ "interfaces": [{ "name": "eth1" }] });
        let route = json!({ "routes": { "config": [{ "next-hop-interface": "eth2" }] } });
        let mut orders = [order("card", eth1.clone()), order("route", route)];
        // Also when it is said twice: of all orders, and then of each.
        for _ in 0..2 {
            take_note(&mut orders, &[about_eth1.clone(), about_a_route.clone()]);
        }
        assert_eq!(orders[0].notes, ["a plain bridge", "interfaces[eth1].mtu: mind it"]);
        assert_eq!(orders[1].notes, ["a plain bridge", "routes.config[0]: mind it"]);
        let mut alone = [order("card", eth1)];
        take_note(&mut alone, &[about_a_route]);
        assert_eq!(alone[0].notes, ["a plain bridge", "routes.config[0]: mind it"]);
    }
}
