//! A cluster that was kubernetes-nmstate's: what it has done is taken over as it is, what it has left undone is done,
//! and what it has left behind is cleared away.

mod legacy;

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::{ResourceExt as _, api::ListParams};
use rig::{NmNode, Settings, binaries, process::Invocation, wait};
use serde_json::{Value, json};
use tokio::time::Instant;

use self::legacy::{LONG_AGO, Stage};
use super::{AVAILABLE, Cluster, LIMIT, recording::Recording};

/// As long as this after the last write, nothing follows from it any more.
const QUIET: Duration = Duration::from_secs(3);
const NODES: [&str; 3] = ["node1", "node2", "node3"];

#[tokio::test(flavor = "multi_thread")]
async fn what_kubernetes_nmstate_has_left_is_adopted_without_applying_it_again() -> Result<()> {
    let cluster = Cluster::new(3, |_, node| node).await?;
    leave_behind(&cluster).await?;
    let installed = cluster.install(&Settings::default()).await?;
    // Everything of the second node is as ordered. The others have work to do, but not on this bridge.
    let untouched = &cluster.nodes[1];
    let monitor = untouched.monitor(&cluster.lab.folder().join("monitor.log")).await?;
    let all_profiles = profiles(untouched, "*").await?;
    let mut of_bridge = Vec::new();
    for node in &cluster.nodes {
        of_bridge.push(profiles(node, "br1* eth1*").await?);
    }
    let (policies, enactments) =
        (Recording::start(&cluster.policies).await?, Recording::start(&cluster.enactments).await?);

    let _controllers = [installed.controllers.start("first")?, installed.controllers.start("second")?];
    let _handlers = cluster.handlers(&installed).await?;
    for policy in ["halfway", "failed"] {
        cluster.until_says(policy, AVAILABLE).await?;
    }
    is_cleared_away(&cluster).await?;
    quiet(&cluster).await?;

    assert_eq!(monitor.heard(), "", "the kernel of the second node was told something");
    assert_eq!(profiles(untouched, "*").await?, all_profiles);
    assert_eq!(checkpoints(&cluster, untouched)?, 1, "one was made when it was prepared");
    for (node, before) in cluster.nodes.iter().zip(&of_bridge) {
        assert_eq!(profiles(node, "br1* eth1*").await?, *before, "{}", node.name());
        ensure!(node.snapshot().await?.mentions("br3"), "{} was to get what it lacked", node.name());
    }

    for seen in policies.seen().iter().filter(|policy| policy.name_any() == "bridge") {
        let condition = seen.status.conditions.first_true().context("it says nothing")?;
        let since = condition.last_transition_time.as_ref().map(|time| time.0.to_string());
        assert_eq!(condition.type_, "Available", "it flaps");
        assert_eq!(since.as_deref(), Some(LONG_AGO), "it flaps");
    }
    let of_nodes = NODES.map(|node| format!("{node}.bridge"));
    for seen in enactments.seen().iter().filter(|one| of_nodes.contains(&one.name_any())) {
        let status = serde_json::to_value(&seen.status)?;
        ensure!(seen.status.conditions.is_true("Available"), "{status}");
        ensure!(status["capturedStates"] == captured(), "{status}");
    }
    ensure!(cluster.events_of("bridge").await?.is_empty(), "nothing has happened to it");
    Ok(())
}

/// What nmstate was told on all nodes, on some, and what was said of it.
async fn leave_behind(cluster: &Cluster) -> Result<()> {
    let program = binaries::apply_state().await?.display().to_string();
    for (node, bridges) in cluster.nodes.iter().zip([&[][..], &["br2", "br3"], &[]]) {
        let mut interfaces = vec![bridge("br1", &json!(1400), &json!([{"name": "eth1"}]))];
        interfaces.extend(bridges.iter().map(|name| bridge(name, &json!(1500), &json!([]))));
        let document = json!({"interfaces": interfaces}).to_string();
        node.exec_with(Invocation::new([&program]).stdin(document), LIMIT).await?.success()?;
        node.end_checks_for_duplicates().await?;
    }

    let (t, f, u) = ("True", "False", "Unknown");
    let spec = json!({
        "capture": {"card": "interfaces.name==\"eth1\""},
        "desiredState": {"interfaces": [bridge(
            "br1",
            &json!("{{ capture.card.interfaces.0.mtu }}"),
            &json!([{"name": "{{ capture.card.interfaces.0.name }}"}]),
        )]},
    });
    let said = ([t, f, f, f], "SuccessfullyConfigured", AVAILABLE[2]);
    // From a version that counted in another way.
    let counters = json!({"unavailableNodeCount": 0, "lastUnavailableNodeCountUpdate": LONG_AGO});
    legacy::policy(cluster, "bridge", &spec, said, &counters).await?;
    let done = json!({"capturedStates": captured(), "features": [],
        "desiredState": {"interfaces": [bridge("br1", &json!(1400), &json!([{"name": "eth1"}]))]}});
    for node in NODES {
        legacy::enactment(cluster, node, "bridge", Stage::Available, &done).await?;
        legacy::node_state(cluster, node).await?;
    }

    let of = |name: &str| json!({"desiredState": {"interfaces": [bridge(name, &json!(1500), &json!([]))]}});
    let said = ([u, u, t, f], "ConfigurationProgressing", "Policy is progressing 1/3 nodes finished");
    let counters = json!({"unavailableNodeCountMap": {"1": 1, "2": 2}});
    legacy::policy(cluster, "halfway", &of("br2"), said, &counters).await?;
    for (node, stage) in NODES.into_iter().zip([Stage::Progressing, Stage::Available, Stage::Pending]) {
        legacy::enactment(cluster, node, "halfway", stage, &of("br2")).await?;
    }

    let message = "1/3 nodes failed to configure, 1 nodes aborted configuration";
    let said = ([f, t, f, f], "FailedToConfigure", message);
    let counters = json!({"unavailableNodeCountMap": {"2": 1}, "unavailableNodeCount": 1});
    legacy::policy(cluster, "failed", &of("br3"), said, &counters).await?;
    for (node, stage) in NODES.into_iter().zip([Stage::Failed, Stage::Available, Stage::Aborted]) {
        let mut status = of("br3");
        if matches!(stage, Stage::Failed) {
            status["retryCount"] = json!({"2": 5});
        }
        legacy::enactment(cluster, node, "failed", stage, &status).await?;
    }

    // Their policy, or their node, is gone.
    for (node, policy) in [("node1", "gone"), ("node2", "gone"), ("node9", "bridge")] {
        legacy::enactment(cluster, node, policy, Stage::Available, &json!({})).await?;
    }
    Ok(())
}

fn bridge(name: &str, mtu: &Value, ports: &Value) -> Value {
    json!({"name": name, "type": "linux-bridge", "state": "up", "mtu": mtu,
        "bridge": {"options": {"stp": {"enabled": false}}, "port": ports}})
}

/// What the card was like before there was a bridge; it is not so any more.
fn captured() -> Value {
    json!({"card": {
        "state": {"interfaces": [{"name": "eth1", "type": "ethernet", "state": "up", "mtu": 1400}]},
        "metaInfo": {"version": "2", "time": LONG_AGO},
    }})
}

async fn is_cleared_away(cluster: &Cluster) -> Result<()> {
    wait::until(LIMIT, "what is of no use any more to be gone", async || {
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

/// Waits until the handlers have had nothing to write for a while.
async fn quiet(cluster: &Cluster) -> Result<()> {
    let mut known = (0, Instant::now());
    wait::until(LIMIT, "the handlers to be quiet", async || {
        let writes = cluster.api.writes_of_handlers().await?;
        if writes != known.0 {
            known = (writes, Instant::now());
        }
        ensure!(known.1.elapsed() >= QUIET, "{writes} writes");
        Ok(())
    })
    .await
}

/// Profiles of NetworkManager: what they say, and since when.
async fn profiles(node: &NmNode, names: &str) -> Result<String> {
    let script = format!(
        "cd /etc/NetworkManager/system-connections && for file in $(ls {names} 2>/dev/null); do \
         stat --format='%n %i %y' $file; sha256sum $file; done"
    );
    let found = node.exec(["sh", "-c", &script]).await?.success()?;
    ensure!(found.contains("br1"), "there are none: {found}");
    Ok(found)
}

/// How many checkpoints NetworkManager has made so far.
fn checkpoints(cluster: &Cluster, node: &NmNode) -> Result<usize> {
    let log = cluster.lab.folder().join(node.name()).join("NetworkManager.log");
    Ok(std::fs::read_to_string(log)?.matches("op=\"checkpoint-create\"").count())
}
