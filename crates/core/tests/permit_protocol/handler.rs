//! What happens on the nodes: handlers take over orders, work, report and crash, and nodes come and go.

use knmstate_api::Permit;

use crate::{
    promises,
    protocol::{Action, Steps},
    world::{Health, Node, Said, State, Status, Variation, World},
};

/// No generation asks for this network.
const DRIFTED: u8 = u8::MAX;

pub fn add_steps(world: &World, state: &State, steps: &mut Steps) {
    for place in 0..world.nodes {
        let node = &state.nodes[place];
        if node.is_there() {
            add_handler(world, state, place, steps);
            add_reports(state, place, steps);
            add_faults(state, place, steps);
        } else if state.left.additions > 0 && node.is_over_with == 0 {
            steps.fault(Action::NodeIsAdded(place), |state| {
                state.left.additions -= 1;
                state.nodes[place].health = Health::Well;
                state.nodes[place].is_up = true;
                Ok(())
            });
        }
    }
    if usize::from(state.generation) < world.generations.len() {
        steps.unfair(Action::PolicyChanges, |state| {
            state.generation += 1;
            Ok(())
        });
    }
}

fn add_handler(world: &World, state: &State, place: usize, steps: &mut Steps) {
    let node = &state.nodes[place];
    if !node.is_up {
        steps.fair(Action::HandlerStarts(place), |state| {
            let node = &mut state.nodes[place];
            node.is_up = true;
            // What an earlier life has left open is rolled back.
            node.work = None;
            if world.has(Variation::FailedStartsOver) && node.said.stage == Said::Failed {
                node.said.stage = Said::Open;
            }
            Ok(())
        });
        return;
    }
    if let Some(generation) = node.work {
        steps.fair(Action::Succeeds(place), |state| {
            let node = &mut state.nodes[place];
            node.network = world.terms(generation).asks;
            finish(node, Status { generation, stage: Said::Available });
            Ok(())
        });
        if state.left.failures > 0 {
            steps.fault(Action::Fails(place), |state| {
                state.left.failures -= 1;
                finish(&mut state.nodes[place], Status { generation, stage: Said::Failed });
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
        steps.fair(Action::TakesOver(place, node.order), |state| {
            take_over(&mut state.nodes[place]);
            Ok(())
        });
    }
    let due = node.known.filter(|known| {
        known.permit == Permit::Apply
            && node.said == Status { generation: known.generation, stage: Said::Open }
    });
    let Some(due) = due else { return };
    steps.fair(Action::Begins(place, due.generation), |state| {
        let node = &mut state.nodes[place];
        if node.network == world.terms(due.generation).asks {
            // That costs a look at the network, and nothing else.
            finish(node, Status { generation: due.generation, stage: Said::Available });
            return Ok(());
        }
        node.work = Some(due.generation);
        promises::work_may_begin(world, state, place)
    });
}

fn finish(node: &mut Node, said: Status) {
    node.said = said;
    node.work = None;
}

fn take_over(node: &mut Node) {
    node.known = node.order;
    let Some(order) = node.order else {
        node.said = Status::default();
        return;
    };
    node.is_over_with = node.is_over_with.max(order.generation - 1);
    if node.said.generation != order.generation {
        node.said = Status { generation: order.generation, stage: Said::Open };
    }
    if order.permit == Permit::Abort {
        node.said.stage = Said::Aborted;
    }
}

fn add_reports(state: &State, place: usize, steps: &mut Steps) {
    let node = &state.nodes[place];
    let has_news = node.said != node.status && node.said.generation != 0;
    if node.is_up && node.order.is_some() && has_news {
        steps.fair(Action::Reports(place, node.said), |state| {
            let node = &mut state.nodes[place];
            node.status = node.said;
            Ok(())
        });
        if state.left.late_statuses > 0 {
            steps.fault(Action::ReportsTwice(place, node.said), |state| {
                state.left.late_statuses -= 1;
                let node = &mut state.nodes[place];
                node.status = node.said;
                node.late_status = Some(node.said);
                Ok(())
            });
        }
    }
    if let Some(late) = node.late_status {
        steps.unfair(Action::ReportLandsLate(place, late), |state| {
            let node = &mut state.nodes[place];
            node.late_status = None;
            node.status = late;
            Ok(())
        });
    }
}

fn add_faults(state: &State, place: usize, steps: &mut Steps) {
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
            // It does not come back: that would be another one.
            state.nodes[place] = Node { is_over_with: u8::MAX, ..Node::new(Health::Gone) };
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
    let mut becomes = |action, is_fair, health, count: fn(&mut State)| {
        let happen = |state: &mut State| {
            count(state);
            state.nodes[place].health = health;
            Ok(())
        };
        if is_fair { steps.fair(action, happen) } else { steps.unfair(action, happen) }
    };
    match node.health {
        Health::Well => {
            if left.absences > 0 {
                becomes(Action::NodeGoesAway(place), false, Health::Away, |state| state.left.absences -= 1);
            }
            if left.deselections > 0 {
                becomes(Action::NodeIsDeselected(place), false, Health::Deselected, |state| {
                    state.left.deselections -= 1;
                });
            }
        }
        Health::Away => {
            becomes(Action::PatienceEnds(place), true, Health::GivenUp, |_| ());
            becomes(Action::NodeComesBack(place), false, Health::Well, |_| ());
        }
        Health::GivenUp | Health::Deselected => {
            becomes(Action::NodeComesBack(place), false, Health::Well, |_| ());
        }
        Health::Gone => {}
    }
}
