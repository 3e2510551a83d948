//! A policy that is changed again and again on all nodes of a cluster, with a recording that is checked at the end.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use rig::{fleet::FleetOptions, wait};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{
    FleetCluster,
    recorder::Recorder,
    recording::{RolloutRecording, is_done},
};

/// The name of the policy.
pub const POLICY: &str = "bond";

/// The parameters of a recorded rollout.
#[derive(Clone, Copy, Debug)]
pub struct RolloutParameters {
    pub nodes: usize,
    /// `maxUnavailable` of the policy.
    pub max_unavailable: usize,
    /// How long a machine takes for a change.
    pub apply: Duration,
    /// The duration of the leader's lease; the default if there is none.
    pub lease: Option<Duration>,
}

pub struct RecordedRollout {
    pub cluster: FleetCluster,
    pub recorder: Recorder,
    parameters: RolloutParameters,
    /// The generation of the policy; 0 while there is no policy.
    pub generation: i64,
}

impl RecordedRollout {
    /// A cluster with handlers and without controllers.
    pub async fn new(parameters: RolloutParameters) -> Result<Self> {
        let RolloutParameters { nodes, apply, lease, .. } = parameters;
        let mut cluster = FleetCluster::new(FleetOptions { nodes, apply_time: apply }).await?;
        if let Some(lease) = lease {
            cluster.controllers = cluster.controllers.with_lease(lease);
        }
        let recorder = Recorder::start(cluster.enactments.clone()).await?;
        Ok(Self { cluster, recorder, parameters, generation: 0 })
    }

    /// Changes the policy, and retries while the server does not answer.
    pub async fn next_generation(&mut self) -> Result<()> {
        let next = self.generation + 1;
        let spec = self.spec(next);
        let limit = Duration::from_secs(30);
        self.generation = wait::until(limit, &format!("generation {next} to be accepted"), async || {
            self.cluster.apply(POLICY, &spec).await?;
            self.cluster.policies.get(POLICY).await?.metadata.generation.context("no generation")
        })
        .await?;
        ensure!(self.generation == next, "generation {} instead of {next}", self.generation);
        Ok(())
    }

    /// Each generation adds a VLAN of its own, which stays.
    pub fn spec(&self, generation: i64) -> Value {
        let mut spec = super::bond();
        spec["maxUnavailable"] = json!(self.parameters.max_unavailable);
        spec["desiredState"]["interfaces"][1] = json!({
            "name": vlan(generation), "type": "vlan", "state": "up",
            "vlan": {"base-iface": "bond0", "id": 100 + generation},
        });
        spec
    }

    /// How many nodes are done with the current generation.
    pub fn done(&self) -> usize {
        self.recorder.so_far().last().values().filter(|one| is_done(one, self.generation)).count()
    }

    /// Waits until so many nodes are done with the current generation.
    pub async fn until_done(&self, nodes: usize, limit: Duration) -> Result<()> {
        let reached = wait::until(limit, &format!("{nodes} nodes to be done"), async || {
            let done = self.done();
            ensure!(done >= nodes, "{done} of {nodes}");
            Ok(())
        })
        .await;
        if reached.is_err() {
            self.cluster.print_diagnostics().await;
        }
        reached
    }

    /// Waits for this time, or until all nodes are done. Returns whether they are.
    pub async fn is_done_within(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        loop {
            if self.done() == self.parameters.nodes {
                return true;
            }
            if Instant::now() >= end {
                return false;
            }
            let tick = Duration::from_millis(5);
            sleep(tick.min(end.saturating_duration_since(Instant::now()))).await;
        }
    }

    /// Waits until all nodes are done, and the policy is available.
    pub async fn until_available(&self, limit: Duration) -> Result<()> {
        let nodes = self.parameters.nodes;
        self.until_done(nodes, limit).await?;
        let expected = format!("{nodes}/{nodes} nodes successfully configured");
        self.cluster.until_condition(POLICY, ["Available", "SuccessfullyConfigured", &expected]).await
    }

    /// Checks that every node has applied each generation once, and never too many nodes at a time. `retries` is how
    /// often a node may have been changed in addition, because it was interrupted.
    pub async fn check(&self, retries: &BTreeMap<String, u64>) -> Result<RolloutRecording> {
        let recording = self.recorder.caught_up().await?;
        let RolloutParameters { nodes, max_unavailable, .. } = self.parameters;
        let in_progress = recording.max_in_progress();
        let overlap = self.cluster.fleet.concurrent_changes.max();
        println!(
            "{} generations, {} versions of enactments, {} gaps; in progress at once: {in_progress}, being changed \
            at once: {overlap}, allowed: {max_unavailable}",
            self.generation,
            recording.entries.len(),
            recording.gaps,
        );
        ensure!(
            in_progress <= max_unavailable,
            "{in_progress} were permitted at once instead of {max_unavailable}"
        );
        ensure!(
            overlap <= max_unavailable,
            "{overlap} machines were changed at once instead of {max_unavailable}"
        );
        // Otherwise the two checks above prove nothing.
        ensure!(in_progress == max_unavailable && overlap > 1, "the limit was never reached");
        recording.no_permit_was_revoked()?;
        recording.each_was_created_once()?;
        let last = recording.last();
        ensure!(last.len() == nodes, "{} enactments for {nodes} nodes", last.len());
        for one in last.values() {
            ensure!(is_done(one, self.generation), "{} is not done: {:?}", one.name_any(), one.status);
        }
        self.check_machines(retries)?;
        Ok(recording)
    }

    fn check_machines(&self, retries: &BTreeMap<String, u64>) -> Result<()> {
        let once = u64::try_from(self.generation)?;
        for (name, node) in &self.cluster.fleet.nodes {
            let state = node.machine.state();
            for generation in 1..=self.generation {
                let vlan = vlan(generation);
                ensure!(state.interface(&vlan).is_some(), "{name} has no {vlan}");
            }
            let changes = node.machine.checkpoints_made();
            let most = once + retries.get(name).copied().unwrap_or_default();
            ensure!(
                (once..=most).contains(&changes),
                "{name} was changed {changes} times, not {once} to {most}"
            );
        }
        Ok(())
    }
}

/// The VLAN that a generation adds.
pub fn vlan(generation: i64) -> String {
    format!("bond0.{}", 100 + generation)
}
