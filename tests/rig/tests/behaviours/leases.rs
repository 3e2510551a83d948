//! Addresses that others lend, on real NetworkManagers and with real servers: waited for, missed, renewed.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use knmstate_api::{
    NodeNetworkConfigurationEnactment as Enactment, NodeNetworkConfigurationPolicy as Policy,
};
use rig::{NmNode, Settings, wait};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    cluster::{Cluster, policy, recording::Recording},
    standalone::{Trial, shown},
};

/// A client that nobody has answered asks less and less often.
const LIMIT: Duration = Duration::from_mins(2);
const NO_LEASE: &str = "eth1: no DHCPv4 lease after 6 s; the interface is up and goes on asking";

/// A card that asks for addresses.
fn asking(ipv4: &Value, ipv6: &Value) -> Value {
    json!({"interfaces": [{"name": "eth1", "type": "ethernet", "state": "up", "ipv4": ipv4, "ipv6": ipv6}]})
}

fn dhcp() -> Value {
    asking(&json!({"enabled": true, "dhcp": true}), &json!({"enabled": false}))
}

/// The addresses of eth1 in a report, with what else is said of each.
fn reported(state: &Value) -> Vec<Value> {
    let interfaces = state["currentState"]["interfaces"].as_array().into_iter().flatten();
    let eth1 = interfaces.filter(|interface| interface["name"] == "eth1");
    eth1.flat_map(|interface| ["ipv4", "ipv6"].map(|family| interface[family]["address"].clone()))
        .flat_map(|addresses| addresses.as_array().cloned().unwrap_or_default())
        .collect()
}

impl Cluster {
    /// Waits until the first node's state has one of ten addresses, from this one on.
    async fn reports_one_from(&self, first: u8) -> Result<()> {
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
async fn what_comes_later_or_changes_is_shown_and_the_policy_says_what_it_said() -> Result<()> {
    let cluster = Cluster::new(1, |_, node| node).await?;
    let mut installed = cluster.install(&Settings::default()).await?;
    installed.handlers = installed.handlers.into_iter().map(|setup| setup.arg("--lease-wait=6")).collect();
    let _handlers = cluster.handlers(&installed).await?;
    let _controller = installed.controllers.start("a")?;
    let began = Instant::now();
    cluster.apply(&policy("dhcp", &json!({"desiredState": dhcp()}))).await?;
    let said = format!("1/1 nodes successfully configured; node1: {NO_LEASE}");
    cluster.until_says("dhcp", ["Available", "SuccessfullyConfigured", &said]).await?;
    ensure!(began.elapsed() >= Duration::from_secs(6), "said after {:?}", began.elapsed());
    let status = cluster.enactments.get("node1.dhcp").await?.status;
    assert_eq!(status.notes, [NO_LEASE]);
    let message = &status.conditions.first_true().context("it says nothing")?.message;
    assert_eq!(*message, format!("successfully reconciled; {NO_LEASE}"));

    let policies = Recording::<Policy>::start(&cluster.policies).await?;
    let enactments = Recording::<Enactment>::start(&cluster.enactments).await?;
    let one = cluster.lab.lender(100, "2m");
    one.on().await?;
    cluster.reports_one_from(100).await?;
    // Another one lends other addresses, and says no to the one that is to be renewed.
    one.off().await?;
    let other = cluster.lab.lender(150, "2m");
    other.on().await?;
    cluster.reports_one_from(150).await?;
    assert!(policies.seen().is_empty(), "{:#?}", policies.seen());
    assert!(enactments.seen().is_empty(), "{:#?}", enactments.seen());
    Ok(())
}

/// What eth1 has in the kernel.
async fn addresses(node: &NmNode) -> Result<Vec<String>> {
    let shown = node.exec(["ip", "-j", "address", "show", "dev", "eth1"]).await?.json()?;
    let addresses = shown[0]["addr_info"].as_array().cloned().unwrap_or_default();
    Ok(addresses.iter().filter_map(|one| Some(one["local"].as_str()?.to_owned())).collect())
}

#[tokio::test]
async fn what_is_lent_is_there_when_a_policy_is_available() -> Result<()> {
    let trial = Trial::new().await?;
    let lender = trial.lab.lender(100, "2m");
    lender.on().await?;
    let both = json!({"enabled": true, "dhcp": true, "autoconf": true});
    trial.policy("lent", &asking(&json!({"enabled": true, "dhcp": true}), &both))?;
    let output = trial.once_with(&["--lease-wait=60"]).await?;
    ensure!(output.status.success(), "{}{}", output.stdout(), output.stderr());
    let status = trial.enactment("lent")?;
    assert_eq!(shown(&status), "Available SuccessfullyConfigured", "{status}");
    assert!(status["notes"].is_null(), "{status}");
    let found = addresses(&trial.node).await?;
    for prefix in ["10.98.0.10", "fd98::"] {
        ensure!(found.iter().any(|address| address.starts_with(prefix)), "{prefix}: {found:?}");
    }
    let text = std::fs::read_to_string(trial.output.join("nns-node1.yaml"))?;
    let state: Value = serde_saphyr::from_str(&text)?;
    let shown = reported(&state["status"]);
    for address in found.iter().filter(|address| !address.starts_with("fe80")) {
        ensure!(shown.iter().any(|one| one["ip"] == **address), "{address} is not in {shown:?}");
    }

    // Met already, it is not waited for, though nobody lends any more.
    lender.off().await?;
    let began = Instant::now();
    let output = trial.once_with(&["--lease-wait=60"]).await?;
    let words = output.stdout().split_whitespace().collect::<Vec<_>>().join(" ");
    ensure!(words.contains("lent unchanged"), "{words}");
    ensure!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    Ok(())
}

#[tokio::test]
async fn an_address_of_its_own_is_no_lease_and_one_for_ever_is() -> Result<()> {
    let trial = Trial::new().await?;
    let own = json!([{"ip": "10.98.0.77", "prefix-length": 24}]);
    let ipv4 = json!({"enabled": true, "dhcp": false, "address": own});
    trial.policy("own", &asking(&ipv4, &json!({"enabled": false})))?;
    let output = trial.once_with(&["--lease-wait=6"]).await?;
    ensure!(output.status.success(), "{}{}", output.stdout(), output.stderr());

    // From its own to a lent one: what was its own before is none of it.
    std::fs::remove_file(trial.lab.folder().join("policies/own.yaml"))?;
    trial.policy("lent", &dhcp())?;
    let output = trial.once_with(&["--lease-wait=6"]).await?;
    ensure!(output.status.success(), "{}{}", output.stdout(), output.stderr());
    assert_eq!(trial.enactment("lent")?["notes"], json!([NO_LEASE]));
    ensure!(output.stderr().contains(NO_LEASE), "{}", output.stderr());

    // Both at once.
    let ipv4 = json!({"enabled": true, "dhcp": true, "address": own});
    trial.policy("lent", &asking(&ipv4, &json!({"enabled": false})))?;
    let output = trial.once_with(&["--lease-wait=6"]).await?;
    ensure!(output.status.success(), "{}{}", output.stdout(), output.stderr());
    assert_eq!(trial.enactment("lent")?["notes"], json!([NO_LEASE]), "{:?}", addresses(&trial.node).await?);

    let lender = trial.lab.lender(100, "infinite");
    lender.on().await?;
    std::fs::remove_file(trial.lab.folder().join("policies/lent.yaml"))?;
    let mut other = asking(&ipv4, &json!({"enabled": false}));
    other["interfaces"][0]["mtu"] = json!(1400);
    trial.policy("for-ever", &other)?;
    let output = trial.once_with(&["--lease-wait=60"]).await?;
    ensure!(output.status.success(), "{}{}", output.stdout(), output.stderr());
    let found = addresses(&trial.node).await?;
    assert!(trial.enactment("for-ever")?["notes"].is_null(), "{found:?}");
    ensure!(found.iter().any(|address| address.starts_with("10.98.0.10")), "{found:?}");
    Ok(())
}

#[tokio::test]
async fn whoever_cannot_do_without_says_so_by_a_probe() -> Result<()> {
    let trial = Trial::new().await?;
    let before = trial.node.snapshot().await?;
    let lease = json!({"interface": "eth1", "family": "ipv4"});
    let probes = json!([{"name": "lease", "timeout": "5s", "lease": lease}]);
    trial.policy_with("strict", &dhcp(), &json!({"probes": probes}))?;
    let output = trial.once_with(&["--max-attempts=1"]).await?;
    let said = "probe \"lease\" (IPv4 lease of eth1) failed: no address within 5 s; last: it is up and asks";
    trial.rolled_back(&output, "strict", &[said])?;
    trial.node.is_again(&before, Duration::from_secs(20)).await?;

    let lender = trial.lab.lender(100, "2m");
    lender.on().await?;
    trial.policy_with(
        "strict",
        &dhcp(),
        &json!({"probes": [{"name": "lease", "timeout": "60s", "lease": lease}]}),
    )?;
    let output = trial.once_with(&["--max-attempts=1"]).await?;
    ensure!(output.status.success(), "{}{}", output.stdout(), output.stderr());
    let found = addresses(&trial.node).await?;
    ensure!(found.iter().any(|address| address.starts_with("10.98.0.10")), "{found:?}");
    Ok(())
}
