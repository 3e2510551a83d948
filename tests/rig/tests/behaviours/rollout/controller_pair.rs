//! Two controllers, of which one leads.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use knmstate_operator::Settings;
use kube::Api;
use nix::sys::signal::Signal;
use rig::{
    role::{RoleProcess, RoleSetup},
    wait,
};

use super::FleetCluster;

#[derive(Debug)]
pub struct ControllerPair {
    setup: RoleSetup,
    running: BTreeMap<String, RoleProcess>,
    leases: Api<Lease>,
}

/// One process of a controller, by its identity in the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerProcess(String);

impl ControllerProcess {
    fn name(&self) -> &str {
        self.0.split('_').next().unwrap_or_default()
    }
}

impl ControllerPair {
    /// Starts both.
    pub fn start(cluster: &FleetCluster) -> Result<Self> {
        let setup = cluster.controllers.clone();
        let names = ["a", "b"].map(str::to_owned);
        let running = names.into_iter().map(|name| Ok((name.clone(), setup.start(&name)?)));
        let running = running.collect::<Result<_>>()?;
        let leases = Api::namespaced(cluster.api.client(), &Settings::default().namespace);
        Ok(Self { setup, running, leases })
    }

    /// Waits for a leader.
    pub async fn leader(&self, limit: Duration) -> Result<ControllerProcess> {
        self.leader_other_than(None, limit).await
    }

    /// Waits for a leader other than this one.
    pub async fn successor(&self, of: &ControllerProcess, limit: Duration) -> Result<ControllerProcess> {
        self.leader_other_than(Some(of), limit).await
    }

    async fn leader_other_than(
        &self,
        former: Option<&ControllerProcess>,
        limit: Duration,
    ) -> Result<ControllerProcess> {
        wait::until(limit, "a controller to lead", async || {
            let lease = self.leases.get(&Settings::default().leader_lease()).await?;
            let holder = lease.spec.and_then(|spec| spec.holder_identity);
            let process =
                ControllerProcess(holder.filter(|holder| !holder.is_empty()).context("there is no holder")?);
            ensure!(Some(&process) != former, "still {process:?}");
            Ok(process)
        })
        .await
    }

    /// Ends this process with SIGKILL; the controller is not started again.
    pub fn kill(&mut self, process: &ControllerProcess) -> Result<()> {
        self.running.remove(process.name()).context("it does not run").map(drop)
    }

    /// Ends this process as kubelet does.
    pub async fn stop(&mut self, process: &ControllerProcess) -> Result<()> {
        self.running.remove(process.name()).context("it does not run")?.stop().await
    }

    /// Starts a controller that has ended.
    pub fn start_again(&mut self, process: &ControllerProcess) -> Result<()> {
        let controller = self.setup.start(process.name())?;
        self.running.insert(process.name().to_owned(), controller);
        Ok(())
    }

    pub fn signal(&self, process: &ControllerProcess, signal: Signal) -> Result<()> {
        self.running.get(process.name()).context("it does not run")?.signal(signal)
    }
}
