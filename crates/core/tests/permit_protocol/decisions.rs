//! The decisions of the real controller: states of the model are converted to objects of the API, and the real functions
//! decide.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
};

use jiff::{Timestamp, ToSpan as _};
use knmstate_api::{
    NodeNetworkConfigurationEnactmentSpec, NodeNetworkConfigurationEnactmentStatus,
    NodeNetworkConfigurationPolicySpec, Permit,
};
use knmstate_core::{
    enactment::{self, EnactmentStage},
    order::{OrderSource, order},
    policy_status::Summary,
    rollout::{self, Enactment, RolloutContext, decide, enactment_facts},
};
use serde_json::json;

use crate::world::{Generation, Health, NODES, Order, Outcome, Scenario, Status, Variation};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

/// The state from which a decision is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DecisionInput {
    pub generation: u8,
    pub nodes: [(Health, Option<Order>, Status); NODES],
}

/// A decision.
#[derive(Clone, Copy, Debug)]
pub struct DecisionOutput {
    pub orders: [Option<Order>; NODES],
    /// Nodes that may begin now and were not at work before.
    pub begins: [bool; NODES],
    /// Nodes that may be at work and that the rollout no longer waits for.
    pub given_up: [bool; NODES],
    /// Whether the status of the policy is final.
    pub is_final: bool,
}

/// A cache of decisions: many states of the model lead to the same input.
#[derive(Debug)]
pub struct Decisions {
    scenario: Scenario,
    policies: Vec<NodeNetworkConfigurationPolicySpec>,
    cache: RefCell<HashMap<DecisionInput, DecisionOutput>>,
}

impl Decisions {
    pub fn new(scenario: Scenario) -> Self {
        let policies = scenario.generations.iter().map(policy).collect();
        Self { scenario, policies, cache: RefCell::default() }
    }

    pub fn decide(&self, input: &DecisionInput) -> DecisionOutput {
        if let Some(output) = self.cache.borrow().get(input) {
            return *output;
        }
        let output = self.decide_uncached(input);
        self.cache.borrow_mut().insert(*input, output);
        output
    }

    fn decide_uncached(&self, input: &DecisionInput) -> DecisionOutput {
        let policy = self.policy(input.generation);
        let mut nodes = BTreeMap::new();
        let mut enactments = BTreeMap::new();
        for (number, (health, order, status)) in input.nodes.iter().enumerate() {
            if let Some(node) = node(*health) {
                nodes.insert(name(number), node);
            }
            if order.is_some() || status.generation != 0 {
                enactments.insert(name(number), self.facts(number, *order, *status, input.generation));
            }
        }
        let decision = decide(&RolloutContext { policy, pools: None, now: NOW }, &nodes, &enactments);
        let permit = |number| decision.permits.get(&name(number)).copied();
        let was_at_work = |number| enactments.get(&name(number)).is_some_and(is_at_work);
        DecisionOutput {
            orders: std::array::from_fn(|number| {
                permit(number).map(|permit| Order { generation: input.generation, permit })
            }),
            begins: std::array::from_fn(|number| {
                permit(number) == Some(Permit::Apply)
                    && !was_at_work(number)
                    && !enactments.get(&name(number)).is_some_and(was_permitted)
            }),
            given_up: std::array::from_fn(|number| {
                input.nodes[number].0 == Health::GivenUp && was_at_work(number)
            }),
            is_final: !matches!(Summary::of(&decision.tally), Summary::Progressing(_)),
        }
    }

    fn facts(&self, number: usize, order: Option<Order>, status: Status, generation: u8) -> Enactment {
        let spec = order.map(|order| self.spec(number, order.generation, order.permit));
        let wanted = self.spec(number, generation, Permit::Wait);
        let mut facts = enactment_facts(spec.as_ref(), &status_of(status), &wanted);
        if self.scenario.has(Variation::NewGenerationRevokesPermits)
            && let Some(order) = facts.order.as_mut().filter(|order| !order.is_current)
        {
            order.is_finished = true;
        }
        facts
    }

    fn policy(&self, generation: u8) -> &NodeNetworkConfigurationPolicySpec {
        &self.policies[usize::from(generation) - 1]
    }

    fn spec(&self, number: usize, generation: u8, permit: Permit) -> NodeNetworkConfigurationEnactmentSpec {
        let policy = self.policy(generation);
        let source = OrderSource { name: "p", uid: Some("u"), generation: i64::from(generation) };
        order(&name(number), source, policy, policy.desired_state.clone(), permit)
    }
}

fn is_at_work(enactment: &Enactment) -> bool {
    let order = enactment.order.as_ref();
    order.is_some_and(|order| order.permit == Permit::Apply && !order.is_finished)
}

/// Whether it was permitted for the current request.
fn was_permitted(enactment: &Enactment) -> bool {
    enactment.order.as_ref().is_some_and(|order| {
        let is_current = order.is_current || (order.is_applied && order.is_same_request);
        order.permit == Permit::Apply && is_current
    })
}

fn name(number: usize) -> String {
    format!("n{number}")
}

fn node(health: Health) -> Option<rollout::Node> {
    let away_since = match health {
        Health::Gone | Health::Deselected => return None,
        Health::Healthy => None,
        Health::Unhealthy => Some(NOW),
        Health::GivenUp => Some(NOW - 1.hour()),
    };
    Some(rollout::Node { is_ready: away_since.is_none(), away_since, has_handler: true, is_canary: false })
}

fn policy(generation: &Generation) -> NodeNetworkConfigurationPolicySpec {
    let mut policy = json!({
        "maxUnavailable": generation.limit,
        "desiredState": {"interfaces": [{"name": format!("dummy{}", generation.network)}]},
    });
    if let Some(count) = generation.tolerated_failures {
        policy["rollout"] = json!({"maxFailures": count});
    }
    serde_json::from_value(policy).expect("a policy as an admin writes it")
}

fn status_of(status: Status) -> NodeNetworkConfigurationEnactmentStatus {
    let mut result = NodeNetworkConfigurationEnactmentStatus {
        policy_generation: i64::from(status.generation),
        policy_uid: Some("u".to_owned()),
        ..Default::default()
    };
    let stage = match status.outcome {
        Outcome::Unfinished => EnactmentStage::Progressing,
        Outcome::Available => EnactmentStage::Available,
        Outcome::Failed => EnactmentStage::Failed { why: "w".to_owned() },
        Outcome::Aborted => EnactmentStage::Aborted,
    };
    enactment::set_conditions(&mut result.conditions, &stage, "n", "p", NOW);
    result
}
