//! A namespace node: a real NetworkManager, real services, and faults on demand.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rig::{Lab, NmNode, Primary, binaries, process::Invocation, wait};
use serde_json::{Value, json};

const APPLY_LIMIT: Duration = Duration::from_mins(1);
const SHORT_LIMIT: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_static_address_is_applied_through_nmstate() -> Result<()> {
    let lab = Lab::new().await?;
    let node = lab.nm_node("node1").start().await?;
    let desired = json!({"interfaces": [{
        "name": "eth1", "type": "ethernet", "state": "up", "mtu": 1400,
        "ipv4": {"enabled": true, "dhcp": false, "address": [{"ip": "10.98.0.11", "prefix-length": 24}]},
    }]});
    let program = binaries::apply_state().await?.display().to_string();
    node.exec_with(Invocation::new([program]).stdin(desired.to_string()), APPLY_LIMIT).await?.success()?;

    let link = &node.exec(["ip", "-j", "addr", "show", "eth1"]).await?.json()?[0];
    assert_eq!(link["mtu"], 1400);
    assert!(addresses(link).contains(&"10.98.0.11/24".to_owned()), "{link:#}");
    node.exec(["ping", "-c1", "-W2", "10.98.0.1"]).await?.success()?;
    Ok(())
}

#[tokio::test]
async fn services_can_be_switched_off_and_on() -> Result<()> {
    let lab = Lab::new().await?;
    let node = lab.nm_node("node1").start().await?;
    ensure!(pings(&node, "10.99.0.254").await?, "the gateway is on from the start");
    lab.gateway().off().await?;
    ensure!(!pings(&node, "10.99.0.254").await?, "the gateway is off");
    lab.gateway().on().await?;
    eventually_pings(&node, "10.99.0.254").await?;

    ensure!(!resolves(&node).await?, "DNS is off until asked for");
    lab.dns().on().await?;
    ensure!(resolves(&node).await?, "DNS is on");
    lab.dns().off().await?;
    ensure!(!resolves(&node).await?, "DNS is off again");
    Ok(())
}

#[tokio::test]
async fn dhcp_gives_a_lease_only_while_it_is_on() -> Result<()> {
    let lab = Lab::new().await?;
    lab.dhcp().on().await?;
    let node = lab.nm_node("node1").primary(Primary::Dhcp).start().await?;
    let leased = || async {
        let link = node.exec(["ip", "-j", "-4", "addr", "show", "eth0"]).await?.json()?[0].clone();
        Ok::<_, anyhow::Error>(addresses(&link).into_iter().find(|address| address.starts_with("10.99.0.1")))
    };
    wait::until(SHORT_LIMIT, "a lease", async || leased().await?.context("no address")).await?;
    eventually_pings(&node, "10.99.0.254").await?;

    lab.dhcp().off().await?;
    let attempt = node.exec(["nmcli", "--wait", "3", "device", "connect", "eth1"]).await?;
    ensure!(!attempt.status.success(), "eth1 got a lease without a server: {}", attempt.stdout());
    Ok(())
}

#[tokio::test]
async fn network_manager_can_be_stopped_killed_and_started() -> Result<()> {
    let lab = Lab::new().await?;
    let node = lab.nm_node("node1").start().await?;
    for end in ["stop", "kill"] {
        match end {
            "stop" => node.stop_network_manager().await?,
            _ => node.kill_network_manager().await?,
        }
        ensure!(
            !node.exec(["nmcli", "general"]).await?.status.success(),
            "NetworkManager answered after {end}"
        );
        node.start_network_manager().await?;
        let state = node.exec(["nmcli", "-t", "-f", "DEVICE,STATE", "device"]).await?.success()?;
        ensure!(state.contains("eth0:connected"), "after {end}: {state}");
    }
    Ok(())
}

#[tokio::test]
async fn a_process_that_ends_slowly_is_waited_for() -> Result<()> {
    let lab = Lab::new().await?;
    let node = lab.nm_node("node1").start().await?;
    let (up, down) = (lab.directory().join("up"), lab.directory().join("down"));
    let script = format!(
        "trap 'sleep 1; touch {}; exit' TERM; touch {}; while :; do sleep 0.1; done",
        down.display(),
        up.display()
    );
    let process = node
        .enter(Invocation::new(["bash", "-c", &script]))
        .start("slow", &lab.directory().join("slow.log"))?;
    wait::until(SHORT_LIMIT, "the process to be up", async || Ok(std::fs::metadata(&up)?)).await?;

    process.terminate(SHORT_LIMIT).await?;

    ensure!(down.exists(), "terminate returned before the process had ended");
    Ok(())
}

#[tokio::test]
async fn a_cable_can_be_pulled_and_packets_can_be_lost() -> Result<()> {
    let lab = Lab::new().await?;
    let node = lab.nm_node("node1").start().await?;
    eventually_pings(&node, "10.99.0.1").await?;

    node.nic(0).drop_packets().await?;
    ensure!(!pings(&node, "10.99.0.1").await?, "packets got through");
    assert_eq!(carrier(&node).await?, "1", "the carrier stays while packets are lost");
    node.nic(0).restore().await?;
    eventually_pings(&node, "10.99.0.1").await?;

    node.nic(0).pull().await?;
    wait::until(SHORT_LIMIT, "the carrier to be lost", async || {
        ensure!(carrier(&node).await? == "0", "still there");
        Ok(())
    })
    .await?;
    node.nic(0).restore().await?;
    eventually_pings(&node, "10.99.0.1").await
}

#[tokio::test]
async fn a_node_changes_nothing_of_the_machine() -> Result<()> {
    let files = ["/etc/resolv.conf", "/etc/hostname", "/proc/sys/kernel/hostname"];
    let read = || files.map(|file| std::fs::read_to_string(file).unwrap_or_default());
    let before = read();
    let lab = Lab::new().await?;
    let node = lab.nm_node("node1").start().await?;
    wait::until(SHORT_LIMIT, "the node's own resolver", async || {
        let resolver = node.exec(["cat", "/etc/resolv.conf"]).await?.success()?;
        ensure!(resolver.contains("10.99.0.53"), "{resolver}");
        Ok(())
    })
    .await?;
    assert_eq!(node.exec(["hostname"]).await?.success()?.trim(), "node1");
    assert_eq!(read(), before);
    Ok(())
}

fn addresses(link: &Value) -> Vec<String> {
    let infos = link["addr_info"].as_array().into_iter().flatten();
    infos
        .map(|info| format!("{}/{}", info["local"].as_str().unwrap_or_default(), info["prefixlen"]))
        .collect()
}

async fn pings(node: &NmNode, address: &str) -> Result<bool> {
    Ok(node.exec(["ping", "-c1", "-W1", address]).await?.status.success())
}

async fn eventually_pings(node: &NmNode, address: &str) -> Result<()> {
    wait::until(SHORT_LIMIT, &format!("{address} to answer"), async || {
        ensure!(pings(node, address).await?, "no answer");
        Ok(())
    })
    .await
}

async fn resolves(node: &NmNode) -> Result<bool> {
    Ok(node.exec(["timeout", "3", "getent", "ahostsv4", "node.test"]).await?.status.success())
}

async fn carrier(node: &NmNode) -> Result<String> {
    Ok(node.exec(["cat", "/sys/class/net/eth0/carrier"]).await?.success()?.trim().to_owned())
}
