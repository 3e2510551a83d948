//! A node that cannot apply a policy, the effect on the other nodes, and the recovery.

use anyhow::{Result, ensure};
use knmstate_api::Permit;
use kube::ResourceExt as _;
use rig::{Settings, wait};
use serde_json::{Value, json};

use super::{AVAILABLE, Cluster, LIMIT, mtu, nic, policy, recording::WatchRecording};

const FAILED: [&str; 2] = ["Degraded", "FailedToConfigure"];

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_node_stops_the_rollout_and_a_corrected_policy_resumes_it() -> Result<()> {
    // The first one has only one NIC on the back segment.
    let cluster = Cluster::new(3, |number, node| node.nics(if number == 1 { 1 } else { 2 })).await?;
    let installed = cluster.install(&Settings::default()).await?;
    let _controllers = [installed.controllers.start("first")?, installed.controllers.start("second")?];
    let _handlers = cluster.handlers(&installed).await?;

    waiting_nodes_abort(&cluster).await?;
    with_a_slot_left_the_others_go_on(&cluster).await?;
    a_corrected_policy_recovers(&cluster).await?;
    an_edit_in_progress_needs_the_annotation(&cluster).await?;

    let events = cluster.events_of("jumbo").await?;
    assert_eq!(
        events.iter().filter(|event| event[0] == "Normal").count(),
        1,
        "it was reported more than once: {events:#?}"
    );
    Ok(())
}

async fn waiting_nodes_abort(cluster: &Cluster) -> Result<()> {
    let spec = json!({"maxUnavailable": 1, "desiredState": nic("eth2", 1400)});
    cluster.apply(&policy("jumbo", &spec)).await?;
    let message = "1/3 nodes failed to configure, 2 nodes aborted configuration";
    cluster.until_condition("jumbo", [FAILED[0], FAILED[1], message]).await?;
    until_slots(cluster, &json!({"1": 1})).await?;

    wait::until(LIMIT, "all enactments to be failed or aborted", async || {
        let enactments = cluster.enactments_of("jumbo").await?;
        ensure!(enactments["node1.jumbo"][..2] == ["Failing", "FailedToConfigure"], "{enactments:?}");
        for node in ["node2", "node3"] {
            let message = format!("reconciliation of enactment \"{node}.jumbo\" has aborted");
            let expected = ["Aborted", "ConfigurationAborted", &message];
            ensure!(enactments[&format!("{node}.jumbo")] == expected, "{enactments:?}");
        }
        Ok(())
    })
    .await?;
    for node in &cluster.nodes[1..] {
        assert_eq!(mtu(node, "eth2").await?, 1500, "{} was changed", node.name());
    }
    let warning = |node: &str, what: &str| {
        let message = format!("reconciliation of enactment \"{node}.jumbo\" has {what}");
        ["Warning", "ReconcileFailed", &*format!("{node}.nmstate-handler"), &*message].map(str::to_owned)
    };
    let expected = [
        warning("node1", "failed after 1 retries"),
        warning("node2", "aborted"),
        warning("node3", "aborted"),
    ];
    until_events(cluster, &expected).await?;
    // Users look for them there.
    let described = cluster.api.kubectl(["describe", "nncp", "jumbo"]).await?.success()?;
    ensure!(described.contains("ReconcileFailed"), "{described}");
    Ok(())
}

async fn with_a_slot_left_the_others_go_on(cluster: &Cluster) -> Result<()> {
    let recording = WatchRecording::start(&cluster.enactments).await?;
    let spec = json!({"maxUnavailable": 2, "desiredState": nic("eth2", 1400)});
    cluster.apply(&policy("jumbo", &spec)).await?;
    wait::until(LIMIT, "the other nodes to finish", async || {
        let enactments = cluster.enactments_of("jumbo").await?;
        for (node, expected) in [("node1", "Failing"), ("node2", "Available"), ("node3", "Available")] {
            ensure!(enactments[&format!("{node}.jumbo")][0] == expected, "{enactments:?}");
        }
        Ok(())
    })
    .await?;
    cluster.until_condition("jumbo", [FAILED[0], FAILED[1], "1/3 nodes failed to configure"]).await?;
    until_slots(cluster, &json!({"2": 1})).await?;
    for node in &cluster.nodes[1..] {
        assert_eq!(mtu(node, "eth2").await?, 1400, "{}", node.name());
    }
    // The third one had to wait for the slot of the second.
    let seen = recording.seen().into_iter().filter(|one| one.name_any() == "node3.jumbo");
    let permits: Vec<Permit> = seen.filter_map(|one| Some(one.spec?.permit)).collect();
    let waited = permits.iter().take_while(|permit| **permit == Permit::Wait).count();
    ensure!(waited > 0 && permits[waited..].iter().all(|permit| *permit == Permit::Apply), "{permits:?}");
    Ok(())
}

async fn a_corrected_policy_recovers(cluster: &Cluster) -> Result<()> {
    let spec = json!({"maxUnavailable": 2, "desiredState": nic("eth1", 1400)});
    cluster.apply(&policy("jumbo", &spec)).await?;
    cluster.until_condition("jumbo", AVAILABLE).await?;
    until_slots(cluster, &json!(null)).await?;
    for node in &cluster.nodes {
        assert_eq!(mtu(node, "eth1").await?, 1400, "{}", node.name());
    }
    let success = ["Normal", "SuccessfullyConfigured", "nmstate-controller", AVAILABLE[2]].map(str::to_owned);
    until_events(cluster, &[success]).await
}

async fn an_edit_in_progress_needs_the_annotation(cluster: &Cluster) -> Result<()> {
    let recording = WatchRecording::start(&cluster.enactments).await?;
    // The probe keeps the change open until the test listens on this port.
    let probes = json!([{"name": "web", "timeout": "60s", "tcp": {"host": "10.99.0.1", "port": 8082}}]);
    let slow = policy("slow", &json!({"desiredState": bridge(1300), "probes": probes}));
    cluster.apply(&slow).await?;
    wait::until(LIMIT, "half of the nodes to be progressing", async || {
        let enactments = cluster.enactments_of("slow").await?;
        for (node, expected) in [("node1", "Progressing"), ("node2", "Progressing"), ("node3", "Pending")] {
            let shown = enactments.get(&format!("{node}.slow")).map(|condition| &*condition[0]);
            ensure!(shown == Some(expected), "{enactments:?}");
        }
        Ok(())
    })
    .await?;
    let progress = "Policy is progressing 0/3 nodes finished";
    cluster.until_condition("slow", ["Progressing", "ConfigurationProgressing", progress]).await?;

    let mut better = policy("slow", &json!({"desiredState": bridge(1200)}));
    let refusal = cluster.api.kubectl_with(&better.to_string(), ["apply", "-f", "-"]).await?;
    ensure!(refusal.stderr().contains("policy slow is still in progress"), "{}", refusal.stderr());
    better["metadata"]["annotations"] = json!({"nmstate.io/allow-update-in-progress": "true"});
    cluster.apply(&better).await?;
    let _web = cluster.lab.network().listen("10.99.0.1:8082".parse()?).await?;

    cluster.until_condition("slow", AVAILABLE).await?;
    for node in &cluster.nodes {
        assert_eq!(mtu(node, "br9").await?, 1200, "{}", node.name());
    }
    let outdated =
        recording.seen().into_iter().filter(|one| one.name_any() == "node3.slow").any(|one| {
            one.spec.is_some_and(|spec| spec.policy_generation == 1 && spec.permit == Permit::Apply)
        });
    ensure!(!outdated, "a node that waited got a permit for the old generation");
    Ok(())
}

/// A bridge with this MTU.
fn bridge(mtu: u32) -> Value {
    json!({"interfaces": [
        {"name": "br9", "type": "linux-bridge", "state": "up", "mtu": mtu, "bridge": {"port": []}}]})
}

async fn until_slots(cluster: &Cluster, expected: &Value) -> Result<()> {
    wait::until(LIMIT, "the slots in use", async || {
        let status = serde_json::to_value(cluster.policies.get("jumbo").await?.status)?;
        ensure!(status["unavailableNodeCountMap"] == *expected, "{status}");
        Ok(())
    })
    .await
}

/// Waits until each of these is among the events of the policy.
async fn until_events(cluster: &Cluster, expected: &[[String; 4]]) -> Result<()> {
    wait::until(LIMIT, "the events to appear", async || {
        let events = cluster.events_of("jumbo").await?;
        ensure!(expected.iter().all(|expected| events.contains(expected)), "{events:#?}");
        Ok(())
    })
    .await
}
