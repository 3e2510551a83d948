//! Where a node stands with each of its orders, and what is due next.
//!
//! It is rebuilt from the orders at every start: an order that was carried out before is due once more then, and costs
//! one look at the network when everything is still as ordered.

use std::{collections::BTreeMap, time::Duration};

use knmstate_api::{Mode, NodeNetworkConfigurationEnactmentSpec, Permit};

use crate::enactment::Stage;

/// How often a failed order is tried again, and how long to wait in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retries {
    /// Attempts at most, the first one included.
    pub most: u32,
    /// The pause after the first failure; it doubles with each further one.
    pub first_pause: Duration,
    pub longest_pause: Duration,
}

impl Default for Retries {
    fn default() -> Self {
        Self { most: 5, first_pause: Duration::from_secs(1), longest_pause: Duration::from_secs(30) }
    }
}

impl Retries {
    /// How long to wait after this many failures.
    pub fn pause_after(&self, failures: u32) -> Duration {
        let doubled = 2_u32.saturating_pow(failures.saturating_sub(1));
        self.first_pause.saturating_mul(doubled).min(self.longest_pause)
    }
}

/// What can be said about trying a failed order again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setback {
    /// It cannot help: the order itself has to be changed.
    Final,
    /// It may help.
    Again,
    /// The machine could not be asked to do it at all; it may help after this time, or when its service is back.
    Unavailable { not_before: Duration },
}

/// Where a node stands with all of its orders. Times are since some fixed moment, as the caller likes.
#[derive(Clone, Debug)]
pub struct Progress {
    retries: Retries,
    orders: BTreeMap<String, Standing>,
}

#[derive(Clone, Debug)]
struct Standing {
    spec: NodeNetworkConfigurationEnactmentSpec,
    failures: u32,
    at: Point,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Point {
    Due,
    Later { at: Duration },
    Done,
    Failed { for_want_of_service: bool },
}

impl Progress {
    pub fn new(retries: Retries) -> Self {
        Self { retries, orders: BTreeMap::new() }
    }

    /// Takes over the orders as they are now. One that says something new starts over; one that is gone is forgotten.
    pub fn take_over<'a>(
        &mut self,
        orders: impl IntoIterator<Item = (&'a str, &'a NodeNetworkConfigurationEnactmentSpec)>,
    ) {
        let mut before = std::mem::take(&mut self.orders);
        for (policy, spec) in orders {
            let standing = match before.remove(policy) {
                Some(known) if is_same_order(&known.spec, spec) => Standing { spec: spec.clone(), ..known },
                _ => Standing { spec: spec.clone(), failures: 0, at: Point::Due },
            };
            self.orders.insert(policy.to_owned(), standing);
        }
    }

    /// Counts attempts that failed in an earlier life.
    pub fn failed_before(&mut self, policy: &str, failures: u32) {
        if let Some(standing) = self.orders.get_mut(policy) {
            standing.failures = failures;
        }
    }

    /// The orders to carry out now.
    pub fn due(&self, now: Duration) -> Vec<&str> {
        let is_due = |standing: &Standing| match standing.at {
            Point::Due => true,
            Point::Later { at } => at <= now,
            Point::Done | Point::Failed { .. } => false,
        };
        self.with(Permit::Apply).filter(|(_, standing)| is_due(standing)).map(|(policy, _)| policy).collect()
    }

    /// The orders whose turn has not come.
    pub fn waiting(&self) -> Vec<&str> {
        self.with(Permit::Wait)
            .filter(|(_, standing)| standing.at != Point::Done)
            .map(|(policy, _)| policy)
            .collect()
    }

    /// The orders whose turn will not come.
    pub fn aborted(&self) -> Vec<&str> {
        self.with(Permit::Abort).map(|(policy, _)| policy).collect()
    }

    /// When the next order becomes due; `None` when that takes an event.
    pub fn next_due(&self) -> Option<Duration> {
        self.with(Permit::Apply)
            .filter_map(|(_, standing)| match standing.at {
                Point::Due => Some(Duration::ZERO),
                Point::Later { at } => Some(at),
                Point::Done | Point::Failed { .. } => None,
            })
            .min()
    }

    /// How many attempts of an order have failed.
    pub fn failures(&self, policy: &str) -> u32 {
        self.orders.get(policy).map_or(0, |standing| standing.failures)
    }

    /// The network is as ordered.
    pub fn succeeded(&mut self, policy: &str) {
        if let Some(standing) = self.orders.get_mut(policy) {
            standing.at = Point::Done;
            standing.failures = 0;
        }
    }

    /// An attempt failed. Says at which stage the order is now.
    pub fn failed(&mut self, policy: &str, setback: Setback, now: Duration, why: &str) -> Stage {
        let why = why.to_owned();
        let Some(standing) = self.orders.get_mut(policy) else { return Stage::Failed { why } };
        standing.failures += 1;
        let is_last = setback == Setback::Final || standing.failures >= self.retries.most;
        if is_last {
            standing.at =
                Point::Failed { for_want_of_service: matches!(setback, Setback::Unavailable { .. }) };
            return Stage::Failed { why };
        }
        let mut pause = self.retries.pause_after(standing.failures);
        if let Setback::Unavailable { not_before } = setback {
            pause = pause.max(not_before);
        }
        standing.at = Point::Later { at: now + pause };
        Stage::Retrying { attempt: standing.failures + 1, most: self.retries.most, why }
    }

    /// The machine's service is there again: what waited or failed for want of it starts over.
    pub fn service_is_back(&mut self) {
        for standing in self.orders.values_mut() {
            match standing.at {
                Point::Failed { for_want_of_service: true } => {
                    standing.at = Point::Due;
                    standing.failures = 0;
                }
                Point::Later { .. } => standing.at = Point::Due,
                Point::Due | Point::Done | Point::Failed { .. } => {}
            }
        }
    }

    /// An order that was carried out is to be looked at again.
    pub fn look_again(&mut self, policy: &str) {
        if let Some(standing) = self.orders.get_mut(policy).filter(|standing| standing.at == Point::Done) {
            standing.at = Point::Due;
        }
    }

    /// The orders that were carried out.
    pub fn done(&self) -> impl Iterator<Item = &str> {
        self.with(Permit::Apply).filter(|(_, standing)| standing.at == Point::Done).map(|(policy, _)| policy)
    }

    /// Whether nothing will happen any more unless something changes.
    pub fn is_settled(&self) -> bool {
        self.next_due().is_none()
    }

    fn with(&self, permit: Permit) -> impl Iterator<Item = (&str, &Standing)> {
        self.orders
            .iter()
            .filter(move |(_, standing)| standing.spec.permit == permit && standing.spec.mode == Mode::Apply)
            .map(|(policy, standing)| (&**policy, standing))
    }
}

/// Whether two orders ask for the same, be it permitted yet or not.
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

    fn with(spec: &NodeNetworkConfigurationEnactmentSpec) -> Progress {
        let mut progress = Progress::new(Retries::default());
        progress.take_over([("p", spec)]);
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
    fn an_order_is_carried_out_once() {
        let mut progress = with(&order(1, Permit::Apply));
        assert_eq!(progress.due(at(0)), ["p"]);
        progress.succeeded("p");
        assert!(progress.due(at(9)).is_empty() && progress.is_settled());
        progress.take_over([("p", &order(1, Permit::Apply))]);
        assert!(progress.is_settled(), "the same order again is nothing new");
        progress.take_over([("p", &order(2, Permit::Apply))]);
        assert_eq!(progress.due(at(9)), ["p"], "a new generation is");
        progress.take_over([]);
        assert!(progress.is_settled(), "what is gone is not carried out");
    }

    #[test]
    fn without_permit_nothing_is_due() {
        let mut progress = with(&order(1, Permit::Wait));
        assert!(progress.due(at(0)).is_empty() && progress.is_settled());
        assert_eq!(progress.waiting(), ["p"]);
        progress.take_over([("p", &order(1, Permit::Apply))]);
        assert_eq!(progress.due(at(0)), ["p"]);
        assert!(progress.waiting().is_empty());
        let plan = NodeNetworkConfigurationEnactmentSpec { mode: Mode::Plan, ..order(1, Permit::Apply) };
        assert!(with(&plan).due(at(0)).is_empty(), "a plan touches nothing, whatever else it says");
    }

    #[test]
    fn a_failure_is_tried_again_until_the_attempts_are_used_up() {
        let mut progress = with(&order(1, Permit::Apply));
        let mut now = at(0);
        for attempt in 2..=5 {
            let stage = progress.failed("p", Setback::Again, now, "why");
            assert_eq!(stage, Stage::Retrying { attempt, most: 5, why: "why".to_owned() });
            assert!(progress.due(now).is_empty());
            now = progress.next_due().unwrap();
            assert_eq!(progress.due(now), ["p"]);
        }
        assert_eq!(now, at(1 + 2 + 4 + 8));
        assert_eq!(progress.failed("p", Setback::Again, now, "why"), Stage::Failed { why: "why".to_owned() });
        assert!(progress.is_settled());
        progress.service_is_back();
        assert!(progress.is_settled(), "it did not fail for want of the service");
    }

    #[test]
    fn what_cannot_succeed_is_not_tried_again() {
        let mut progress = with(&order(1, Permit::Apply));
        assert!(matches!(progress.failed("p", Setback::Final, at(0), ""), Stage::Failed { .. }));
        assert!(progress.is_settled());
    }

    #[test]
    fn want_of_the_service_ends_when_it_is_back() {
        let mut progress = with(&order(1, Permit::Apply));
        let gone = Setback::Unavailable { not_before: at(20) };
        progress.failed("p", gone, at(0), "");
        assert_eq!(progress.next_due(), Some(at(20)), "not before the other change is settled");
        progress.service_is_back();
        assert_eq!(progress.due(at(1)), ["p"]);
        for _ in 0..4 {
            progress.failed("p", gone, at(1), "");
        }
        assert!(progress.is_settled());
        progress.service_is_back();
        assert_eq!(progress.due(at(2)), ["p"]);
        assert_eq!(progress.failures("p"), 0, "with all its attempts");
    }

    #[test]
    fn an_attempt_that_its_maker_did_not_survive_counts() {
        let mut progress = with(&order(1, Permit::Apply));
        progress.failed_before("p", 2);
        progress.failed("p", Setback::Again, at(0), "died");
        assert_eq!(progress.failures("p"), 3);
        assert_eq!(progress.next_due(), Some(at(4)));
        progress.failed_before("p", 4);
        progress.failed("p", Setback::Again, at(0), "died");
        assert!(progress.is_settled(), "a change that kills the agent each time is given up");
    }

    proptest! {
        /// Whatever happens in whatever order, there are never more attempts than allowed between two successes,
        /// new orders or returns of the service.
        #[test]
        fn attempts_are_bounded(happenings in prop::collection::vec(0_u8..5, 0..60)) {
            let mut progress = with(&order(1, Permit::Apply));
            let (mut now, mut attempts, mut generation) = (at(0), 0, 1);
            for happening in happenings {
                now += at(7);
                match happening {
                    0 => {
                        generation += 1;
                        progress.take_over([("p", &order(generation, Permit::Apply))]);
                        attempts = 0;
                    }
                    1 => progress.take_over([("p", &order(generation, Permit::Apply))]),
                    2 => progress.take_over([("p", &order(generation, Permit::Wait))]),
                    _ => {
                        if progress.due(now).contains(&"p") {
                            attempts += 1;
                            progress.failed("p", Setback::Again, now, "");
                        }
                    }
                }
                prop_assert!(attempts <= Retries::default().most);
            }
        }
    }
}
