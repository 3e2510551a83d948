//! The results of orders.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{HandlerFixture, SHORT_LIMIT, message, recording::StatusRecording};
use crate::standalone::{shown, with_address};

#[tokio::test]
async fn an_order_becomes_available_with_three_writes() -> Result<()> {
    let fixture = HandlerFixture::new().await?;
    let _handler = fixture.handler().await?;
    fixture.until_reported("eth0", SHORT_LIMIT).await?;
    let before = fixture.until_quiet().await?;
    let recording = StatusRecording::start(&fixture, "bridge").await?;
    let began = Instant::now();
    let mut desired = with_address();
    desired["routes"] = json!({ "config": [
        { "destination": "198.51.100.0/24", "next-hop-interface": "br1", "next-hop-address": "10.98.0.254" }
    ] });
    fixture.order("bridge", "Apply", &desired, &json!({})).await?;
    let status = fixture.settled("bridge").await?;
    println!("available after {:?}", began.elapsed());
    assert_eq!(shown(&status), "Available SuccessfullyConfigured", "{status}");
    fixture.until_reported("10.98.0.77", SHORT_LIMIT).await?;
    println!("in the node state after {:?}", began.elapsed());

    assert_eq!(status["policyGeneration"], 1);
    assert_eq!(status["desiredState"]["interfaces"][0]["name"], "br1", "{status}");
    assert_eq!(status["features"], json!(["static-route"]), "{status}");
    let probes = status["probes"].as_array().into_iter().flatten();
    let passed: Vec<_> = probes
        .filter(|probe| probe["before"] == "Passed" && probe["after"] == "Passed")
        .filter_map(|probe| probe["name"].as_str())
        .collect();
    assert_eq!(passed, ["api-server", "node-readiness", "default-gateway", "name-servers"], "{status}");
    for step in ["prepare", "baseline", "apply", "probe", "conclude"] {
        let time = &status["timings"][format!("{step}Milliseconds")];
        ensure!(time.is_i64(), "{step}: {status}");
    }
    ensure!(status["timings"]["startTime"].is_string() && status["timings"]["completionTime"].is_string());

    let writes = fixture.until_quiet().await? - before;
    assert_eq!(conditions_in(&recording), ["", "Available SuccessfullyConfigured"]);
    ensure!(writes <= 3, "{writes} writes: two of the enactment and one of the node state are enough");
    Ok(())
}

/// The conditions of the order over time, without Progressing: that is reported only if the change takes long.
fn conditions_in(recording: &StatusRecording) -> Vec<String> {
    let mut conditions: Vec<String> = recording.statuses().iter().map(shown).collect();
    conditions.dedup();
    conditions.retain(|condition| condition != "Progressing ConfigurationProgressing");
    conditions
}

#[tokio::test]
async fn an_order_waits_for_its_permit() -> Result<()> {
    let fixture = HandlerFixture::new().await?;
    let _handler = fixture.handler().await?;
    let before = fixture.node.snapshot().await?;
    let recording = StatusRecording::start(&fixture, "bridge").await?;
    fixture.order("bridge", "Wait", &with_address(), &json!({})).await?;
    rig::wait::until(SHORT_LIMIT, "the order to be pending", async || {
        let status = fixture.status("bridge").await?;
        ensure!(shown(&status) == "Pending MaxUnavailableLimitReached", "{status}");
        Ok(())
    })
    .await?;
    fixture.until_quiet().await?;
    assert_eq!(fixture.node.snapshot().await?, before, "it did not wait");
    fixture.apply_bridge().await?;
    let conditions = conditions_in(&recording);
    let expected = ["", "Pending MaxUnavailableLimitReached", "Available SuccessfullyConfigured"];
    assert_eq!(conditions, expected);
    Ok(())
}

#[tokio::test]
async fn a_policy_that_leads_away_from_the_api_server_is_rolled_back() -> Result<()> {
    // The routing table has a route to the API server, but the next hop does not answer.
    let routes = json!({ "config": [
        { "destination": "0.0.0.0/0", "next-hop-interface": "eth0", "state": "absent" },
        { "destination": "0.0.0.0/0", "next-hop-interface": "eth0", "next-hop-address": "10.55.0.254" }
    ] });
    let expected = ["probe \"decisive\"", "https://10.99.0.1:6443", "no answer within 5 s"];
    rolled_back(&other_network(&routes), &only("ApiServer", "5s"), &expected).await.map(drop)
}

#[tokio::test]
async fn a_policy_that_leaves_no_route_to_the_api_server_is_rolled_back_at_once() -> Result<()> {
    let routes = json!({ "config": [
        { "destination": "0.0.0.0/0", "next-hop-interface": "eth0", "state": "absent" }
    ] });
    let expected =
        ["probe \"decisive\"", "https://10.99.0.1:6443", "s after the change", "no route to the address"];
    let took = rolled_back(&other_network(&routes), &only("ApiServer", "100s"), &expected).await?;
    ensure!(took < Duration::from_secs(15), "it took {took:?}");
    Ok(())
}

#[tokio::test]
async fn a_change_is_rolled_back_on_a_node_that_is_not_ready() -> Result<()> {
    let fixture = HandlerFixture::new().await?;
    fixture.api.set_node_ready(super::NODE, false).await?;
    let expected = ["probe \"decisive\"", "not ready within 5 s", "set by the test"];
    fixture.rolled_back(&with_address(), &only("NodeReadiness", "5s"), &expected).await.map(drop)
}

async fn rolled_back(desired: &Value, rest: &Value, expected: &[&str]) -> Result<Duration> {
    HandlerFixture::new().await?.rolled_back(desired, rest, expected).await
}

impl HandlerFixture {
    /// Writes the order, and checks that it is rolled back with a message that has all these texts. Returns the time
    /// from the order to the result in the cluster.
    async fn rolled_back(&self, desired: &Value, rest: &Value, expected: &[&str]) -> Result<Duration> {
        let setup = self.setup.clone().env("NNCP_MAX_RETRIES", "1");
        let mut handler = setup.start(&self.node)?;
        handler.until_ready().await?;
        let before = self.node.snapshot().await?;
        let began = Instant::now();
        self.order("p", "Apply", desired, rest).await?;
        let status = self.settled("p").await?;
        let took = began.elapsed();
        assert_eq!(shown(&status), "Failing FailedToConfigure", "{status}");
        let message = message(&status);
        println!("after {took:?}: {message}");
        for text in expected.iter().chain(&["rolled back: the network is as it was before"]) {
            ensure!(message.contains(text), "{text:?} is not in: {message}");
        }
        let probes = status["probes"].as_array().into_iter().flatten();
        let failed: Vec<_> = probes.filter(|probe| probe["after"] == "Failed").collect();
        ensure!(failed.len() == 1 && failed[0]["name"] == "decisive", "{status}");
        self.node.wait_until_restored(&before, SHORT_LIMIT).await?;
        Ok(took)
    }
}

/// Moves the node to another network.
fn other_network(routes: &Value) -> Value {
    json!({
        "interfaces": [{ "name": "eth0", "type": "ethernet", "state": "up", "ipv4": {
            "enabled": true, "dhcp": false, "address": [{ "ip": "10.55.0.11", "prefix-length": 24 }] } }],
        "routes": routes,
    })
}

/// Enables only this built-in probe, with this timeout.
fn only(probe: &str, timeout: &str) -> Value {
    let all = ["ApiServer", "NodeReadiness", "DefaultGateway", "NameServers"];
    let others = all
        .into_iter()
        .filter(|other| *other != probe)
        .map(|other| json!({ "name": other.to_lowercase(), "builtIn": other, "policy": "Disabled" }));
    let decisive = json!({ "name": "decisive", "builtIn": probe, "timeout": timeout });
    json!({ "probes": others.chain([decisive]).collect::<Vec<_>>() })
}
