//! Who may write: the lease, and the time that passes between the controllers. Decided by the real rules.

use std::time::Duration;

use knmstate_core::lease::{Seen, Step, Terms, may_write_until, step};

use crate::{
    protocol::{Action, Steps},
    world::{Controller, LeaseView, Name, State, Variation, World},
};

/// The real figures in ticks: what matters is their order.
const TERMS: Terms = Terms { duration: ticks(2), write_within: ticks(1), renew_every: ticks(1) };

/// Nothing happens at a greater age that does not happen at this one.
const OLDEST: u8 = 2;

/// By the clock of whoever looks.
const NOW: Duration = ticks(100);

const fn ticks(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn ago(age: u8) -> Duration {
    NOW.saturating_sub(ticks(age.into()))
}

fn text(name: Name) -> String {
    match name {
        Name::Nobody => String::new(),
        Name::Controller { number, life } => format!("{number}-{life}"),
    }
}

fn seen(lease: &LeaseView) -> Option<Seen> {
    let holder = text(lease.holder?);
    Some(Seen { holder, duration: TERMS.duration, since: ago(lease.age) })
}

fn name(state: &State, controller: usize) -> Name {
    Name::Controller {
        number: u8::try_from(controller).expect("there are few"),
        life: state.controllers[controller].life,
    }
}

/// Whether a controller may write at this moment.
pub fn may_write(world: &World, state: &State, number: usize) -> bool {
    let controller = &state.controllers[number];
    if !world.has_lease() {
        return controller.is_up;
    }
    let lease = &controller.lease;
    let me = text(name(state, number));
    let until = may_write_until(&TERMS, seen(lease).as_ref(), &me, lease.renewed.map(ago));
    controller.is_up && until.is_some_and(|until| NOW < until)
}

pub fn add_steps(world: &World, state: &State, steps: &mut Steps) {
    for number in 0..world.controllers {
        add_life(world, state, number, steps);
        if world.has_lease() && state.controllers[number].is_up {
            add_lease(world, state, number, steps);
        }
    }
    if world.has_lease() {
        steps.fair(Action::TimePasses, |state| {
            time_passes(world, state);
            Ok(())
        });
    }
}

fn add_life(world: &World, state: &State, number: usize, steps: &mut Steps) {
    let controller = &state.controllers[number];
    if !controller.is_up {
        steps.fair(Action::ControllerStarts(number), |state| {
            let controller = &mut state.controllers[number];
            controller.is_up = true;
            if !world.has_lease() {
                // It waits for the lease of its earlier life to run out.
                controller.hang_up();
            }
            Ok(())
        });
        return;
    }
    if state.left.controller_crashes > 0 {
        steps.fault(Action::ControllerCrashes(number), |state| {
            state.left.controller_crashes -= 1;
            end_life(world, state, number);
            Ok(())
        });
    }
    // Whoever gives the lease back waits first for what it has sent.
    let is_done = controller.has_listed && !controller.has_something_on_its_way();
    if world.has_lease() && state.left.releases > 0 && is_done && may_write(world, state, number) {
        steps.fault(Action::GivesLeaseBack(number), |state| {
            state.left.releases -= 1;
            end_life(world, state, number);
            set_holder(state, Name::Nobody);
            Ok(())
        });
    }
}

fn end_life(world: &World, state: &mut State, number: usize) {
    let controller = &mut state.controllers[number];
    controller.forget();
    controller.is_up = false;
    controller.lease = Controller::new().lease;
    if world.has_lease() && !world.has(Variation::KeepsItsName) {
        controller.life += 1;
    }
}

fn set_holder(state: &mut State, holder: Name) {
    state.holder = holder;
    for controller in &mut state.controllers {
        controller.lease.is_behind = true;
        if let Some((_, is_valid)) = &mut controller.lease.renewing {
            *is_valid = false;
        }
    }
}

fn add_lease(world: &World, state: &State, number: usize, steps: &mut Steps) {
    let lease = &state.controllers[number].lease;
    let me = name(state, number);
    if lease.is_behind {
        steps.fair(Action::SeesLease(number), |state| {
            let holder = state.holder;
            let controller = &mut state.controllers[number];
            controller.lease.holder = Some(holder);
            controller.lease.age = 0;
            controller.lease.is_behind = false;
            if holder != me {
                controller.lease.renewed = None;
                controller.has_listed = false;
                if !world.has(Variation::TakesOverUnlisted) {
                    controller.forget();
                }
            }
            Ok(())
        });
    }
    if let Some((_, is_valid)) = lease.renewing {
        steps.fair(Action::RenewalLands(number), |state| {
            land(state, number, me);
            Ok(())
        });
        if state.left.losses > 0 && is_valid {
            steps.fault(Action::RenewalIsUnanswered(number), |state| {
                state.left.losses -= 1;
                set_holder(state, me);
                state.controllers[number].lease.renewing = None;
                Ok(())
            });
        }
        return;
    }
    let due = step(&TERMS, seen(lease).as_ref(), &text(me), lease.renewed.map(ago), NOW) == Step::Take;
    if lease.holder.is_none() || !due {
        return;
    }
    let begin = |state: &mut State| {
        let lease = &mut state.controllers[number].lease;
        lease.renewing = Some((0, !lease.is_behind));
    };
    // What takes no time on the wire needs no state in between.
    steps.fair(Action::Renews(number), |state| {
        begin(state);
        land(state, number, me);
        Ok(())
    });
    if state.left.losses > 0 {
        steps.fault(Action::BeginsToRenew(number), |state| {
            state.left.losses -= 1;
            begin(state);
            Ok(())
        });
    }
}

/// A renewal comes to the API server, which takes it if the lease still is as its sender has seen it.
fn land(state: &mut State, number: usize, me: Name) {
    let renewing = state.controllers[number].lease.renewing.take();
    if let Some((begun, true)) = renewing {
        set_holder(state, me);
        let lease = &mut state.controllers[number].lease;
        lease.holder = Some(me);
        lease.age = 0;
        lease.is_behind = false;
        lease.renewed = Some(begun);
    }
}

fn time_passes(world: &World, state: &mut State) {
    let older = |age: u8| OLDEST.min(age + 1);
    for controller in &mut state.controllers[..world.controllers] {
        let lease = &mut controller.lease;
        if lease.holder.is_some() {
            lease.age = older(lease.age);
        }
        lease.renewed = lease.renewed.map(older);
        // Every call has a deadline.
        lease.renewing =
            lease.renewing.map(|(age, is_valid)| (age + 1, is_valid)).filter(|(age, _)| *age < OLDEST);
        controller.sent = controller.sent.map(older);
        if controller.sent == Some(OLDEST) && !world.has(Variation::FormerLeaderLandsLate) {
            controller.hang_up();
        }
    }
}
