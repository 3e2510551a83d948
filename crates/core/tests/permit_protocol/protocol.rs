//! The protocol as a model: all steps from a state of a scenario.

use crate::{
    controller,
    decisions::{DecisionInput, Decisions},
    handler, leases,
    search::{Model, Step},
    world::{Health, ModelState, Order, Scenario, Status, Write},
};

/// An action of a controller, of a node, or on a write from a controller to a node.
#[derive(Clone, Copy, Debug)]
#[expect(dead_code, reason = "printed in the trace to a violated invariant")]
pub enum Action {
    PolicyChanges,
    TimePasses,
    ControllerStarts(usize),
    ControllerCrashes(usize),
    ReleasesLease(usize),
    SeesLease(usize),
    Renews(usize),
    BeginsToRenew(usize),
    RenewalArrives(usize),
    RenewalIsUnanswered(usize),
    Lists(usize),
    SeesPolicy(usize),
    SeesNode(usize, usize),
    SeesEnactment(usize, usize),
    Decides(usize),
    Sends(usize, usize),
    WriteArrives(usize, usize, Write),
    WriteArrivesUnanswered(usize, usize, Write),
    WriteIsLost(usize, usize, Write),
    WriteTimesOut(usize, usize, Write),
    WriteArrivesLate(usize, usize, Write),
    ReadsOrder(usize, Option<Order>),
    Begins(usize, u8),
    Succeeds(usize),
    Fails(usize),
    RollsBackForNewer(usize),
    Reports(usize, Status),
    ReportsTwice(usize, Status),
    ReportArrivesLate(usize, Status),
    HandlerCrashes(usize),
    HandlerStarts(usize),
    NodeIsAdded(usize),
    NodeIsRemoved(usize),
    NodeIsDeselected(usize),
    NodeBecomesUnhealthy(usize),
    NodeTimesOut(usize),
    NodeRecovers(usize),
    NetworkDrifts(usize),
}

/// The steps from one state.
#[derive(Debug)]
pub struct Steps {
    from: ModelState,
    all: Vec<Step<ModelState, Action>>,
}

impl Steps {
    /// Adds a step that happens eventually.
    pub fn fair(&mut self, action: Action, happen: impl FnOnce(&mut ModelState) -> Result<(), &'static str>) {
        self.add(action, true, happen);
    }

    /// Adds a step that may never happen.
    pub fn unfair(
        &mut self,
        action: Action,
        happen: impl FnOnce(&mut ModelState) -> Result<(), &'static str>,
    ) {
        self.add(action, false, happen);
    }

    /// Adds a step that may happen a limited number of times, which the caller counts.
    pub fn fault(
        &mut self,
        action: Action,
        happen: impl FnOnce(&mut ModelState) -> Result<(), &'static str>,
    ) {
        self.add(action, false, happen);
    }

    fn add(
        &mut self,
        action: Action,
        is_fair: bool,
        happen: impl FnOnce(&mut ModelState) -> Result<(), &'static str>,
    ) {
        let mut next = self.from;
        let next = happen(&mut next).map(|()| next);
        self.all.push(Step { action, is_fair, next });
    }
}

/// The protocol in a scenario.
#[derive(Debug)]
pub struct Protocol {
    scenario: Scenario,
    decisions: Decisions,
}

impl Protocol {
    pub fn new(scenario: Scenario) -> Self {
        Self { scenario, decisions: Decisions::new(scenario) }
    }
}

impl Model for Protocol {
    type State = ModelState;
    type Action = Action;

    fn start(&self) -> ModelState {
        self.scenario.initial()
    }

    fn steps(&self, state: &ModelState) -> Vec<Step<ModelState, Action>> {
        let mut steps = Steps { from: *state, all: Vec::with_capacity(16) };
        leases::add_steps(&self.scenario, state, &mut steps);
        controller::add_steps(&self.scenario, &self.decisions, state, &mut steps);
        handler::add_steps(&self.scenario, state, &mut steps);
        steps.all
    }

    /// The status of the policy is final, and every node that the rollout waits for has a final result of the current
    /// generation.
    fn is_end(&self, state: &ModelState) -> bool {
        let is_finished = state.nodes.iter().all(|node| match node.health {
            Health::Gone | Health::GivenUp => true,
            Health::Deselected => node.order.is_none() && node.work.is_none(),
            Health::Healthy | Health::Unhealthy => {
                let is_current = node.order.is_some_and(|order| order.generation == state.generation);
                is_current && node.status.is_finished(state.generation)
            }
        });
        let input = DecisionInput {
            generation: state.generation,
            nodes: state.nodes.map(|node| (node.health, node.order, node.status)),
        };
        is_finished && self.decisions.decide(&input).is_final
    }
}
