//! What becomes of an order.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{SOON, Trial, message, recording::Recording};
use crate::standalone::{shown, with_address};

#[tokio::test]
async fn an_order_becomes_available_with_three_writes() -> Result<()> {
    let trial = Trial::new().await?;
    let _handler = trial.handler().await?;
    trial.shows("eth0", SOON).await?;
    let before = trial.quiet().await?;
    let recording = Recording::start(&trial, "bridge").await?;
    let began = Instant::now();
    let mut desired = with_address();
    desired["routes"] = json!({ "config": [
        { "destination": "198.51.100.0/24", "next-hop-interface": "br1", "next-hop-address": "10.98.0.254" }
    ] });
    trial.order("bridge", "Apply", &desired, &json!({})).await?;
    let status = trial.settled("bridge").await?;
    println!("available after {:?}", began.elapsed());
    assert_eq!(shown(&status), "Available SuccessfullyConfigured", "{status}");
    trial.shows("10.98.0.77", SOON).await?;
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

    let writes = trial.quiet().await? - before;
    assert_eq!(said_in(&recording), ["", "Available SuccessfullyConfigured"]);
    ensure!(writes <= 3, "{writes} writes: two of the enactment and one of the node state are enough");
    Ok(())
}

/// What was said of the order. That it is being carried out is said only when that takes long, as on a busy machine.
fn said_in(recording: &Recording) -> Vec<String> {
    let mut said: Vec<String> = recording.statuses().iter().map(shown).collect();
    said.dedup();
    said.retain(|said| said != "Progressing ConfigurationProgressing");
    said
}

#[tokio::test]
async fn an_order_waits_for_its_turn() -> Result<()> {
    let trial = Trial::new().await?;
    let _handler = trial.handler().await?;
    let before = trial.node.snapshot().await?;
    let recording = Recording::start(&trial, "bridge").await?;
    trial.order("bridge", "Wait", &with_address(), &json!({})).await?;
    rig::wait::until(SOON, "the order to be pending", async || {
        let status = trial.status("bridge").await?;
        ensure!(shown(&status) == "Pending MaxUnavailableLimitReached", "{status}");
        Ok(())
    })
    .await?;
    trial.quiet().await?;
    assert_eq!(trial.node.snapshot().await?, before, "it did not wait");
    trial.bridge().await?;
    let said = said_in(&recording);
    let expected = ["", "Pending MaxUnavailableLimitReached", "Available SuccessfullyConfigured"];
    assert_eq!(said, expected);
    Ok(())
}

#[tokio::test]
async fn a_policy_that_leads_away_from_the_api_server_is_rolled_back() -> Result<()> {
    // The way to the API server is there by the routing table, but nobody answers.
    let routes = json!({ "config": [
        { "destination": "0.0.0.0/0", "next-hop-interface": "eth0", "state": "absent" },
        { "destination": "0.0.0.0/0", "next-hop-interface": "eth0", "next-hop-address": "10.55.0.254" }
    ] });
    let said = ["probe \"way-home\"", "https://10.99.0.1:6443", "no answer within 5 s"];
    rolled_back(&elsewhere(&routes), &only("ApiServer", "5s"), &said).await.map(drop)
}

#[tokio::test]
async fn a_policy_that_leaves_no_route_to_the_api_server_is_rolled_back_at_once() -> Result<()> {
    let routes = json!({ "config": [
        { "destination": "0.0.0.0/0", "next-hop-interface": "eth0", "state": "absent" }
    ] });
    let said = ["probe \"way-home\"", "https://10.99.0.1:6443", "s after the change", "no route leads there"];
    let took = rolled_back(&elsewhere(&routes), &only("ApiServer", "100s"), &said).await?;
    ensure!(took < Duration::from_secs(15), "it took {took:?}");
    Ok(())
}

#[tokio::test]
async fn a_node_that_is_not_ready_keeps_no_change() -> Result<()> {
    let trial = Trial::new().await?;
    trial.api.set_node_ready(super::NODE, false).await?;
    let said = ["probe \"way-home\"", "not ready within 5 s", "the test says so"];
    trial.rolled_back(&with_address(), &only("NodeReadiness", "5s"), &said).await.map(drop)
}

async fn rolled_back(desired: &Value, rest: &Value, said: &[&str]) -> Result<Duration> {
    Trial::new().await?.rolled_back(desired, rest, said).await
}

impl Trial {
    /// Gives the order, and sees to it that everything is as before, with a reason that says all this; how long that
    /// took, from the order to the report in the cluster.
    async fn rolled_back(&self, desired: &Value, rest: &Value, said: &[&str]) -> Result<Duration> {
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
        for words in said.iter().chain(&["rolled back: the network is as it was before"]) {
            ensure!(message.contains(words), "{words:?} is not said: {message}");
        }
        let probes = status["probes"].as_array().into_iter().flatten();
        let failed: Vec<_> = probes.filter(|probe| probe["after"] == "Failed").collect();
        ensure!(failed.len() == 1 && failed[0]["name"] == "way-home", "{status}");
        self.node.is_again(&before, SOON).await?;
        Ok(took)
    }
}

/// Away from the network that the node is in.
fn elsewhere(routes: &Value) -> Value {
    json!({
        "interfaces": [{ "name": "eth0", "type": "ethernet", "state": "up", "ipv4": {
            "enabled": true, "dhcp": false, "address": [{ "ip": "10.55.0.11", "prefix-length": 24 }] } }],
        "routes": routes,
    })
}

/// One built-in probe decides alone, within this time.
fn only(probe: &str, timeout: &str) -> Value {
    let all = ["ApiServer", "NodeReadiness", "DefaultGateway", "NameServers"];
    let others = all
        .into_iter()
        .filter(|other| *other != probe)
        .map(|other| json!({ "name": other.to_lowercase(), "builtIn": other, "policy": "Disabled" }));
    let decisive = json!({ "name": "way-home", "builtIn": probe, "timeout": timeout });
    json!({ "probes": others.chain([decisive]).collect::<Vec<_>>() })
}
