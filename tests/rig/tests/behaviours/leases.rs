//! Dynamic addresses, on real NetworkManagers and with real servers: waited for, missing, renewed.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use knmstate_api::{
    NodeNetworkConfigurationEnactment as Enactment, NodeNetworkConfigurationPolicy as Policy,
};
use rig::{NmNode, Settings, wait};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    cluster::{Cluster, policy, recording::WatchRecording},
    standalone::{StandaloneFixture, shown},
};

/// A DHCP client that gets no answer sends its requests less and less often.
const LIMIT: Duration = Duration::from_mins(2);
const NO_LEASE: &str = "eth1: no DHCPv4 lease after 6 s; the interface is up and keeps requesting one";

/// An interface with dynamic addresses.
fn dynamic(ipv4: &Value, ipv6: &Value) -> Value {
    json!({"interfaces": [{"name": "eth1", "type": "ethernet", "state": "up", "ipv4": ipv4, "ipv6": ipv6}]})
}

fn dhcp() -> Value {
    dynamic(&json!({"enabled": true, "dhcp": true}), &json!({"enabled": false}))
}

/// The addresses of eth1 in a report, with their attributes.
fn reported(state: &Value) -> Vec<Value> {
    let interfaces = state["currentState"]["interfaces"].as_array().into_iter().flatten();
    let eth1 = interfaces.filter(|interface| interface["name"] == "eth1");
    eth1.flat_map(|interface| ["ipv4", "ipv6"].map(|family| interface[family]["address"].clone()))
        .flat_map(|addresses| addresses.as_array().cloned().unwrap_or_default())
        .collect()
}

impl Cluster {
    /// Waits until the first node's state has one of ten addresses, from this one on.
    async fn until_reported_from(&self, first: u8) -> Result<()> {
        wait::until(LIMIT, &format!("an address from 10.98.0.{first} on"), async || {
            let state = self.states.get(self.nodes[0].name()).await?;
            let addresses = reported(&serde_json::to_value(state.status)?);
            let is_one = |address: &Value| {
                let last = address["ip"].as_str().and_then(|ip| ip.strip_prefix("10.98.0.")?.parse().ok());
                last.is_some_and(|last: u8| (first..first + 10).contains(&last))
            };
            ensure!(addresses.len() == 1 && addresses.iter().all(is_one), "{addresses:?}");
            Ok(())
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn late_and_changed_leases_are_in_the_node_state_and_the_policy_stays_the_same() -> Result<()> {
    let cluster = Cluster::new(1, |_, node| node).await?;
    let mut installed = cluster.install(&Settings::default()).await?;
    installed.handlers = installed.handlers.into_iter().map(|setup| setup.arg("--lease-wait=6")).collect();
    let _handlers = cluster.handlers(&installed).await?;
    let _controller = installed.controllers.start("a")?;
    let began = Instant::now();
    cluster.apply(&policy("dhcp", &json!({"desiredState": dhcp()}))).await?;
    let message = format!("1/1 nodes successfully configured; node1: {NO_LEASE}");
    cluster.until_condition("dhcp", ["Available", "SuccessfullyConfigured", &message]).await?;
    ensure!(began.elapsed() >= Duration::from_secs(6), "reported after {:?}", began.elapsed());
    let status = cluster.enactments.get("node1.dhcp").await?.status;
    assert_eq!(status.notes, [NO_LEASE]);
    let message = &status.conditions.first_true().context("it has no condition")?.message;
    assert_eq!(*message, format!("successfully reconciled; {NO_LEASE}"));

    let policies = WatchRecording::<Policy>::start(&cluster.policies).await?;
    let enactments = WatchRecording::<Enactment>::start(&cluster.enactments).await?;
    let one = cluster.lab.dhcp_on_back(100, "2m");
    one.on().await?;
    cluster.until_reported_from(100).await?;
    // Another server has other addresses, and refuses to renew the address of the first.
    one.off().await?;
    let other = cluster.lab.dhcp_on_back(150, "2m");
    other.on().await?;
    cluster.until_reported_from(150).await?;
    assert!(policies.seen().is_empty(), "{:#?}", policies.seen());
    assert!(enactments.seen().is_empty(), "{:#?}", enactments.seen());
    Ok(())
}

/// The addresses of eth1 in the kernel.
async fn addresses(node: &NmNode) -> Result<Vec<String>> {
    let shown = node.exec(["ip", "-j", "address", "show", "dev", "eth1"]).await?.json()?;
    let addresses = shown[0]["addr_info"].as_array().cloned().unwrap_or_default();
    Ok(addresses.iter().filter_map(|one| Some(one["local"].as_str()?.to_owned())).collect())
}

#[tokio::test]
async fn leases_are_present_when_a_policy_is_available() -> Result<()> {
    let fixture = StandaloneFixture::new().await?;
    let dhcp_server = fixture.lab.dhcp_on_back(100, "2m");
    dhcp_server.on().await?;
    let both = json!({"enabled": true, "dhcp": true, "autoconf": true});
    fixture.policy("dynamic", &dynamic(&json!({"enabled": true, "dhcp": true}), &both))?;
    let output = fixture.once_with(&["--lease-wait=60"]).await?;
    ensure!(output.status.success(), "{}{}", output.stdout(), output.stderr());
    let status = fixture.enactment("dynamic")?;
    assert_eq!(shown(&status), "Available SuccessfullyConfigured", "{status}");
    assert!(status["notes"].is_null(), "{status}");
    let found = addresses(&fixture.node).await?;
    for prefix in ["10.98.0.10", "fd98::"] {
        ensure!(found.iter().any(|address| address.starts_with(prefix)), "{prefix}: {found:?}");
    }
    let text = std::fs::read_to_string(fixture.output.join("nns-node1.yaml"))?;
    let state: Value = serde_saphyr::from_str(&text)?;
    let shown = reported(&state["status"]);
    for address in found.iter().filter(|address| !address.starts_with("fe80")) {
        ensure!(shown.iter().any(|one| one["ip"] == **address), "{address} is not in {shown:?}");
    }

    // The addresses are present, so the second run does not wait, although there is no DHCP server any more.
    dhcp_server.off().await?;
    let began = Instant::now();
    let output = fixture.once_with(&["--lease-wait=60"]).await?;
    let words = output.stdout().split_whitespace().collect::<Vec<_>>().join(" ");
    ensure!(words.contains("dynamic unchanged"), "{words}");
    ensure!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    Ok(())
}

#[tokio::test]
async fn a_static_address_is_no_lease_and_an_infinite_lease_is_one() -> Result<()> {
    let fixture = StandaloneFixture::new().await?;
    let address = json!([{"ip": "10.98.0.77", "prefix-length": 24}]);
    let ipv4 = json!({"enabled": true, "dhcp": false, "address": address});
    fixture.policy("static", &dynamic(&ipv4, &json!({"enabled": false})))?;
    let output = fixture.once_with(&["--lease-wait=6"]).await?;
    ensure!(output.status.success(), "{}{}", output.stdout(), output.stderr());

    // From a static to a dynamic address: the former static address is not taken for a lease.
    std::fs::remove_file(fixture.lab.directory().join("policies/static.yaml"))?;
    fixture.policy("dynamic", &dhcp())?;
    let output = fixture.once_with(&["--lease-wait=6"]).await?;
    ensure!(output.status.success(), "{}{}", output.stdout(), output.stderr());
    assert_eq!(fixture.enactment("dynamic")?["notes"], json!([NO_LEASE]));
    ensure!(output.stderr().contains(NO_LEASE), "{}", output.stderr());

    // A static and a dynamic address at once.
    let ipv4 = json!({"enabled": true, "dhcp": true, "address": address});
    fixture.policy("dynamic", &dynamic(&ipv4, &json!({"enabled": false})))?;
    let output = fixture.once_with(&["--lease-wait=6"]).await?;
    ensure!(output.status.success(), "{}{}", output.stdout(), output.stderr());
    assert_eq!(
        fixture.enactment("dynamic")?["notes"],
        json!([NO_LEASE]),
        "{:?}",
        addresses(&fixture.node).await?
    );

    let dhcp_server = fixture.lab.dhcp_on_back(100, "infinite");
    dhcp_server.on().await?;
    std::fs::remove_file(fixture.lab.directory().join("policies/dynamic.yaml"))?;
    let mut other = dynamic(&ipv4, &json!({"enabled": false}));
    other["interfaces"][0]["mtu"] = json!(1400);
    fixture.policy("infinite", &other)?;
    let output = fixture.once_with(&["--lease-wait=60"]).await?;
    ensure!(output.status.success(), "{}{}", output.stdout(), output.stderr());
    let found = addresses(&fixture.node).await?;
    assert!(fixture.enactment("infinite")?["notes"].is_null(), "{found:?}");
    ensure!(found.iter().any(|address| address.starts_with("10.98.0.10")), "{found:?}");
    Ok(())
}

#[tokio::test]
async fn a_probe_of_a_lease_rolls_back_a_change_without_one() -> Result<()> {
    let fixture = StandaloneFixture::new().await?;
    let before = fixture.node.snapshot().await?;
    let lease = json!({"interface": "eth1", "family": "ipv4"});
    let probes = json!([{"name": "lease", "timeout": "5s", "lease": lease}]);
    fixture.policy_with("strict", &dhcp(), &json!({"probes": probes}))?;
    let output = fixture.once_with(&["--max-attempts=1"]).await?;
    let expected = "probe \"lease\" (IPv4 lease of eth1) failed: no address within 5 s; last: still requesting an address";
    fixture.rolled_back(&output, "strict", &[expected])?;
    fixture.node.wait_until_restored(&before, Duration::from_secs(20)).await?;

    let dhcp_server = fixture.lab.dhcp_on_back(100, "2m");
    dhcp_server.on().await?;
    fixture.policy_with(
        "strict",
        &dhcp(),
        &json!({"probes": [{"name": "lease", "timeout": "60s", "lease": lease}]}),
    )?;
    let output = fixture.once_with(&["--max-attempts=1"]).await?;
    ensure!(output.status.success(), "{}{}", output.stdout(), output.stderr());
    let found = addresses(&fixture.node).await?;
    ensure!(found.iter().any(|address| address.starts_with("10.98.0.10")), "{found:?}");
    Ok(())
}
