//! What the real controller decides about a world: the model's values are turned into those of the API, read by the
//! real rules, and handed to the real decision.

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
    enactment,
    order::{Source, order},
    policy_status::Summary,
    rollout::{self, Enactment, Terms, decide, enactment_facts},
};
use serde_json::json;

use crate::world::{Generation, Health, NODES, Order, Said, Status, Variation, World};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

/// What a decision is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Known {
    pub generation: u8,
    pub nodes: [(Health, Option<Order>, Status); NODES],
}

/// What was decided.
#[derive(Clone, Copy, Debug)]
pub struct Decided {
    pub orders: [Option<Order>; NODES],
    /// Nodes that may begin now, and were not at work before.
    pub begins: [bool; NODES],
    /// Nodes that may be at work, and are waited for no longer.
    pub given_up: [bool; NODES],
    /// Whether the policy says that it is over.
    pub is_final: bool,
}

/// The decisions that were made already: many states look the same to a controller.
#[derive(Debug)]
pub struct Decisions {
    world: World,
    policies: Vec<NodeNetworkConfigurationPolicySpec>,
    made: RefCell<HashMap<Known, Decided>>,
}

impl Decisions {
    pub fn new(world: World) -> Self {
        let policies = world.generations.iter().map(policy).collect();
        Self { world, policies, made: RefCell::default() }
    }

    pub fn about(&self, known: &Known) -> Decided {
        if let Some(made) = self.made.borrow().get(known) {
            return *made;
        }
        let decided = self.make(known);
        self.made.borrow_mut().insert(*known, decided);
        decided
    }

    fn make(&self, known: &Known) -> Decided {
        let policy = self.policy(known.generation);
        let mut nodes = BTreeMap::new();
        let mut enactments = BTreeMap::new();
        for (number, (health, order, status)) in known.nodes.iter().enumerate() {
            if let Some(node) = node(*health) {
                nodes.insert(name(number), node);
            }
            if order.is_some() || status.generation != 0 {
                enactments.insert(name(number), self.facts(number, *order, *status, known.generation));
            }
        }
        let decision = decide(&Terms { policy, pools: None, now: NOW }, &nodes, &enactments);
        let permit = |number| decision.permits.get(&name(number)).copied();
        let was_at_work = |number| enactments.get(&name(number)).is_some_and(is_at_work);
        Decided {
            orders: std::array::from_fn(|number| {
                permit(number).map(|permit| Order { generation: known.generation, permit })
            }),
            begins: std::array::from_fn(|number| {
                permit(number) == Some(Permit::Apply)
                    && !was_at_work(number)
                    && !enactments.get(&name(number)).is_some_and(has_had_its_turn)
            }),
            given_up: std::array::from_fn(|number| {
                known.nodes[number].0 == Health::GivenUp && was_at_work(number)
            }),
            is_final: Summary::of(&decision.tally).is_final(),
        }
    }

    fn facts(&self, number: usize, order: Option<Order>, status: Status, generation: u8) -> Enactment {
        let spec = order.map(|order| self.spec(number, order.generation, order.permit));
        let wanted = self.spec(number, generation, Permit::Wait);
        let mut facts = enactment_facts(spec.as_ref(), &told(status), &wanted);
        if self.world.has(Variation::NewGenerationTakesPermits)
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
        let source = Source { name: "p", uid: Some("u"), generation: i64::from(generation) };
        order(&name(number), source, policy, policy.desired_state.clone(), permit)
    }
}

fn is_at_work(enactment: &Enactment) -> bool {
    let order = enactment.order.as_ref();
    order.is_some_and(|order| order.permit == Permit::Apply && !order.is_finished)
}

/// Whether it was permitted what is asked now, and is no longer at work on it.
fn has_had_its_turn(enactment: &Enactment) -> bool {
    enactment.order.as_ref().is_some_and(|order| {
        let is_of_now = order.is_current || (order.is_carried_out && order.asks_the_same);
        order.permit == Permit::Apply && is_of_now
    })
}

fn name(number: usize) -> String {
    format!("n{number}")
}

fn node(health: Health) -> Option<rollout::Node> {
    let away_since = match health {
        Health::Gone | Health::Deselected => return None,
        Health::Well => None,
        Health::Away => Some(NOW),
        Health::GivenUp => Some(NOW - 1.hour()),
    };
    Some(rollout::Node { is_ready: away_since.is_none(), away_since, has_handler: true, is_canary: false })
}

fn policy(terms: &Generation) -> NodeNetworkConfigurationPolicySpec {
    let mut policy = json!({
        "maxUnavailable": terms.limit,
        "desiredState": {"interfaces": [{"name": format!("dummy{}", terms.asks)}]},
    });
    if let Some(count) = terms.tolerated_failures {
        policy["rollout"] = json!({"maxFailures": count});
    }
    serde_json::from_value(policy).expect("a policy as an admin writes it")
}

fn told(status: Status) -> NodeNetworkConfigurationEnactmentStatus {
    let mut told = NodeNetworkConfigurationEnactmentStatus {
        policy_generation: i64::from(status.generation),
        policy_uid: Some("u".to_owned()),
        ..Default::default()
    };
    let stage = match status.stage {
        Said::Open => enactment::Stage::Progressing,
        Said::Available => enactment::Stage::Available,
        Said::Failed => enactment::Stage::Failed { why: "w".to_owned() },
        Said::Aborted => enactment::Stage::Aborted,
    };
    enactment::set(&mut told.conditions, &stage, "n", "p", NOW);
    told
}
