//! Which controller may write: the lease, and the passing of time. The decisions are the real ones.

use std::time::Duration;

use knmstate_core::lease::{LeaseStep, LeaseTiming, ObservedLease, may_write_until, next_step};

use crate::{
    protocol::{Action, Steps},
    world::{Controller, LeaseHolder, LeaseView, ModelState, Scenario, Variation},
};

/// The real durations in ticks; only their order matters.
const TIMING: LeaseTiming = LeaseTiming { duration: ticks(2), write_within: ticks(1), renew_every: ticks(1) };

/// The maximum age: nothing changes at a higher one.
const OLDEST: u8 = 2;

/// The current time by the clock of each controller.
const NOW: Duration = ticks(100);

const fn ticks(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn ago(age: u8) -> Duration {
    NOW.saturating_sub(ticks(age.into()))
}

fn text(holder: LeaseHolder) -> String {
    match holder {
        LeaseHolder::None => String::new(),
        LeaseHolder::Controller { number, run } => format!("{number}-{run}"),
    }
}

fn observed(lease: &LeaseView) -> Option<ObservedLease> {
    let holder = text(lease.holder?);
    Some(ObservedLease { holder, duration: TIMING.duration, since: ago(lease.age) })
}

fn identity(state: &ModelState, controller: usize) -> LeaseHolder {
    LeaseHolder::Controller {
        number: u8::try_from(controller).expect("few controllers"),
        run: state.controllers[controller].run,
    }
}

/// Whether a controller may write at this moment.
pub fn may_write(scenario: &Scenario, state: &ModelState, number: usize) -> bool {
    let controller = &state.controllers[number];
    if !scenario.has_lease() {
        return controller.is_up;
    }
    let lease = &controller.lease;
    let me = text(identity(state, number));
    let until = may_write_until(&TIMING, observed(lease).as_ref(), &me, lease.renewed.map(ago));
    controller.is_up && until.is_some_and(|until| NOW < until)
}

pub fn add_steps(scenario: &Scenario, state: &ModelState, steps: &mut Steps) {
    for number in 0..scenario.controllers {
        add_restarts(scenario, state, number, steps);
        if scenario.has_lease() && state.controllers[number].is_up {
            add_lease(scenario, state, number, steps);
        }
    }
    if scenario.has_lease() {
        steps.fair(Action::TimePasses, |state| {
            time_passes(scenario, state);
            Ok(())
        });
    }
}

fn add_restarts(scenario: &Scenario, state: &ModelState, number: usize, steps: &mut Steps) {
    let controller = &state.controllers[number];
    if !controller.is_up {
        steps.fair(Action::ControllerStarts(number), |state| {
            let controller = &mut state.controllers[number];
            controller.is_up = true;
            if !scenario.has_lease() {
                // A single controller waits until the lease of its former process has expired.
                controller.drop_writes();
            }
            Ok(())
        });
        return;
    }
    if state.left.controller_crashes > 0 {
        steps.fault(Action::ControllerCrashes(number), |state| {
            state.left.controller_crashes -= 1;
            stop(scenario, state, number);
            Ok(())
        });
    }
    // A controller waits for its writes before it releases the lease.
    let is_done = controller.has_listed && !controller.has_writes_in_transit();
    if scenario.has_lease() && state.left.releases > 0 && is_done && may_write(scenario, state, number) {
        steps.fault(Action::ReleasesLease(number), |state| {
            state.left.releases -= 1;
            stop(scenario, state, number);
            set_holder(state, LeaseHolder::None);
            Ok(())
        });
    }
}

fn stop(scenario: &Scenario, state: &mut ModelState, number: usize) {
    let controller = &mut state.controllers[number];
    controller.forget();
    controller.is_up = false;
    controller.lease = Controller::new().lease;
    if scenario.has_lease() && !scenario.has(Variation::KeepsItsIdentity) {
        controller.run += 1;
    }
}

fn set_holder(state: &mut ModelState, holder: LeaseHolder) {
    state.holder = holder;
    for controller in &mut state.controllers {
        controller.lease.is_behind = true;
        if let Some((_, is_valid)) = &mut controller.lease.renewing {
            *is_valid = false;
        }
    }
}

fn add_lease(scenario: &Scenario, state: &ModelState, number: usize, steps: &mut Steps) {
    let lease = &state.controllers[number].lease;
    let me = identity(state, number);
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
                if !scenario.has(Variation::TakesOverUnlisted) {
                    controller.forget();
                }
            }
            Ok(())
        });
    }
    if let Some((_, is_valid)) = lease.renewing {
        steps.fair(Action::RenewalArrives(number), |state| {
            arrive(state, number, me);
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
    let due = next_step(&TIMING, observed(lease).as_ref(), &text(me), lease.renewed.map(ago), NOW)
        == LeaseStep::Take;
    if lease.holder.is_none() || !due {
        return;
    }
    let begin = |state: &mut ModelState| {
        let lease = &mut state.controllers[number].lease;
        lease.renewing = Some((0, !lease.is_behind));
    };
    // A renewal that takes no time needs no state in between.
    steps.fair(Action::Renews(number), |state| {
        begin(state);
        arrive(state, number, me);
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

/// A renewal arrives at the API server, which accepts it if the lease is unchanged since the sender has read it.
fn arrive(state: &mut ModelState, number: usize, me: LeaseHolder) {
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

fn time_passes(scenario: &Scenario, state: &mut ModelState) {
    let older = |age: u8| OLDEST.min(age + 1);
    for controller in &mut state.controllers[..scenario.controllers] {
        let lease = &mut controller.lease;
        if lease.holder.is_some() {
            lease.age = older(lease.age);
        }
        lease.renewed = lease.renewed.map(older);
        // Every request has a deadline.
        lease.renewing =
            lease.renewing.map(|(age, is_valid)| (age + 1, is_valid)).filter(|(age, _)| *age < OLDEST);
        controller.sent = controller.sent.map(older);
        if controller.sent == Some(OLDEST) && !scenario.has(Variation::FormerLeaderArrivesLate) {
            controller.drop_writes();
        }
    }
}
