//! A cluster that kubernetes-nmstate ran on: applied policies are adopted without changes, unfinished ones are
//! finished, and objects and fields that are not used any more are removed.

mod kubernetes_nmstate;

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::{ResourceExt as _, api::ListParams};
use rig::{NmNode, Settings, binaries, process::Invocation, wait};
use serde_json::{Value, json};
use tokio::time::Instant;

use self::kubernetes_nmstate::{EnactmentPhase, OLD_TIME};
use super::{AVAILABLE, Cluster, LIMIT, recording::WatchRecording};

/// How long after the last write no other write can follow from it.
const QUIET_TIME: Duration = Duration::from_secs(3);
const NODES: [&str; 3] = ["node1", "node2", "node3"];

#[tokio::test(flavor = "multi_thread")]
async fn objects_of_kubernetes_nmstate_are_adopted_without_applying_them_again() -> Result<()> {
    let cluster = Cluster::new(3, |_, node| node).await?;
    create_legacy_objects(&cluster).await?;
    let installed = cluster.install(&Settings::default()).await?;
    // The second node has everything applied. The others have changes to make, but not to this bridge.
    let untouched = &cluster.nodes[1];
    let monitor = untouched.monitor(&cluster.lab.directory().join("monitor.log")).await?;
    let all_profiles = profiles(untouched, "*").await?;
    let mut of_bridge = Vec::new();
    for node in &cluster.nodes {
        of_bridge.push(profiles(node, "br1* eth1*").await?);
    }
    let (policies, enactments) =
        (WatchRecording::start(&cluster.policies).await?, WatchRecording::start(&cluster.enactments).await?);

    let _controllers = [installed.controllers.start("first")?, installed.controllers.start("second")?];
    let _handlers = cluster.handlers(&installed).await?;
    for policy in ["halfway", "failed"] {
        cluster.until_condition(policy, AVAILABLE).await?;
    }
    wait_until_cleaned_up(&cluster).await?;
    wait_until_quiet(&cluster).await?;

    assert_eq!(monitor.messages(), "", "the network of the second node was changed");
    assert_eq!(profiles(untouched, "*").await?, all_profiles);
    assert_eq!(checkpoints(&cluster, untouched)?, 1, "there is only the one of the preparation");
    for (node, before) in cluster.nodes.iter().zip(&of_bridge) {
        assert_eq!(profiles(node, "br1* eth1*").await?, *before, "{}", node.name());
        ensure!(
            node.snapshot().await?.mentions("br3"),
            "{} did not get the bridge that it lacked",
            node.name()
        );
    }

    for seen in policies.seen().iter().filter(|policy| policy.name_any() == "bridge") {
        let condition = seen.status.conditions.first_true().context("it has no condition")?;
        let since = condition.last_transition_time.as_ref().map(|time| time.0.to_string());
        assert_eq!(condition.type_, "Available", "it flaps");
        assert_eq!(since.as_deref(), Some(OLD_TIME), "it flaps");
    }
    let of_nodes = NODES.map(|node| format!("{node}.bridge"));
    for seen in enactments.seen().iter().filter(|one| of_nodes.contains(&one.name_any())) {
        let status = serde_json::to_value(&seen.status)?;
        ensure!(seen.status.conditions.is_true("Available"), "{status}");
        ensure!(status["capturedStates"] == captured(), "{status}");
    }
    ensure!(cluster.events_of("bridge").await?.is_empty(), "there are events of an unchanged policy");
    Ok(())
}

/// Applies bridges to all nodes and to some, and creates the objects that kubernetes-nmstate would have for them.
async fn create_legacy_objects(cluster: &Cluster) -> Result<()> {
    let program = binaries::apply_state().await?.display().to_string();
    for (node, bridges) in cluster.nodes.iter().zip([&[][..], &["br2", "br3"], &[]]) {
        let mut interfaces = vec![bridge("br1", &json!(1400), &json!([{"name": "eth1"}]))];
        interfaces.extend(bridges.iter().map(|name| bridge(name, &json!(1500), &json!([]))));
        let document = json!({"interfaces": interfaces}).to_string();
        node.exec_with(Invocation::new([&program]).stdin(document), LIMIT).await?.success()?;
        node.wait_for_duplicate_address_detection().await?;
    }

    let (t, f, u) = ("True", "False", "Unknown");
    let spec = json!({
        "capture": {"nic": "interfaces.name==\"eth1\""},
        "desiredState": {"interfaces": [bridge(
            "br1",
            &json!("{{ capture.nic.interfaces.0.mtu }}"),
            &json!([{"name": "{{ capture.nic.interfaces.0.name }}"}]),
        )]},
    });
    let conditions = ([t, f, f, f], "SuccessfullyConfigured", AVAILABLE[2]);
    // The counters of an older version.
    let counters = json!({"unavailableNodeCount": 0, "lastUnavailableNodeCountUpdate": OLD_TIME});
    kubernetes_nmstate::policy(cluster, "bridge", &spec, conditions, &counters).await?;
    let done = json!({"capturedStates": captured(), "features": [],
        "desiredState": {"interfaces": [bridge("br1", &json!(1400), &json!([{"name": "eth1"}]))]}});
    for node in NODES {
        kubernetes_nmstate::enactment(cluster, node, "bridge", EnactmentPhase::Available, &done).await?;
        kubernetes_nmstate::node_state(cluster, node).await?;
    }

    let of = |name: &str| json!({"desiredState": {"interfaces": [bridge(name, &json!(1500), &json!([]))]}});
    let conditions = ([u, u, t, f], "ConfigurationProgressing", "Policy is progressing 1/3 nodes finished");
    let counters = json!({"unavailableNodeCountMap": {"1": 1, "2": 2}});
    kubernetes_nmstate::policy(cluster, "halfway", &of("br2"), conditions, &counters).await?;
    for (node, phase) in NODES.into_iter().zip([
        EnactmentPhase::Progressing,
        EnactmentPhase::Available,
        EnactmentPhase::Pending,
    ]) {
        kubernetes_nmstate::enactment(cluster, node, "halfway", phase, &of("br2")).await?;
    }

    let message = "1/3 nodes failed to configure, 1 nodes aborted configuration";
    let conditions = ([f, t, f, f], "FailedToConfigure", message);
    let counters = json!({"unavailableNodeCountMap": {"2": 1}, "unavailableNodeCount": 1});
    kubernetes_nmstate::policy(cluster, "failed", &of("br3"), conditions, &counters).await?;
    for (node, phase) in
        NODES.into_iter().zip([EnactmentPhase::Failed, EnactmentPhase::Available, EnactmentPhase::Aborted])
    {
        let mut status = of("br3");
        if matches!(phase, EnactmentPhase::Failed) {
            status["retryCount"] = json!({"2": 5});
        }
        kubernetes_nmstate::enactment(cluster, node, "failed", phase, &status).await?;
    }

    // Their policy or their node was deleted.
    for (node, policy) in [("node1", "gone"), ("node2", "gone"), ("node9", "bridge")] {
        kubernetes_nmstate::enactment(cluster, node, policy, EnactmentPhase::Available, &json!({})).await?;
    }
    Ok(())
}

fn bridge(name: &str, mtu: &Value, ports: &Value) -> Value {
    json!({"name": name, "type": "linux-bridge", "state": "up", "mtu": mtu,
        "bridge": {"options": {"stp": {"enabled": false}}, "port": ports}})
}

/// The NIC as it was captured before the bridge existed; it has changed since.
fn captured() -> Value {
    json!({"nic": {
        "state": {"interfaces": [{"name": "eth1", "type": "ethernet", "state": "up", "mtu": 1400}]},
        "metaInfo": {"version": "2", "time": OLD_TIME},
    }})
}

async fn wait_until_cleaned_up(cluster: &Cluster) -> Result<()> {
    wait::until(LIMIT, "unused objects and fields to be removed", async || {
        let all = cluster.enactments.list(&ListParams::default()).await?;
        let mut names: Vec<String> = all.iter().map(kube::ResourceExt::name_any).collect();
        names.sort();
        let expected =
            NODES.map(|node| ["bridge", "failed", "halfway"].map(|policy| format!("{node}.{policy}")));
        ensure!(names == expected.concat(), "{names:?}");
        for one in &all {
            ensure!(one.status.retry_count.is_empty() && one.spec.is_some(), "{one:?}");
        }
        for policy in &cluster.policies.list(&ListParams::default()).await? {
            let status = serde_json::to_value(&policy.status)?;
            let keys: Vec<_> = status.as_object().context("a status")?.keys().collect();
            ensure!(keys == ["conditions"], "{status}");
        }
        for node in NODES {
            let state = cluster.states.get(node).await?;
            let (spec, shown) = (serde_json::to_value(&state.spec)?, serde_json::to_string(&state.status)?);
            ensure!(spec == json!({"nodeName": node, "managed": false}), "{spec}");
            ensure!(shown.contains("br3"), "{shown}");
        }
        Ok(())
    })
    .await
}

/// Waits until the handlers have not written anything for a while.
async fn wait_until_quiet(cluster: &Cluster) -> Result<()> {
    let mut known = (0, Instant::now());
    wait::until(LIMIT, "the handlers to stop writing", async || {
        let writes = cluster.api.writes_of_handlers().await?;
        if writes != known.0 {
            known = (writes, Instant::now());
        }
        ensure!(known.1.elapsed() >= QUIET_TIME, "{writes} writes");
        Ok(())
    })
    .await
}

/// The profiles of NetworkManager: inode, time and checksum of each.
async fn profiles(node: &NmNode, names: &str) -> Result<String> {
    let script = format!(
        "cd /etc/NetworkManager/system-connections && for file in $(ls {names} 2>/dev/null); do \
         stat --format='%n %i %y' $file; sha256sum $file; done"
    );
    let found = node.exec(["sh", "-c", &script]).await?.success()?;
    ensure!(found.contains("br1"), "there are no profiles: {found}");
    Ok(found)
}

/// How many checkpoints NetworkManager has created until now.
fn checkpoints(cluster: &Cluster, node: &NmNode) -> Result<usize> {
    let log = cluster.lab.directory().join(node.name()).join("NetworkManager.log");
    Ok(std::fs::read_to_string(log)?.matches("op=\"checkpoint-create\"").count())
}
