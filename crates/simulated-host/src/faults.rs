//! Things that go wrong on demand.

use std::net::IpAddr;
use std::time::Duration;

use knmstate_host::HostError;
use knmstate_host::Operation;

/// What happens instead of a plain answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Answers with this error and does nothing.
    Fail(HostError),
    /// Takes this much longer. Applying has changed the network by then, and waits for its own end.
    Delay(Duration),
    /// Does not answer. Applying has changed the network by then; it is given up, and rolled back, at its deadline.
    /// The other operations do nothing and never return: it is for the caller to stop waiting.
    Hang,
}

/// What goes wrong with a change while it is applied, or right after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApplyFault {
    /// The service dies half-way: some of the change is there, nothing guards it, and the service does not answer until
    /// [`start_service`](super::SimulatedMachine::start_service).
    ServiceDies,
    /// The change is applied and found good; then, after this time, an address is taken off again, as happens when
    /// another host on the link has it too.
    LoseAddress { interface: String, address: IpAddr, after: Duration },
    /// The driver takes the value of this key, says nothing, and leaves it as it was.
    Disregard { interface: String, key: String },
}

/// How often a fault strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strikes {
    /// The next time only.
    Once,
    /// Every time until the faults are cleared.
    Always,
}

#[derive(Debug, Clone)]
struct Armed<F> {
    strikes: Strikes,
    fault: F,
}

/// The faults that are waiting. Of several for one occasion, the one that was armed first strikes first.
#[derive(Debug, Default)]
pub(super) struct Faults {
    answers: Vec<(Operation, Armed<Fault>)>,
    applies: Vec<Armed<ApplyFault>>,
}

impl Faults {
    pub(super) fn arm(&mut self, operation: Operation, strikes: Strikes, fault: Fault) {
        self.answers.push((operation, Armed { strikes, fault }));
    }

    pub(super) fn arm_apply(&mut self, strikes: Strikes, fault: ApplyFault) {
        self.applies.push(Armed { strikes, fault });
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn strike(&mut self, operation: Operation) -> Option<Fault> {
        let index = self.answers.iter().position(|(on, _)| *on == operation)?;
        let fault = self.answers[index].1.fault.clone();
        if self.answers[index].1.strikes == Strikes::Once {
            self.answers.remove(index);
        }
        Some(fault)
    }

    pub(super) fn strike_apply(&mut self) -> Option<ApplyFault> {
        let fault = self.applies.first()?.fault.clone();
        if self.applies[0].strikes == Strikes::Once {
            self.applies.remove(0);
        }
        Some(fault)
    }
}
