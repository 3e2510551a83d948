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

use super::Cluster;

#[derive(Debug)]
pub struct Pair {
    setup: RoleSetup,
    running: BTreeMap<String, RoleProcess>,
    leases: Api<Lease>,
}

/// One life of a controller, as the lease names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Life(String);

impl Life {
    fn name(&self) -> &str {
        self.0.split('_').next().unwrap_or_default()
    }
}

impl Pair {
    /// Starts both.
    pub fn start(cluster: &Cluster) -> Result<Self> {
        let setup = cluster.controllers.clone();
        let names = ["a", "b"].map(str::to_owned);
        let running = names.into_iter().map(|name| Ok((name.clone(), setup.start(&name)?)));
        let running = running.collect::<Result<_>>()?;
        let leases = Api::namespaced(cluster.api.client(), &Settings::default().namespace);
        Ok(Self { setup, running, leases })
    }

    /// Whoever leads.
    pub async fn leader(&self, limit: Duration) -> Result<Life> {
        self.leader_other_than(None, limit).await
    }

    /// Whoever leads after this one.
    pub async fn successor(&self, of: &Life, limit: Duration) -> Result<Life> {
        self.leader_other_than(Some(of), limit).await
    }

    async fn leader_other_than(&self, former: Option<&Life>, limit: Duration) -> Result<Life> {
        wait::until(limit, "a controller to lead", async || {
            let lease = self.leases.get(&Settings::default().leader_lease()).await?;
            let holder = lease.spec.and_then(|spec| spec.holder_identity);
            let life = Life(holder.filter(|holder| !holder.is_empty()).context("nobody")?);
            ensure!(Some(&life) != former, "still {life:?}");
            Ok(life)
        })
        .await
    }

    /// Ends this life with SIGKILL; the controller is not started again.
    pub fn kill(&mut self, life: &Life) -> Result<()> {
        self.running.remove(life.name()).context("it does not run").map(drop)
    }

    /// Ends this life as kubelet does.
    pub async fn stop(&mut self, life: &Life) -> Result<()> {
        self.running.remove(life.name()).context("it does not run")?.stop().await
    }

    /// Starts a controller that has ended.
    pub fn start_again(&mut self, life: &Life) -> Result<()> {
        let controller = self.setup.start(life.name())?;
        self.running.insert(life.name().to_owned(), controller);
        Ok(())
    }

    pub fn signal(&self, life: &Life, signal: Signal) -> Result<()> {
        self.running.get(life.name()).context("it does not run")?.signal(signal)
    }
}
