//! The protocol as a model: everything that can happen next in a world.

use crate::{
    controller,
    decisions::{Decisions, Known},
    handler, leases,
    search::{Model, Step},
    world::{Health, Order, State, Status, World, Write},
};

/// Something that happens: to a controller, to a node, or to what a controller writes to a node.
#[derive(Clone, Copy, Debug)]
#[expect(dead_code, reason = "what is in it is read by people, as the way to a broken promise")]
pub enum Action {
    PolicyChanges,
    TimePasses,
    ControllerStarts(usize),
    ControllerCrashes(usize),
    GivesLeaseBack(usize),
    SeesLease(usize),
    Renews(usize),
    BeginsToRenew(usize),
    RenewalLands(usize),
    RenewalIsUnanswered(usize),
    Lists(usize),
    SeesPolicy(usize),
    SeesNode(usize, usize),
    SeesEnactment(usize, usize),
    Decides(usize),
    Sends(usize, usize),
    Lands(usize, usize, Write),
    LandsUnanswered(usize, usize, Write),
    IsLost(usize, usize, Write),
    IsGivenUp(usize, usize, Write),
    LandsLate(usize, usize, Write),
    TakesOver(usize, Option<Order>),
    Begins(usize, u8),
    Succeeds(usize),
    Fails(usize),
    RollsBackForNewer(usize),
    Reports(usize, Status),
    ReportsTwice(usize, Status),
    ReportLandsLate(usize, Status),
    HandlerCrashes(usize),
    HandlerStarts(usize),
    NodeIsAdded(usize),
    NodeIsRemoved(usize),
    NodeIsDeselected(usize),
    NodeGoesAway(usize),
    PatienceEnds(usize),
    NodeComesBack(usize),
    NetworkDrifts(usize),
}

/// The steps from one state, as they are found.
#[derive(Debug)]
pub struct Steps {
    from: State,
    all: Vec<Step<State, Action>>,
}

impl Steps {
    /// Something that happens sooner or later.
    pub fn fair(&mut self, action: Action, happen: impl FnOnce(&mut State) -> Result<(), &'static str>) {
        self.add(action, true, happen);
    }

    /// Something that may never happen.
    pub fn unfair(&mut self, action: Action, happen: impl FnOnce(&mut State) -> Result<(), &'static str>) {
        self.add(action, false, happen);
    }

    /// Something that may happen only so often: whoever adds it counts it.
    pub fn fault(&mut self, action: Action, happen: impl FnOnce(&mut State) -> Result<(), &'static str>) {
        self.add(action, false, happen);
    }

    fn add(
        &mut self,
        action: Action,
        is_fair: bool,
        happen: impl FnOnce(&mut State) -> Result<(), &'static str>,
    ) {
        let mut next = self.from;
        let next = happen(&mut next).map(|()| next);
        self.all.push(Step { action, is_fair, next });
    }
}

/// The protocol in a world.
#[derive(Debug)]
pub struct Protocol {
    world: World,
    decisions: Decisions,
}

impl Protocol {
    pub fn new(world: World) -> Self {
        Self { world, decisions: Decisions::new(world) }
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn start(&self) -> State {
        self.world.first()
    }

    fn steps(&self, state: &State) -> Vec<Step<State, Action>> {
        let mut steps = Steps { from: *state, all: Vec::with_capacity(16) };
        leases::add_steps(&self.world, state, &mut steps);
        controller::add_steps(&self.world, &self.decisions, state, &mut steps);
        handler::add_steps(&self.world, state, &mut steps);
        steps.all
    }

    /// The policy says that it is over, and every node that anybody waits for has said its last word about the present
    /// generation.
    fn is_over(&self, state: &State) -> bool {
        let is_finished = state.nodes.iter().all(|node| match node.health {
            Health::Gone | Health::GivenUp => true,
            Health::Deselected => node.order.is_none() && node.work.is_none(),
            Health::Well | Health::Away => {
                let is_current = node.order.is_some_and(|order| order.generation == state.generation);
                is_current && node.status.is_finished(state.generation)
            }
        });
        let known = Known {
            generation: state.generation,
            nodes: state.nodes.map(|node| (node.health, node.order, node.status)),
        };
        is_finished && self.decisions.about(&known).is_final
    }
}
