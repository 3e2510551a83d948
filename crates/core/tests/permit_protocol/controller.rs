//! The steps of a controller: it reads, decides, and writes orders.

use knmstate_api::Permit;

use crate::{
    decisions::{DecisionInput, Decisions},
    invariants,
    leases::may_write,
    protocol::{Action, Steps},
    world::{Health, ModelState, Scenario, Status, Variation, Write},
};

pub fn add_steps(scenario: &Scenario, decisions: &Decisions, state: &ModelState, steps: &mut Steps) {
    for number in 0..scenario.controllers {
        let controller = &state.controllers[number];
        if controller.is_up {
            let may_write = may_write(scenario, state, number);
            if may_write && !controller.has_listed {
                steps.fair(Action::Lists(number), |state| {
                    if scenario.has(Variation::TakesOverUnlisted) {
                        go_on_unlisted(state, number);
                    } else {
                        state.list(number);
                    }
                    Ok(())
                });
            }
            if controller.has_listed || scenario.has(Variation::TakesOverUnlisted) {
                add_views(scenario, state, number, steps);
            }
            if may_write && controller.has_listed {
                add_decision(scenario, decisions, state, number, steps);
                add_sends(scenario, state, number, steps);
            }
        }
        add_arrivals(scenario, state, number, steps);
    }
}

fn go_on_unlisted(state: &mut ModelState, number: usize) {
    let controller = &mut state.controllers[number];
    controller.has_listed = true;
    for view in &mut controller.views {
        view.order = view.read;
        view.is_settled = true;
    }
}

/// Every change is seen eventually, in any order.
fn add_views(scenario: &Scenario, state: &ModelState, number: usize, steps: &mut Steps) {
    let controller = &state.controllers[number];
    if controller.generation != state.generation {
        steps.fair(Action::SeesPolicy(number), |state| {
            state.controllers[number].generation = state.generation;
            Ok(())
        });
    }
    let reads_orders =
        scenario.has(Variation::ForgetsOwnWrites) || scenario.has(Variation::TakesOverUnlisted);
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

fn add_decision(
    scenario: &Scenario,
    decisions: &Decisions,
    state: &ModelState,
    number: usize,
    steps: &mut Steps,
) {
    let controller = &state.controllers[number];
    let forgets = scenario.has(Variation::ForgetsOwnWrites);
    let input = DecisionInput {
        generation: controller.generation,
        nodes: controller.views.map(|view| {
            let order = if forgets { view.read } else { view.order };
            (view.health, order, if order.is_none() { Status::default() } else { view.status })
        }),
    };
    let decided = decisions.decide(&input);
    if controller.views.iter().zip(decided.orders).all(|(view, order)| view.order == order) {
        return;
    }
    steps.fair(Action::Decides(number), |state| {
        invariants::no_node_begins_too_early(scenario, state, number, &decided)?;
        for (view, order) in state.controllers[number].views.iter_mut().zip(decided.orders) {
            if view.order != order {
                view.order = order;
                // The API server deletes the enactment together with its node.
                view.is_settled = view.health == Health::Gone;
            }
        }
        Ok(())
    });
}

fn add_sends(scenario: &Scenario, state: &ModelState, number: usize, steps: &mut Steps) {
    for (place, view) in state.controllers[number].views.iter().enumerate() {
        if view.is_settled || view.in_transit.is_some() {
            continue;
        }
        steps.fair(Action::Sends(number, place), |state| {
            invariants::one_writes_at_a_time(scenario, state, number)?;
            let controller = &mut state.controllers[number];
            controller.sent = controller.lease.renewed;
            let view = &mut controller.views[place];
            view.in_transit = Some(view.order);
            Ok(())
        });
    }
}

/// A write arrives, or is lost, or its response is lost, also after its sender has stopped.
fn add_arrivals(scenario: &Scenario, state: &ModelState, number: usize, steps: &mut Steps) {
    for (place, view) in state.controllers[number].views.iter().enumerate() {
        if let Some(late) = view.late {
            steps.unfair(Action::WriteArrivesLate(number, place, late), |state| {
                state.controllers[number].views[place].late = None;
                arrive(scenario, state, place, late)
            });
        }
        let Some(write) = view.in_transit else { continue };
        let mut end = |action, is_fault: bool, arrives: bool, is_answered: bool| {
            let happen = |state: &mut ModelState| {
                state.left.losses -= u8::from(is_fault);
                let controller = &mut state.controllers[number];
                let view = &mut controller.views[place];
                view.in_transit = None;
                view.is_settled |= is_answered && view.order == write;
                if !controller.has_writes_in_transit() {
                    controller.sent = None;
                }
                if arrives { arrive(scenario, state, place, write) } else { Ok(()) }
            };
            if is_fault { steps.fault(action, happen) } else { steps.fair(action, happen) }
        };
        end(Action::WriteArrives(number, place, write), false, true, true);
        if state.left.losses == 0 {
            continue;
        }
        end(Action::WriteArrivesUnanswered(number, place, write), true, true, false);
        end(Action::WriteIsLost(number, place, write), true, false, false);
        if scenario.has(Variation::OwnWriteArrivesLate) && view.late.is_none() {
            steps.fault(Action::WriteTimesOut(number, place, write), |state| {
                state.left.losses -= 1;
                let view = &mut state.controllers[number].views[place];
                view.late = view.in_transit.take();
                Ok(())
            });
        }
    }
}

/// A write arrives at the API server, which refuses an older generation.
fn arrive(
    scenario: &Scenario,
    state: &mut ModelState,
    place: usize,
    write: Write,
) -> Result<(), &'static str> {
    let node = &mut state.nodes[place];
    if !node.exists() {
        return Ok(());
    }
    let Some(order) = write else {
        node.order = None;
        node.status = Status::default();
        node.late_status = None;
        return Ok(());
    };
    if let Some(before) = node.order {
        if order.generation < before.generation && !scenario.has(Variation::ServerAcceptsOlder) {
            return if scenario.variations.is_empty() { Err(invariants::GOES_BACK) } else { Ok(()) };
        }
        let is_revoked = order.generation == before.generation
            && before.permit != Permit::Wait
            && before.permit != order.permit;
        if is_revoked {
            return if scenario.has(Variation::ServerKeepsPermits) {
                Ok(())
            } else {
                Err(invariants::REVOKED)
            };
        }
    }
    // For a node that has waited until now, older generations are superseded.
    if node.order.is_none_or(|before| before.permit == Permit::Wait) {
        node.superseded = node.superseded.max(order.generation - 1);
    }
    node.order = Some(order);
    Ok(())
}
