//! What the protocol promises at every step.

use knmstate_api::Permit;

use crate::{
    decisions::Decided,
    leases::may_write,
    world::{NODES, Order, State, World},
};

pub const TOO_MANY_AT_WORK: &str = "more nodes are at work than any generation has allowed";
pub const TOO_MANY_PERMITTED: &str = "a node may begin though others may work and there is no slot left";
pub const SUPERSEDED: &str = "a node begins to work on a generation that is over for it";
pub const TAKEN_BACK: &str = "a permit was taken back";
pub const GOES_BACK: &str = "a controller tries to go back to an older generation";
pub const TWO_WRITE: &str = "two controllers may write at once";

type Kept = Result<(), &'static str>;

/// Whoever begins was permitted to, for a generation that is not over for it, and is not one too many. Where limits
/// differ, those who were at work under a wider one may go on; so the widest counts here.
pub fn work_may_begin(world: &World, state: &State, place: usize) -> Kept {
    if state.nodes[place].work.is_some_and(|generation| generation <= state.nodes[place].is_over_with) {
        return Err(SUPERSEDED);
    }
    let at_work = state.nodes.iter().filter(|node| node.work.is_some() && !node.is_excepted).count();
    let generations = &world.generations[..usize::from(state.generation)];
    let widest = generations.iter().map(|generation| generation.limit).max().unwrap_or(0);
    if at_work > widest { Err(TOO_MANY_AT_WORK) } else { Ok(()) }
}

/// A permit is given only while those who are at work, or can begin without asking anybody, leave a slot free by the
/// limit of that very generation. Those that were given up are excepted until
/// they get a permit anew.
pub fn nobody_begins_too_early(
    world: &World,
    state: &mut State,
    controller: usize,
    decided: &Decided,
) -> Kept {
    let generation = state.controllers[controller].generation;
    for (place, node) in state.nodes.iter_mut().enumerate() {
        node.is_excepted = decided.given_up[place] || (node.is_excepted && !decided.begins[place]);
    }
    // Flaws have to be seen on a real node.
    if !world.variations.is_empty() {
        return Ok(());
    }
    let begins =
        |place: usize| decided.begins[place] && has_to_work(world, state, place, decided.orders[place]);
    if !(0..NODES).any(begins) {
        return Ok(());
    }
    let holding =
        (0..NODES).filter(|place| begins(*place) || may_work(world, state, controller, *place)).count();
    if holding > world.terms(generation).limit { Err(TOO_MANY_PERMITTED) } else { Ok(()) }
}

/// Whether a node is at work, or can begin without a further decision.
fn may_work(world: &World, state: &State, decider: usize, place: usize) -> bool {
    let node = &state.nodes[place];
    let on_their_way = state.controllers.iter().flat_map(|controller| {
        let view = &controller.views[place];
        [view.on_its_way.flatten(), view.late.flatten()]
    });
    let decided = [state.controllers[decider].views[place].order, node.order];
    let orders = on_their_way.chain(decided).filter(|order| is_as_new_as(*order, node.order));
    let mut orders = orders.chain([node.known]);
    let may_work = node.work.is_some() || orders.any(|order| has_to_work(world, state, place, order));
    node.is_there() && !node.is_excepted && may_work
}

fn is_as_new_as(order: Option<Order>, other: Option<Order>) -> bool {
    order.map(|order| order.generation) >= other.map(|order| order.generation)
}

/// Whether an order permits a node to do something that it has not done.
fn has_to_work(world: &World, state: &State, place: usize, order: Option<Order>) -> bool {
    let node = &state.nodes[place];
    node.is_there()
        && order.is_some_and(|order| {
            order.permit == Permit::Apply
                && !node.said.is_finished(order.generation)
                && node.network != world.terms(order.generation).asks
        })
}

pub fn one_writes_at_a_time(world: &World, state: &State, writer: usize) -> Kept {
    let another = (0..world.controllers).any(|other| other != writer && may_write(world, state, other));
    if another { Err(TWO_WRITE) } else { Ok(()) }
}
