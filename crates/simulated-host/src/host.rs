//! The agent's handle onto a simulated machine.

use knmstate_document::NetworkState;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::faults::Fault;
use super::machine::{Shared, SimulatedMachine};
use knmstate_host::Events;
use knmstate_host::HostError;
use knmstate_host::{Abilities, Checkpoint, Host, Link, OpenCheckpoint, Operation, Plan, SetAside, Versions};

/// A handle onto a [`SimulatedMachine`]: all that an agent knows of it.
#[derive(Debug, Clone)]
pub struct SimulatedHost {
    machine: Arc<Shared>,
}

impl SimulatedHost {
    pub(super) fn onto(machine: Arc<Shared>) -> Self {
        Self { machine }
    }

    /// Lets a fault have its way before anything is done.
    async fn weather(&self, operation: Operation) -> Result<(), HostError> {
        match self.machine.strike(operation) {
            None => Ok(()),
            Some(Fault::Fail(error)) => Err(error),
            Some(Fault::Delay(time)) => {
                sleep(time).await;
                Ok(())
            }
            Some(Fault::Hang) => pending().await,
        }
    }
}

impl Host for SimulatedHost {
    async fn observe(&self) -> Result<NetworkState, HostError> {
        self.weather(Operation::Observe).await?;
        Ok(self.machine.answering()?.network.document())
    }

    fn events(&self) -> Events {
        self.machine.events()
    }

    async fn plan(&self, desired: &NetworkState) -> Result<Plan, HostError> {
        self.weather(Operation::Plan).await?;
        self.machine.plan(desired)
    }

    async fn begin(&self, desired: &NetworkState, deadline: Duration) -> Result<Checkpoint, HostError> {
        let late_by = match self.machine.strike(Operation::Begin) {
            Some(Fault::Fail(error)) => return Err(error),
            Some(Fault::Delay(time)) => time,
            Some(Fault::Hang) => Duration::MAX,
            None => Duration::ZERO,
        };
        let checkpoint = self.machine.apply(desired, deadline)?;
        if !late_by.is_zero() {
            sleep(late_by.min(deadline)).await;
        }
        if late_by >= deadline && !late_by.is_zero() {
            return Err(HostError::Timeout { operation: Operation::Begin, after: deadline });
        }
        self.machine.guard_from_now(&checkpoint, deadline)?;
        Ok(checkpoint)
    }

    async fn leave_open(&self, checkpoint: &Checkpoint, deadline: Duration) -> Result<(), HostError> {
        self.machine.answering()?.leave_open(&self.machine, checkpoint, deadline)
    }

    async fn commit(&self, checkpoint: &Checkpoint) -> Result<(), HostError> {
        self.weather(Operation::Commit).await?;
        self.machine.answering()?.settle_by_keeping(checkpoint)
    }

    async fn roll_back(&self, checkpoint: &Checkpoint) -> Result<(), HostError> {
        if let Err(error) = self.weather(Operation::RollBack).await {
            return Err(self.machine.lock().roll_back_failed(checkpoint, error));
        }
        let mut inner = self.machine.answering()?;
        let before = inner.settle_by_going_back(checkpoint)?;
        self.machine.turn_into(&mut inner, before);
        Ok(())
    }

    async fn open_checkpoints(&self) -> Result<Vec<OpenCheckpoint>, HostError> {
        Ok(self.machine.answering()?.unsettled())
    }

    async fn links(&self) -> Vec<Link> {
        self.machine.links()
    }

    async fn set_aside(&self) -> Vec<SetAside> {
        self.machine.lock().set_aside.clone()
    }

    async fn versions(&self) -> Versions {
        self.machine.versions()
    }

    async fn abilities(&self) -> Abilities {
        self.machine.abilities()
    }
}

impl From<&SimulatedMachine> for SimulatedHost {
    fn from(machine: &SimulatedMachine) -> Self {
        machine.host()
    }
}
