//! What a controller does: it reads, decides, and writes orders.

use knmstate_api::Permit;

use crate::{
    decisions::{Decisions, Known},
    leases::may_write,
    promises,
    protocol::{Action, Steps},
    world::{Health, State, Status, Variation, World, Write},
};

pub fn add_steps(world: &World, decisions: &Decisions, state: &State, steps: &mut Steps) {
    for number in 0..world.controllers {
        let controller = &state.controllers[number];
        if controller.is_up {
            let may_write = may_write(world, state, number);
            if may_write && !controller.has_listed {
                steps.fair(Action::Lists(number), |state| {
                    if world.has(Variation::TakesOverUnlisted) {
                        go_on_unlisted(state, number);
                    } else {
                        state.list(number);
                    }
                    Ok(())
                });
            }
            if controller.has_listed || world.has(Variation::TakesOverUnlisted) {
                add_views(world, state, number, steps);
            }
            if may_write && controller.has_listed {
                add_decision(world, decisions, state, number, steps);
                add_sends(world, state, number, steps);
            }
        }
        add_landings(world, state, number, steps);
    }
}

fn go_on_unlisted(state: &mut State, number: usize) {
    let controller = &mut state.controllers[number];
    controller.has_listed = true;
    for view in &mut controller.views {
        view.order = view.read;
        view.is_settled = true;
    }
}

/// What has changed is seen sooner or later, in any order.
fn add_views(world: &World, state: &State, number: usize, steps: &mut Steps) {
    let controller = &state.controllers[number];
    if controller.generation != state.generation {
        steps.fair(Action::SeesPolicy(number), |state| {
            state.controllers[number].generation = state.generation;
            Ok(())
        });
    }
    let reads_orders = world.has(Variation::ForgetsOwnWrites) || world.has(Variation::TakesOverUnlisted);
    for (place, (view, node)) in controller.views.iter().zip(&state.nodes).enumerate() {
        if view.health != node.health {
            steps.fair(Action::SeesNode(number, place), |state| {
                state.controllers[number].views[place].health = state.nodes[place].health;
                Ok(())
            });
        }
        if view.status != node.status || (reads_orders && view.read != node.order) {
            steps.fair(Action::SeesEnactment(number, place), |state| {
                let view = &mut state.controllers[number].views[place];
                view.status = state.nodes[place].status;
                if reads_orders {
                    view.read = state.nodes[place].order;
                }
                Ok(())
            });
        }
    }
}

fn add_decision(world: &World, decisions: &Decisions, state: &State, number: usize, steps: &mut Steps) {
    let controller = &state.controllers[number];
    let forgets = world.has(Variation::ForgetsOwnWrites);
    let known = Known {
        generation: controller.generation,
        nodes: controller.views.map(|view| {
            let order = if forgets { view.read } else { view.order };
            (view.health, order, if order.is_none() { Status::default() } else { view.status })
        }),
    };
    let decided = decisions.about(&known);
    if controller.views.iter().zip(decided.orders).all(|(view, order)| view.order == order) {
        return;
    }
    steps.fair(Action::Decides(number), |state| {
        promises::nobody_begins_too_early(world, state, number, &decided)?;
        for (view, order) in state.controllers[number].views.iter_mut().zip(decided.orders) {
            if view.order != order {
                view.order = order;
                // With its node an enactment goes by itself.
                view.is_settled = view.health == Health::Gone;
            }
        }
        Ok(())
    });
}

fn add_sends(world: &World, state: &State, number: usize, steps: &mut Steps) {
    for (place, view) in state.controllers[number].views.iter().enumerate() {
        if view.is_settled || view.on_its_way.is_some() {
            continue;
        }
        steps.fair(Action::Sends(number, place), |state| {
            promises::one_writes_at_a_time(world, state, number)?;
            let controller = &mut state.controllers[number];
            controller.sent = controller.lease.renewed;
            let view = &mut controller.views[place];
            view.on_its_way = Some(view.order);
            Ok(())
        });
    }
}

/// What was sent lands, or is lost, or its answer is, also when its sender is no more.
fn add_landings(world: &World, state: &State, number: usize, steps: &mut Steps) {
    for (place, view) in state.controllers[number].views.iter().enumerate() {
        if let Some(late) = view.late {
            steps.unfair(Action::LandsLate(number, place, late), |state| {
                state.controllers[number].views[place].late = None;
                arrive(world, state, place, late)
            });
        }
        let Some(write) = view.on_its_way else { continue };
        let mut end = |action, is_fault: bool, arrives: bool, is_answered: bool| {
            let happen = |state: &mut State| {
                state.left.losses -= u8::from(is_fault);
                let controller = &mut state.controllers[number];
                let view = &mut controller.views[place];
                view.on_its_way = None;
                view.is_settled |= is_answered && view.order == write;
                if !controller.has_something_on_its_way() {
                    controller.sent = None;
                }
                if arrives { arrive(world, state, place, write) } else { Ok(()) }
            };
            if is_fault { steps.fault(action, happen) } else { steps.fair(action, happen) }
        };
        end(Action::Lands(number, place, write), false, true, true);
        if state.left.losses == 0 {
            continue;
        }
        end(Action::LandsUnanswered(number, place, write), true, true, false);
        end(Action::IsLost(number, place, write), true, false, false);
        if world.has(Variation::OwnWriteLandsLate) && view.late.is_none() {
            steps.fault(Action::IsGivenUp(number, place, write), |state| {
                state.left.losses -= 1;
                let view = &mut state.controllers[number].views[place];
                view.late = view.on_its_way.take();
                Ok(())
            });
        }
    }
}

/// A write comes to the API server, which refuses to go back to an older generation.
fn arrive(world: &World, state: &mut State, place: usize, write: Write) -> Result<(), &'static str> {
    let node = &mut state.nodes[place];
    if !node.is_there() {
        return Ok(());
    }
    let Some(order) = write else {
        node.order = None;
        node.status = Status::default();
        node.late_status = None;
        return Ok(());
    };
    if let Some(before) = node.order {
        if order.generation < before.generation && !world.has(Variation::ServerGoesBack) {
            return if world.variations.is_empty() { Err(promises::GOES_BACK) } else { Ok(()) };
        }
        let is_taken_back = order.generation == before.generation
            && before.permit != Permit::Wait
            && before.permit != order.permit;
        if is_taken_back {
            return if world.has(Variation::ServerKeepsPermits) { Ok(()) } else { Err(promises::TAKEN_BACK) };
        }
    }
    // Whoever has waited until now has nothing to do with older generations any more.
    if node.order.is_none_or(|before| before.permit == Permit::Wait) {
        node.is_over_with = node.is_over_with.max(order.generation - 1);
    }
    node.order = Some(order);
    Ok(())
}
