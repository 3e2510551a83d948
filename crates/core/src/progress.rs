//! The progress of a node with each of its orders, and which are due.
//!
//! It is rebuilt from the orders at every start. An order that was applied before is due once more then; if the network
//! still matches, nothing is changed.

use std::{collections::BTreeMap, time::Duration};

use knmstate_api::{Mode, NodeNetworkConfigurationEnactmentSpec, Permit};

use crate::enactment::EnactmentStage;

/// How often a failed order is tried again, and the pauses between attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retries {
    /// The number of attempts, the first one included.
    pub max_attempts: u32,
    /// The pause after the first failure; it doubles with each further one.
    pub first_pause: Duration,
    pub longest_pause: Duration,
}

impl Default for Retries {
    fn default() -> Self {
        Self { max_attempts: 5, first_pause: Duration::from_secs(1), longest_pause: Duration::from_secs(30) }
    }
}

impl Retries {
    /// The pause after this many failures.
    fn pause_after(&self, failures: u32) -> Duration {
        let doubled = 2_u32.saturating_pow(failures.saturating_sub(1));
        self.first_pause.saturating_mul(doubled).min(self.longest_pause)
    }
}

/// Whether a failed order is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// No: the order itself has to be changed.
    Final,
    /// Yes.
    Retryable,
    /// Yes, but not before this time has passed, or NetworkManager is available again: it did not take the change.
    Unavailable { not_before: Duration },
}

/// The progress of all orders of a node. Times are durations since a fixed moment that the caller chooses.
#[derive(Clone, Debug)]
pub struct OrderProgress {
    retries: Retries,
    orders: BTreeMap<String, TrackedOrder>,
}

#[derive(Clone, Debug)]
struct TrackedOrder {
    spec: NodeNetworkConfigurationEnactmentSpec,
    failures: u32,
    at: Attempt,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempt {
    Due,
    Later { at: Duration },
    Done,
    Failed { service_unavailable: bool },
}

impl OrderProgress {
    pub fn new(retries: Retries) -> Self {
        Self { retries, orders: BTreeMap::new() }
    }

    /// Sets the current orders. A changed order starts over; one that is missing is forgotten.
    pub fn set_orders<'a>(
        &mut self,
        orders: impl IntoIterator<Item = (&'a str, &'a NodeNetworkConfigurationEnactmentSpec)>,
    ) {
        let mut before = std::mem::take(&mut self.orders);
        for (policy, spec) in orders {
            let order = match before.remove(policy) {
                Some(known) if is_same_order(&known.spec, spec) => {
                    TrackedOrder { spec: spec.clone(), ..known }
                }
                _ => TrackedOrder { spec: spec.clone(), failures: 0, at: Attempt::Due },
            };
            self.orders.insert(policy.to_owned(), order);
        }
    }

    /// Sets the number of failed attempts of an order from before a restart.
    pub fn restore_failures(&mut self, policy: &str, failures: u32) {
        if let Some(order) = self.orders.get_mut(policy) {
            order.failures = failures;
        }
    }

    /// The orders to apply now.
    pub fn due(&self, now: Duration) -> Vec<&str> {
        let is_due = |order: &TrackedOrder| match order.at {
            Attempt::Due => true,
            Attempt::Later { at } => at <= now,
            Attempt::Done | Attempt::Failed { .. } => false,
        };
        self.with(Permit::Apply).filter(|(_, order)| is_due(order)).map(|(policy, _)| policy).collect()
    }

    /// The orders that wait for their permit.
    pub fn waiting(&self) -> Vec<&str> {
        self.with(Permit::Wait)
            .filter(|(_, order)| order.at != Attempt::Done)
            .map(|(policy, _)| policy)
            .collect()
    }

    /// The orders that were aborted.
    pub fn aborted(&self) -> Vec<&str> {
        self.with(Permit::Abort).map(|(policy, _)| policy).collect()
    }

    /// When the next order becomes due; `None` if none does without a new event.
    pub fn next_due(&self) -> Option<Duration> {
        self.with(Permit::Apply)
            .filter_map(|(_, order)| match order.at {
                Attempt::Due => Some(Duration::ZERO),
                Attempt::Later { at } => Some(at),
                Attempt::Done | Attempt::Failed { .. } => None,
            })
            .min()
    }

    /// The number of failed attempts of an order.
    pub fn failures(&self, policy: &str) -> u32 {
        self.orders.get(policy).map_or(0, |order| order.failures)
    }

    /// Records that an order is applied.
    pub fn succeeded(&mut self, policy: &str) {
        if let Some(order) = self.orders.get_mut(policy) {
            order.at = Attempt::Done;
            order.failures = 0;
        }
    }

    /// Records a failed attempt; returns the stage of the order.
    pub fn failed(&mut self, policy: &str, kind: FailureKind, now: Duration, why: &str) -> EnactmentStage {
        let why = why.to_owned();
        let Some(order) = self.orders.get_mut(policy) else { return EnactmentStage::Failed { why } };
        order.failures += 1;
        let is_last = kind == FailureKind::Final || order.failures >= self.retries.max_attempts;
        if is_last {
            order.at =
                Attempt::Failed { service_unavailable: matches!(kind, FailureKind::Unavailable { .. }) };
            return EnactmentStage::Failed { why };
        }
        let mut pause = self.retries.pause_after(order.failures);
        if let FailureKind::Unavailable { not_before } = kind {
            pause = pause.max(not_before);
        }
        order.at = Attempt::Later { at: now + pause };
        EnactmentStage::Retrying { attempt: order.failures + 1, max_attempts: self.retries.max_attempts, why }
    }

    /// Records that NetworkManager is available again: orders that waited or failed because it was not start over.
    pub fn service_available(&mut self) {
        for order in self.orders.values_mut() {
            match order.at {
                Attempt::Failed { service_unavailable: true } => {
                    order.at = Attempt::Due;
                    order.failures = 0;
                }
                Attempt::Later { .. } => order.at = Attempt::Due,
                Attempt::Due | Attempt::Done | Attempt::Failed { .. } => {}
            }
        }
    }

    /// Whether no order is due, now or later, without a new event.
    pub fn is_settled(&self) -> bool {
        self.next_due().is_none()
    }

    fn with(&self, permit: Permit) -> impl Iterator<Item = (&str, &TrackedOrder)> {
        self.orders
            .iter()
            .filter(move |(_, order)| order.spec.permit == permit && order.spec.mode == Mode::Apply)
            .map(|(policy, order)| (&**policy, order))
    }
}

/// Whether two orders differ in nothing but the permit.
fn is_same_order(
    one: &NodeNetworkConfigurationEnactmentSpec,
    other: &NodeNetworkConfigurationEnactmentSpec,
) -> bool {
    let NodeNetworkConfigurationEnactmentSpec { permit, permit_time, .. } = one.clone();
    one == &NodeNetworkConfigurationEnactmentSpec { permit, permit_time, ..other.clone() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn order(generation: i64, permit: Permit) -> NodeNetworkConfigurationEnactmentSpec {
        NodeNetworkConfigurationEnactmentSpec {
            node_name: "n".to_owned(),
            policy_name: "p".to_owned(),
            policy_generation: generation,
            permit,
            ..Default::default()
        }
    }

    fn with(spec: &NodeNetworkConfigurationEnactmentSpec) -> OrderProgress {
        let mut progress = OrderProgress::new(Retries::default());
        progress.set_orders([("p", spec)]);
        progress
    }

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn pauses_double_up_to_the_longest() {
        let retries = Retries::default();
        let pauses = [1, 2, 3, 4, 5, 6, 7, 40].map(|failures| retries.pause_after(failures).as_secs());
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30, 30]);
    }

    #[test]
    fn an_order_is_applied_once() {
        let mut progress = with(&order(1, Permit::Apply));
        assert_eq!(progress.due(at(0)), ["p"]);
        progress.succeeded("p");
        assert!(progress.due(at(9)).is_empty() && progress.is_settled());
        progress.set_orders([("p", &order(1, Permit::Apply))]);
        assert!(progress.is_settled(), "the same order again is nothing new");
        progress.set_orders([("p", &order(2, Permit::Apply))]);
        assert_eq!(progress.due(at(9)), ["p"], "a new generation is");
        progress.set_orders([]);
        assert!(progress.is_settled(), "a removed order is not applied");
    }

    #[test]
    fn without_permit_nothing_is_due() {
        let mut progress = with(&order(1, Permit::Wait));
        assert!(progress.due(at(0)).is_empty() && progress.is_settled());
        assert_eq!(progress.waiting(), ["p"]);
        progress.set_orders([("p", &order(1, Permit::Apply))]);
        assert_eq!(progress.due(at(0)), ["p"]);
        assert!(progress.waiting().is_empty());
        let plan = NodeNetworkConfigurationEnactmentSpec { mode: Mode::Plan, ..order(1, Permit::Apply) };
        assert!(with(&plan).due(at(0)).is_empty(), "an order in Plan mode is never due");
    }

    #[test]
    fn a_failure_is_tried_again_until_the_attempts_are_used_up() {
        let mut progress = with(&order(1, Permit::Apply));
        let mut now = at(0);
        for attempt in 2..=5 {
            let stage = progress.failed("p", FailureKind::Retryable, now, "why");
            assert_eq!(stage, EnactmentStage::Retrying { attempt, max_attempts: 5, why: "why".to_owned() });
            assert!(progress.due(now).is_empty());
            now = progress.next_due().unwrap();
            assert_eq!(progress.due(now), ["p"]);
        }
        assert_eq!(now, at(1 + 2 + 4 + 8));
        assert_eq!(
            progress.failed("p", FailureKind::Retryable, now, "why"),
            EnactmentStage::Failed { why: "why".to_owned() }
        );
        assert!(progress.is_settled());
        progress.service_available();
        assert!(progress.is_settled(), "it did not fail because the service was unavailable");
    }

    #[test]
    fn a_final_failure_is_not_tried_again() {
        let mut progress = with(&order(1, Permit::Apply));
        assert!(matches!(progress.failed("p", FailureKind::Final, at(0), ""), EnactmentStage::Failed { .. }));
        assert!(progress.is_settled());
    }

    #[test]
    fn orders_start_over_when_the_service_is_available_again() {
        let mut progress = with(&order(1, Permit::Apply));
        let unavailable = FailureKind::Unavailable { not_before: at(20) };
        progress.failed("p", unavailable, at(0), "");
        assert_eq!(progress.next_due(), Some(at(20)), "not before the other change is settled");
        progress.service_available();
        assert_eq!(progress.due(at(1)), ["p"]);
        for _ in 0..4 {
            progress.failed("p", unavailable, at(1), "");
        }
        assert!(progress.is_settled());
        progress.service_available();
        assert_eq!(progress.due(at(2)), ["p"]);
        assert_eq!(progress.failures("p"), 0, "and it has all its attempts again");
    }

    #[test]
    fn an_attempt_during_which_the_agent_crashed_counts() {
        let mut progress = with(&order(1, Permit::Apply));
        progress.restore_failures("p", 2);
        progress.failed("p", FailureKind::Retryable, at(0), "died");
        assert_eq!(progress.failures("p"), 3);
        assert_eq!(progress.next_due(), Some(at(4)));
        progress.restore_failures("p", 4);
        progress.failed("p", FailureKind::Retryable, at(0), "died");
        assert!(progress.is_settled(), "a change that crashes the agent every time is not tried for ever");
    }

    proptest! {
        /// For any sequence of events there are never more attempts than allowed for one order.
        #[test]
        fn attempts_are_bounded(events in prop::collection::vec(0_u8..5, 0..60)) {
            let mut progress = with(&order(1, Permit::Apply));
            let (mut now, mut attempts, mut generation) = (at(0), 0, 1);
            for event in events {
                now += at(7);
                match event {
                    0 => {
                        generation += 1;
                        progress.set_orders([("p", &order(generation, Permit::Apply))]);
                        attempts = 0;
                    }
                    1 => progress.set_orders([("p", &order(generation, Permit::Apply))]),
                    2 => progress.set_orders([("p", &order(generation, Permit::Wait))]),
                    _ => {
                        if progress.due(now).contains(&"p") {
                            attempts += 1;
                            progress.failed("p", FailureKind::Retryable, now, "");
                        }
                    }
                }
                prop_assert!(attempts <= Retries::default().max_attempts);
            }
        }
    }
}
