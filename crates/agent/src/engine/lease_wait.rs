//! Waits for dynamic addresses after a change.
//!
//! nmstate counts a change as applied as soon as an interface asks for an address, whether it gets one or not. So the
//! engine waits for the addresses for a while, and the message of the enactment names those that are missing. The
//! change stays, because a DHCP server that is down may be back later. An admin who wants a rollback without an address
//! adds a probe to the policy.
//!
//! The change is committed *before* that wait. The wait never rolls it back, so an open checkpoint would only put it at
//! risk: a restart of the handler or of NetworkManager, a power loss, or the deadline of the transaction would roll it
//! back. The network is also reported while the engine waits, with each address as it arrives. The ledger records the
//! commit: a process that is stopped or killed while it waits has not failed, and the next process waits again.

use knmstate_api::enactment::{ProbeResult, Timings};
use knmstate_core::probes::AddressLease;
use knmstate_host::Host;
use tokio::time::Instant;

use super::{Engine, MARGIN, OrderSuccess, milliseconds, prepare::PreparedOrder};
use crate::{probes::LeaseResult, store::Store};

/// An order that is committed, and whose result is reported once its addresses are there.
#[derive(Debug)]
pub(super) struct AwaitingLeases {
    order: PreparedOrder,
    success: OrderSuccess,
    timings: Timings,
    probes: Vec<ProbeResult>,
}

impl<H: Host, S: Store> Engine<H, S> {
    /// Whether to wait for addresses of this order. An order that was satisfied already does not wait, unless an
    /// earlier process had applied it and was still waiting.
    pub(super) fn has_leases_to_await(&self, order: &PreparedOrder, success: OrderSuccess) -> bool {
        let is_new = success != OrderSuccess::Unchanged || self.recorder.was_awaiting_leases(&order.policy);
        is_new && !order.leases.is_empty() && !self.settings.leases.is_zero()
    }

    /// Records that the change of an order is committed. Its result is reported by `wait_for_leases`.
    pub(super) fn await_leases_of(
        &mut self,
        order: &PreparedOrder,
        success: OrderSuccess,
        timings: &Timings,
        probes: Vec<ProbeResult>,
    ) {
        self.recorder.committed(&order.policy, success, timings);
        self.awaiting_leases.push(AwaitingLeases {
            order: order.clone(),
            success,
            timings: timings.clone(),
            probes,
        });
    }

    /// Waits for the addresses of all orders of this round, then reports their results.
    pub(super) async fn wait_for_leases(&mut self) {
        let orders = std::mem::take(&mut self.awaiting_leases);
        if orders.is_empty() {
            return;
        }
        self.busy_for(self.settings.leases + MARGIN);
        let leases: Vec<AddressLease> = orders.iter().flat_map(|one| one.order.leases.clone()).collect();
        let begun = Instant::now();
        let mut stop = self.stop.clone();
        let Some(results) = self.prober.await_leases(&leases, self.settings.leases, &mut stop).await else {
            return;
        };
        let took = milliseconds(begun.elapsed());
        let mut results = results.into_iter();
        for AwaitingLeases { order, success, mut timings, probes } in orders {
            timings.lease_milliseconds = Some(took);
            let own = results.by_ref().take(order.leases.len());
            let missing: Vec<String> = own
                .filter_map(|result| match result {
                    LeaseResult::Obtained => None,
                    LeaseResult::Missing(message) => Some(message),
                })
                .collect();
            self.recorder.succeeded(&order, success, &timings, probes, &missing);
        }
    }
}
