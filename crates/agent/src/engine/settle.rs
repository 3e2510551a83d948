//! After a change: the addresses that others lend.
//!
//! nmstate calls a change made as soon as an interface asks for an address, whether one comes or not. So they are waited
//! for, for a while, and what has not come is said; the change stays, because a server that is away may be back later.
//! Whoever wants it rolled back without an address adds a probe to the policy.
//!
//! The change is committed *before* that wait. Nothing that could come of it takes the change back, so to leave it open
//! would only put it at risk: a handler that is replaced meanwhile would roll it back, and so would a restart of
//! NetworkManager, a loss of power, or the deadline of the transaction. Committed, it is also no in-between state:
//! the network is reported while we wait, with each address as it comes. That it is committed is noted on disk: whoever
//! is stopped or killed while it waits has not failed, and the next life waits anew.

use std::io;

use knmstate_api::enactment::{ProbeResult, Timings};
use knmstate_core::probes::Lease;
use knmstate_host::Host;
use tokio::time::Instant;

use super::{Achieved, Engine, milliseconds, prepare::Prepared};
use crate::{probes::Awaited, store::Store};

/// An order that is carried out, and not told to be.
#[derive(Debug)]
pub(super) struct Unsettled {
    order: Prepared,
    achieved: Achieved,
    timings: Timings,
    probes: Vec<ProbeResult>,
}

impl<H: Host, S: Store> Engine<H, S> {
    /// Whether there is something to wait for. What is as ordered already is not waited for, unless an earlier life has
    /// changed it and was waiting.
    pub(super) fn has_to_settle(&self, order: &Prepared, achieved: Achieved) -> bool {
        let is_new = achieved != Achieved::Already || self.enactments.was_unsettled(&order.policy);
        is_new && !order.leases.is_empty() && !self.settings.leases.is_zero()
    }

    /// The change of an order is in force; that is told when its leases are there, or have been waited for.
    pub(super) fn unsettle(
        &mut self,
        order: &Prepared,
        achieved: Achieved,
        timings: &Timings,
        probes: Vec<ProbeResult>,
    ) -> io::Result<()> {
        self.enactments.committed(&order.policy, achieved, timings)?;
        self.unsettled.push(Unsettled { order: order.clone(), achieved, timings: timings.clone(), probes });
        Ok(())
    }

    /// Waits for the leases of all that was changed, and tells.
    pub(super) async fn settle(&mut self) -> io::Result<()> {
        let unsettled = std::mem::take(&mut self.unsettled);
        if unsettled.is_empty() {
            return Ok(());
        }
        let leases: Vec<Lease> = unsettled.iter().flat_map(|one| one.order.leases.clone()).collect();
        let begun = Instant::now();
        let mut stop = self.stop.clone();
        let Some(awaited) = self.prober.await_leases(&leases, self.settings.leases, &mut stop).await else {
            return Ok(());
        };
        let took = milliseconds(begun.elapsed());
        let mut awaited = awaited.into_iter();
        for Unsettled { order, achieved, mut timings, probes } in unsettled {
            timings.lease_milliseconds = Some(took);
            let own = awaited.by_ref().take(order.leases.len());
            let missing: Vec<String> = own
                .filter_map(|awaited| match awaited {
                    Awaited::Came => None,
                    Awaited::Missing(sentence) => Some(sentence),
                })
                .collect();
            self.enactments.succeeded(&order, achieved, &timings, probes, &missing)?;
        }
        Ok(())
    }
}
