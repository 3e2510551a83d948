//! The simulated machine: its state, which outlives every handle to it, and the functions by which tests change it.

use knmstate_document::{NetworkState, interface_name, programs};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::runtime::Handle;
use tokio::time::sleep;

use super::checkpoint::{Journal, Open};
use super::desired::Origin;
use super::faults::{ApplyFault, Fault, Faults, Strikes};
use super::host::SimulatedHost;
use super::kind::Kind;
use super::network::{Hardware, Network};
use knmstate_host::HostError;
use knmstate_host::{Abilities, Checkpoint, Link, Operation, Plan, SetAside, Versions};
use knmstate_host::{Announcer, Changes, Topic};

/// A machine in memory. Clones are the same machine.
///
/// An agent gets at it by [`host`](Self::host); everything else here is the world that the agent does not control.
/// When all handles are dropped, as when the agent crashes, the machine goes on: its timer runs, its state stays.
///
/// An idle machine is some kilobytes of memory (17 with three NICs) and no task; a timer runs only while a change is
/// open.
#[derive(Debug, Clone)]
pub struct SimulatedMachine {
    shared: Arc<Shared>,
}

#[derive(Debug)]
pub(super) struct Shared {
    hardware: Hardware,
    inner: Mutex<Inner>,
    announcer: Announcer,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) network: Arc<Network>,
    pub(super) open: Option<Open>,
    pub(super) journal: Option<Journal>,
    /// Changes that were given up.
    pub(super) set_aside: Vec<SetAside>,
    /// NICs without a cable.
    unplugged: BTreeSet<String>,
    service_runs: bool,
    checkpoints_made: u64,
    faults: Faults,
}

/// What a machine is made of. See [`SimulatedMachine::builder`].
#[derive(Debug)]
#[must_use]
pub struct Builder {
    hardware: Hardware,
    nics: Vec<String>,
    initial: Option<NetworkState>,
}

impl Builder {
    /// Adds a NIC.
    pub fn nic(mut self, name: impl Into<String>) -> Self {
        self.nics.push(name.into());
        self
    }

    /// Takes a kind of interface out of the machine's kernel; asking for one is [`HostError::Unsupported`] then.
    pub fn lacking(mut self, kind: Kind) -> Self {
        self.hardware.lacking.insert(kind);
        self
    }

    /// What the machine can do, where machines differ. By default everything.
    pub fn able_to(mut self, abilities: Abilities) -> Self {
        self.hardware.abilities = abilities;
        self
    }

    /// The configuration that the machine boots with.
    pub fn initially(mut self, state: NetworkState) -> Self {
        self.initial = Some(state);
        self
    }

    /// Switches the machine on. Fails when it cannot boot with its initial configuration.
    pub fn build(self) -> Result<SimulatedMachine, HostError> {
        let mut network = Network::new(&self.hardware, &self.nics);
        if let Some(initial) = &self.initial {
            network = network.with(initial, &self.hardware, Origin::Outside)?;
        }
        let inner = Inner {
            network: Arc::new(network),
            open: None,
            journal: None,
            set_aside: Vec::new(),
            unplugged: BTreeSet::new(),
            service_runs: true,
            checkpoints_made: 0,
            faults: Faults::default(),
        };
        let shared =
            Shared { hardware: self.hardware, inner: Mutex::new(inner), announcer: Announcer::new() };
        Ok(SimulatedMachine { shared: Arc::new(shared) })
    }
}

impl SimulatedMachine {
    /// A machine called `name` with nothing but a loopback interface so far.
    pub fn builder(name: impl Into<String>) -> Builder {
        let hardware =
            Hardware { name: name.into(), lacking: BTreeSet::new(), abilities: Abilities::default() };
        Builder { hardware, nics: Vec::new(), initial: None }
    }

    /// A handle for an agent.
    pub fn host(&self) -> SimulatedHost {
        SimulatedHost::onto(Arc::clone(&self.shared))
    }

    /// The current state, also with armed faults or without the service.
    pub fn state(&self) -> NetworkState {
        self.shared.lock().network.document()
    }

    /// Makes `fault` strike when `operation` is asked for.
    pub fn arm(&self, operation: Operation, strikes: Strikes, fault: Fault) {
        self.shared.lock().faults.arm(operation, strikes, fault);
    }

    /// Makes `fault` strike when a change is applied.
    pub fn arm_apply(&self, strikes: Strikes, fault: ApplyFault) {
        self.shared.lock().faults.arm_apply(strikes, fault);
    }

    /// Disarms all faults.
    pub fn clear_faults(&self) {
        self.shared.lock().faults.clear();
    }

    /// Changes the network as `ip` or a container runtime would: past the agent, at once, without a
    /// checkpoint. `state: ignore` makes an interface that is there and not managed.
    ///
    /// If a change of the agent is open and rolled back later, this one is undone with it: the machine goes back to
    /// the moment before the agent's change, as a whole.
    pub fn change_behind_your_back(&self, change: &NetworkState) -> Result<(), HostError> {
        let mut inner = self.shared.lock();
        let next = inner.network.with(change, &self.shared.hardware, Origin::Outside)?;
        self.shared.turn_into(&mut inner, Arc::new(next));
        Ok(())
    }

    /// Pulls the cable of a NIC.
    pub fn unplug(&self, nic: impl Into<String>) {
        if self.shared.lock().unplugged.insert(nic.into()) {
            self.shared.announcer.announce(Changes::default().with(Topic::Link));
        }
    }

    /// Puts the cable of a NIC back in.
    pub fn plug_in(&self, nic: &str) {
        if self.shared.lock().unplugged.remove(nic) {
            self.shared.announcer.announce(Changes::default().with(Topic::Link));
        }
    }

    /// Stops the service that configures the network. An open change loses its guard and stays.
    pub fn stop_service(&self) {
        self.shared.stop_service(&mut self.shared.lock());
    }

    /// Starts the service again. It knows nothing of the changes that were open when it stopped.
    pub fn start_service(&self) {
        let mut inner = self.shared.lock();
        if !inner.service_runs {
            inner.service_runs = true;
            self.shared.announcer.announce(Changes::default().with(Topic::ServiceBack));
        }
    }

    /// Stops and starts the service.
    pub fn restart_service(&self) {
        self.stop_service();
        self.start_service();
    }

    /// Opens a checkpoint in the name of another program; it is rolled back after `lasting`.
    pub fn open_foreign_checkpoint(&self, lasting: Duration) -> Result<Checkpoint, HostError> {
        let mut inner = self.shared.lock();
        inner.refuse_if_busy()?;
        let checkpoint = inner.name_checkpoint();
        let before = Arc::clone(&inner.network);
        inner.open = Some(Open::new(&self.shared, checkpoint.clone(), false, before, lasting));
        Ok(checkpoint)
    }

    /// How many changes were begun, by all programs.
    pub fn checkpoints_made(&self) -> u64 {
        self.shared.lock().checkpoints_made
    }
}

impl Shared {
    /// The machine as it is now: a change whose time has passed has been rolled back.
    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        // A test that panicked half-way cannot leave the network in pieces: it is replaced as a whole.
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = inner.take_expired() {
            self.turn_into(&mut inner, before);
            inner.tidy_journal();
        }
        inner
    }

    pub(super) fn links(&self) -> Vec<Link> {
        let inner = self.lock();
        let document = inner.network.document();
        let is_up =
            |interface: &&Map<String, Value>| interface.get("state").is_some_and(|state| state == "up");
        let names = document.interfaces().filter(is_up).map(interface_name);
        names
            .map(|name| Link {
                name: name.to_owned(),
                carrier: !inner.unplugged.contains(name),
                active_port: None,
            })
            .collect()
    }

    pub(super) fn events(&self) -> knmstate_host::Events {
        self.announcer.subscribe()
    }

    pub(super) fn versions(&self) -> Versions {
        let running = self.lock().service_runs;
        let simulated = "simulated".to_owned();
        Versions { nmstate: simulated.clone(), network_manager: running.then_some(simulated) }
    }

    pub(super) fn strike(&self, operation: Operation) -> Option<Fault> {
        self.lock().faults.strike(operation)
    }

    /// The machine, if its service answers.
    pub(super) fn answering(&self) -> Result<MutexGuard<'_, Inner>, HostError> {
        let inner = self.lock();
        if inner.service_runs {
            Ok(inner)
        } else {
            Err(HostError::Unavailable { why: "it does not run on this machine".to_owned() })
        }
    }

    /// Puts `next` in the place of the network there is, and sends an event for what differs.
    pub(super) fn turn_into(&self, inner: &mut Inner, next: Arc<Network>) {
        let changes = inner.network.changes_to(&next);
        inner.network = next;
        self.announcer.announce(changes);
    }

    pub(super) fn abilities(&self) -> Abilities {
        self.hardware.abilities
    }

    /// What applying the document would change.
    pub(super) fn plan(&self, desired: &NetworkState) -> Result<Plan, HostError> {
        let inner = self.answering()?;
        refuse_scripts(desired, &inner.network.document())?;
        let next = inner.network.with(desired, &self.hardware, Origin::Agent)?;
        if next == *inner.network {
            return Ok(Plan::default());
        }
        let before = inner.network.document();
        let unmet = desired.unmet_in(&before);
        // Keys that are not compared, such as the metric of a route, can change all the same.
        let difference = if unmet.sections().is_empty() { desired.clone().without_secrets() } else { unmet };
        Ok(Plan { difference, before, warnings: Vec::new() })
    }

    /// Opens a checkpoint and applies the document under it.
    pub(super) fn apply(
        self: &Arc<Self>,
        desired: &NetworkState,
        deadline: Duration,
    ) -> Result<Checkpoint, HostError> {
        let mut inner = self.answering()?;
        inner.refuse_if_busy()?;
        refuse_scripts(desired, &inner.network.document())?;
        let before = Arc::clone(&inner.network);
        let mut next = before.with(desired, &self.hardware, Origin::Agent)?;

        let fault = inner.faults.strike_apply();
        if let Some(ApplyFault::Disregard { interface, key }) = &fault {
            next = next.disregarding(interface, key, &before);
        }
        let checkpoint = inner.name_checkpoint();
        inner.journal = Some(Journal::new(checkpoint.clone(), Arc::clone(&before)));
        inner.open = Some(Open::new(self, checkpoint.clone(), true, Arc::clone(&before), deadline));

        match fault {
            Some(ApplyFault::ServiceDies) => {
                self.turn_into(&mut inner, Arc::new(before.half_way_to(&next)));
                self.stop_service(&mut inner);
                return Err(HostError::Unavailable {
                    why: "it went away while the change was applied".to_owned(),
                });
            }
            Some(ApplyFault::LoseAddress { interface, address, after }) => {
                self.lose_address_later(interface, address, after);
            }
            Some(ApplyFault::Disregard { .. }) | None => {}
        }
        self.turn_into(&mut inner, Arc::new(next));
        if let Some(unmet) = desired.first_unmet_in(&inner.network.document()) {
            let before = inner.settle_by_going_back(&checkpoint)?;
            self.turn_into(&mut inner, before);
            return Err(HostError::VerificationFailed {
                place: unmet.place,
                wanted: unmet.wanted,
                found: unmet.found,
            });
        }
        Ok(checkpoint)
    }

    /// Once a change is applied, its time for a decision starts. Fails when it is not open any more.
    pub(super) fn guard_from_now(
        self: &Arc<Self>,
        checkpoint: &Checkpoint,
        deadline: Duration,
    ) -> Result<(), HostError> {
        match self.answering()?.open.as_mut().filter(|open| open.checkpoint == *checkpoint) {
            Some(open) => {
                open.extend(self, deadline);
                Ok(())
            }
            None => Err(HostError::CheckpointGone { checkpoint: checkpoint.clone() }),
        }
    }

    fn stop_service(&self, inner: &mut Inner) {
        if inner.service_runs {
            inner.service_runs = false;
            inner.open = None;
            self.announcer.announce(Changes::default().with(Topic::ServiceGone));
        }
    }

    fn lose_address_later(self: &Arc<Self>, interface: String, address: IpAddr, after: Duration) {
        let machine = Arc::downgrade(self);
        let lose = async move {
            sleep(after).await;
            let Some(machine) = machine.upgrade() else { return };
            let mut inner = machine.lock();
            if let Some(next) = inner.network.without_address(&interface, address) {
                machine.turn_into(&mut inner, Arc::new(next));
            }
        };
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(lose);
        }
    }
}

impl Inner {
    fn name_checkpoint(&mut self) -> Checkpoint {
        self.checkpoints_made += 1;
        Checkpoint::new(format!("/org/freedesktop/NetworkManager/Checkpoint/{}", self.checkpoints_made))
    }
}

/// A simulated machine has no programs that a script could run, and does not allow any.
fn refuse_scripts(desired: &NetworkState, current: &NetworkState) -> Result<(), HostError> {
    match programs::first_new_dispatch_script(desired.sections(), current.sections()) {
        Some(place) => Err(HostError::NotAllowed { place, why: programs::DISPATCH_NOT_ALLOWED.to_owned() }),
        None => Ok(()),
    }
}
