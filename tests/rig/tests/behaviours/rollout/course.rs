//! A policy that is changed again and again on all nodes of a cluster, recorded, and held to what a rollout promises.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use rig::{fleet::Making, wait};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{
    Cluster,
    recorder::Recorder,
    recording::{Recording, is_done},
};

/// The name of the policy.
pub const POLICY: &str = "bond";

/// How a course is run.
#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    pub nodes: usize,
    /// How many nodes may be at work at once.
    pub at_once: usize,
    /// How long a machine takes for a change.
    pub apply: Duration,
    /// How long a leader that is not heard of is waited for; as long as usual, unless said.
    pub lease: Option<Duration>,
}

pub struct Course {
    pub cluster: Cluster,
    pub recorder: Recorder,
    conditions: Conditions,
    /// Of the policy; 0 while there is none.
    pub generation: i64,
}

impl Course {
    /// A cluster with handlers and without controllers.
    pub async fn new(conditions: Conditions) -> Result<Self> {
        let Conditions { nodes, apply, lease, .. } = conditions;
        let mut cluster = Cluster::new(Making { nodes, apply }).await?;
        if let Some(lease) = lease {
            cluster.controllers = cluster.controllers.with_lease(lease);
        }
        let recorder = Recorder::start(cluster.enactments.clone()).await?;
        Ok(Self { cluster, recorder, conditions, generation: 0 })
    }

    /// Asks all nodes for something new. A server that does not answer is asked again.
    pub async fn next_generation(&mut self) -> Result<()> {
        let next = self.generation + 1;
        let spec = self.spec(next);
        let limit = Duration::from_secs(30);
        self.generation = wait::until(limit, &format!("generation {next} to be taken"), async || {
            self.cluster.apply(POLICY, &spec).await?;
            self.cluster.policies.get(POLICY).await?.metadata.generation.context("no generation")
        })
        .await?;
        ensure!(self.generation == next, "generation {} instead of {next}", self.generation);
        Ok(())
    }

    /// Each generation asks for one more VLAN, so that its traces stay.
    pub fn spec(&self, generation: i64) -> Value {
        let mut spec = super::bond();
        spec["maxUnavailable"] = json!(self.conditions.at_once);
        spec["desiredState"]["interfaces"][1] = json!({
            "name": vlan(generation), "type": "vlan", "state": "up",
            "vlan": {"base-iface": "bond0", "id": 100 + generation},
        });
        spec
    }

    /// How many nodes are done with the present generation.
    pub fn done(&self) -> usize {
        self.recorder.so_far().last().values().filter(|one| is_done(one, self.generation)).count()
    }

    /// Waits until so many nodes are done with the present generation.
    pub async fn until_done(&self, nodes: usize, limit: Duration) -> Result<()> {
        let reached = wait::until(limit, &format!("{nodes} nodes to be done"), async || {
            let done = self.done();
            ensure!(done >= nodes, "{done} of {nodes}");
            Ok(())
        })
        .await;
        if reached.is_err() {
            self.cluster.tell().await;
        }
        reached
    }

    /// Waits for this time, and not longer than until all are done. Whether they are.
    pub async fn is_over_after(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        loop {
            if self.done() == self.conditions.nodes {
                return true;
            }
            if Instant::now() >= end {
                return false;
            }
            let tick = Duration::from_millis(5);
            sleep(tick.min(end.saturating_duration_since(Instant::now()))).await;
        }
    }

    /// Waits until all nodes are done, and the policy says so.
    pub async fn until_over(&self, limit: Duration) -> Result<()> {
        let nodes = self.conditions.nodes;
        self.until_done(nodes, limit).await?;
        let expected = format!("{nodes}/{nodes} nodes successfully configured");
        self.cluster.until_says(POLICY, ["Available", "SuccessfullyConfigured", &expected]).await
    }

    /// What holds at the end, whatever happened: every node did everything once, never too many at a time. `again` says
    /// how often a node may have been changed besides, because it was interrupted.
    pub async fn check(&self, again: &BTreeMap<String, u64>) -> Result<Recording> {
        let recording = self.recorder.caught_up().await?;
        let Conditions { nodes, at_once, .. } = self.conditions;
        let at_work = recording.most_at_work();
        let overlap = self.cluster.fleet.overlap.most();
        println!(
            "{} generations, {} versions of enactments, {} gaps; at work at once: {at_work}, being changed at once: \
            {overlap}, allowed: {at_once}",
            self.generation,
            recording.entries.len(),
            recording.gaps,
        );
        ensure!(at_work <= at_once, "{at_work} were permitted at once instead of {at_once}");
        ensure!(overlap <= at_once, "{overlap} machines were changed at once instead of {at_once}");
        // Else nothing would be proved.
        ensure!(at_work == at_once && overlap > 1, "the limit was never reached");
        recording.no_permit_was_taken_back()?;
        recording.each_was_made_once()?;
        let last = recording.last();
        ensure!(last.len() == nodes, "{} enactments for {nodes} nodes", last.len());
        for one in last.values() {
            ensure!(is_done(one, self.generation), "{} is not done: {:?}", one.name_any(), one.status);
        }
        self.check_machines(again)?;
        Ok(recording)
    }

    fn check_machines(&self, again: &BTreeMap<String, u64>) -> Result<()> {
        let once = u64::try_from(self.generation)?;
        for (name, member) in &self.cluster.fleet.members {
            let state = member.machine.state();
            for generation in 1..=self.generation {
                let vlan = vlan(generation);
                ensure!(state.interface(&vlan).is_some(), "{name} has no {vlan}");
            }
            let changes = member.machine.checkpoints_made();
            let most = once + again.get(name).copied().unwrap_or_default();
            ensure!(
                (once..=most).contains(&changes),
                "{name} was changed {changes} times, not {once} to {most}"
            );
        }
        Ok(())
    }
}

/// What a generation leaves on a machine.
pub fn vlan(generation: i64) -> String {
    format!("bond0.{}", 100 + generation)
}
