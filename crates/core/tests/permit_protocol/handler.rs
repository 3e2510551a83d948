//! The steps of the nodes: handlers read orders, apply them, report and crash; nodes are added and removed.

use knmstate_api::Permit;

use crate::{
    invariants,
    protocol::{Action, Steps},
    world::{Health, ModelState, Node, Outcome, Scenario, Status, Variation},
};

/// A network that no generation requests.
const DRIFTED: u8 = u8::MAX;

pub fn add_steps(scenario: &Scenario, state: &ModelState, steps: &mut Steps) {
    for place in 0..scenario.nodes {
        let node = &state.nodes[place];
        if node.exists() {
            add_handler(scenario, state, place, steps);
            add_reports(state, place, steps);
            add_faults(state, place, steps);
        } else if state.left.additions > 0 && node.superseded == 0 {
            steps.fault(Action::NodeIsAdded(place), |state| {
                state.left.additions -= 1;
                state.nodes[place].health = Health::Healthy;
                state.nodes[place].is_up = true;
                Ok(())
            });
        }
    }
    if usize::from(state.generation) < scenario.generations.len() {
        steps.unfair(Action::PolicyChanges, |state| {
            state.generation += 1;
            Ok(())
        });
    }
}

fn add_handler(scenario: &Scenario, state: &ModelState, place: usize, steps: &mut Steps) {
    let node = &state.nodes[place];
    if !node.is_up {
        steps.fair(Action::HandlerStarts(place), |state| {
            let node = &mut state.nodes[place];
            node.is_up = true;
            // A change that the former process has left open is rolled back.
            node.work = None;
            if scenario.has(Variation::FailedStartsOver) && node.result.outcome == Outcome::Failed {
                node.result.outcome = Outcome::Unfinished;
            }
            Ok(())
        });
        return;
    }
    if let Some(generation) = node.work {
        steps.fair(Action::Succeeds(place), |state| {
            let node = &mut state.nodes[place];
            node.network = scenario.generation(generation).network;
            finish(node, Status { generation, outcome: Outcome::Available });
            Ok(())
        });
        if state.left.failures > 0 {
            steps.fault(Action::Fails(place), |state| {
                state.left.failures -= 1;
                finish(&mut state.nodes[place], Status { generation, outcome: Outcome::Failed });
                Ok(())
            });
        }
        if node.order.is_some_and(|order| order.generation > generation) {
            steps.fair(Action::RollsBackForNewer(place), |state| {
                state.nodes[place].work = None;
                Ok(())
            });
        }
        return;
    }
    if node.known != node.order {
        steps.fair(Action::ReadsOrder(place, node.order), |state| {
            read_order(&mut state.nodes[place]);
            Ok(())
        });
    }
    let due = node.known.filter(|known| {
        known.permit == Permit::Apply
            && node.result == Status { generation: known.generation, outcome: Outcome::Unfinished }
    });
    let Some(due) = due else { return };
    steps.fair(Action::Begins(place, due.generation), |state| {
        let node = &mut state.nodes[place];
        if node.network == scenario.generation(due.generation).network {
            // The network matches already, so nothing is changed.
            finish(node, Status { generation: due.generation, outcome: Outcome::Available });
            return Ok(());
        }
        node.work = Some(due.generation);
        invariants::work_may_begin(scenario, state, place)
    });
}

fn finish(node: &mut Node, result: Status) {
    node.result = result;
    node.work = None;
}

fn read_order(node: &mut Node) {
    node.known = node.order;
    let Some(order) = node.order else {
        node.result = Status::default();
        return;
    };
    node.superseded = node.superseded.max(order.generation - 1);
    if node.result.generation != order.generation {
        node.result = Status { generation: order.generation, outcome: Outcome::Unfinished };
    }
    if order.permit == Permit::Abort {
        node.result.outcome = Outcome::Aborted;
    }
}

fn add_reports(state: &ModelState, place: usize, steps: &mut Steps) {
    let node = &state.nodes[place];
    let has_news = node.result != node.status && node.result.generation != 0;
    if node.is_up && node.order.is_some() && has_news {
        steps.fair(Action::Reports(place, node.result), |state| {
            let node = &mut state.nodes[place];
            node.status = node.result;
            Ok(())
        });
        if state.left.late_statuses > 0 {
            steps.fault(Action::ReportsTwice(place, node.result), |state| {
                state.left.late_statuses -= 1;
                let node = &mut state.nodes[place];
                node.status = node.result;
                node.late_status = Some(node.result);
                Ok(())
            });
        }
    }
    if let Some(late) = node.late_status {
        steps.unfair(Action::ReportArrivesLate(place, late), |state| {
            let node = &mut state.nodes[place];
            node.late_status = None;
            node.status = late;
            Ok(())
        });
    }
}

fn add_faults(state: &ModelState, place: usize, steps: &mut Steps) {
    let (node, left) = (&state.nodes[place], &state.left);
    if left.handler_crashes > 0 && node.is_up {
        steps.fault(Action::HandlerCrashes(place), |state| {
            state.left.handler_crashes -= 1;
            state.nodes[place].is_up = false;
            Ok(())
        });
    }
    if left.removals > 0 {
        steps.fault(Action::NodeIsRemoved(place), |state| {
            state.left.removals -= 1;
            // It does not come back: that would be another node.
            state.nodes[place] = Node { superseded: u8::MAX, ..Node::new(Health::Gone) };
            Ok(())
        });
    }
    if left.drifts > 0 && node.work.is_none() && node.network != 0 && node.network != DRIFTED {
        steps.fault(Action::NetworkDrifts(place), |state| {
            state.left.drifts -= 1;
            state.nodes[place].network = DRIFTED;
            Ok(())
        });
    }
    let mut becomes = |action, is_fair, health, count: fn(&mut ModelState)| {
        let happen = |state: &mut ModelState| {
            count(state);
            state.nodes[place].health = health;
            Ok(())
        };
        if is_fair { steps.fair(action, happen) } else { steps.unfair(action, happen) }
    };
    match node.health {
        Health::Healthy => {
            if left.absences > 0 {
                becomes(Action::NodeBecomesUnhealthy(place), false, Health::Unhealthy, |state| {
                    state.left.absences -= 1;
                });
            }
            if left.deselections > 0 {
                becomes(Action::NodeIsDeselected(place), false, Health::Deselected, |state| {
                    state.left.deselections -= 1;
                });
            }
        }
        Health::Unhealthy => {
            becomes(Action::NodeTimesOut(place), true, Health::GivenUp, |_| ());
            becomes(Action::NodeRecovers(place), false, Health::Healthy, |_| ());
        }
        Health::GivenUp | Health::Deselected => {
            becomes(Action::NodeRecovers(place), false, Health::Healthy, |_| ());
        }
        Health::Gone => {}
    }
}
