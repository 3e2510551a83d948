//! The invariants of the protocol.

use knmstate_api::Permit;

use crate::{
    decisions::DecisionOutput,
    leases::may_write,
    world::{ModelState, NODES, Order, Scenario},
};

pub const TOO_MANY_AT_WORK: &str = "more nodes are at work than any generation has allowed";
pub const TOO_MANY_PERMITTED: &str = "a node may begin although other nodes use all slots";
pub const SUPERSEDED: &str = "a node begins to apply a generation that is superseded for it";
pub const REVOKED: &str = "a permit was revoked";
pub const GOES_BACK: &str = "a controller writes an older generation";
pub const TWO_WRITERS: &str = "two controllers may write at the same time";

type Checked = Result<(), &'static str>;

/// A node that begins does so for a generation that is not superseded for it, and within the limit. Nodes that began under
/// a higher limit of an earlier generation may go on, so the highest limit counts here.
pub fn work_may_begin(scenario: &Scenario, state: &ModelState, place: usize) -> Checked {
    if state.nodes[place].work.is_some_and(|generation| generation <= state.nodes[place].superseded) {
        return Err(SUPERSEDED);
    }
    let at_work = state.nodes.iter().filter(|node| node.work.is_some() && !node.is_excepted).count();
    let generations = &scenario.generations[..usize::from(state.generation)];
    let limit = generations.iter().map(|generation| generation.limit).max().unwrap_or(0);
    if at_work > limit { Err(TOO_MANY_AT_WORK) } else { Ok(()) }
}

/// A permit is granted only if the nodes at work, and those that can begin without a further decision, leave a slot free
/// within the limit of that generation. Nodes that the rollout has given up on do not count until they get a new permit.
pub fn no_node_begins_too_early(
    scenario: &Scenario,
    state: &mut ModelState,
    controller: usize,
    decided: &DecisionOutput,
) -> Checked {
    let generation = state.controllers[controller].generation;
    for (place, node) in state.nodes.iter_mut().enumerate() {
        node.is_excepted = decided.given_up[place] || (node.is_excepted && !decided.begins[place]);
    }
    // Injected bugs have to show on a node, not only in a decision.
    if !scenario.variations.is_empty() {
        return Ok(());
    }
    let begins =
        |place: usize| decided.begins[place] && has_to_work(scenario, state, place, decided.orders[place]);
    if !(0..NODES).any(begins) {
        return Ok(());
    }
    let holding =
        (0..NODES).filter(|place| begins(*place) || may_work(scenario, state, controller, *place)).count();
    if holding > scenario.generation(generation).limit { Err(TOO_MANY_PERMITTED) } else { Ok(()) }
}

/// Whether a node is at work, or can begin without a further decision.
fn may_work(scenario: &Scenario, state: &ModelState, decider: usize, place: usize) -> bool {
    let node = &state.nodes[place];
    let in_transit = state.controllers.iter().flat_map(|controller| {
        let view = &controller.views[place];
        [view.in_transit.flatten(), view.late.flatten()]
    });
    let decided = [state.controllers[decider].views[place].order, node.order];
    let orders = in_transit.chain(decided).filter(|order| is_as_new_as(*order, node.order));
    let mut orders = orders.chain([node.known]);
    let may_work = node.work.is_some() || orders.any(|order| has_to_work(scenario, state, place, order));
    node.exists() && !node.is_excepted && may_work
}

fn is_as_new_as(order: Option<Order>, other: Option<Order>) -> bool {
    order.map(|order| order.generation) >= other.map(|order| order.generation)
}

/// Whether an order permits a node to change its network.
fn has_to_work(scenario: &Scenario, state: &ModelState, place: usize, order: Option<Order>) -> bool {
    let node = &state.nodes[place];
    node.exists()
        && order.is_some_and(|order| {
            order.permit == Permit::Apply
                && !node.result.is_finished(order.generation)
                && node.network != scenario.generation(order.generation).network
        })
}

pub fn one_writes_at_a_time(scenario: &Scenario, state: &ModelState, writer: usize) -> Checked {
    let another = (0..scenario.controllers).any(|other| other != writer && may_write(scenario, state, other));
    if another { Err(TWO_WRITERS) } else { Ok(()) }
}
