//! A bond over the card by which the node reaches its API server.

use anyhow::{Context as _, Result, ensure};
use rig::{forward::Forward, wait};
use serde_json::{Value, json};

use super::{LIMIT, NODE, Trial, addresses, pings::Pings};
use crate::cluster::policy;

const ADDRESS: &str = "10.98.0.11";
/// The lab: gateway, API server and whoever else is on that segment.
const OUTSIDE: &str = "10.98.0.1";

impl Trial {
    /// A node whose only way to the API server, and out, is eth1.
    async fn by_eth1() -> Result<(Self, Forward)> {
        let trial = Self::new().await?;
        let profile = [
            "nmcli",
            "connection",
            "add",
            "type",
            "ethernet",
            "con-name",
            "eth1",
            "ifname",
            "eth1",
            "ipv4.method",
            "manual",
            "ipv4.addresses",
            "10.98.0.11/24",
            "ipv4.gateway",
            OUTSIDE,
            "ipv6.method",
            "disabled",
        ];
        trial.node.exec(profile).await?.success()?;
        // The way in for the test stays, the way out by it goes: nothing may fall back to it.
        trial.node.exec(["ip", "route", "delete", "default", "dev", "mgmt0"]).await?.success()?;
        trial.is_the_way_out("eth1").await?;
        let token = trial.api.handler_token(NODE).await?;
        let (door, kubeconfig) = trial.api.on_the_back_segment(&token).await?;
        trial.handler_with(&kubeconfig).await?;
        Ok((trial, door))
    }

    /// Waits until all that is not on the way in for the test leaves by this interface.
    async fn is_the_way_out(&self, interface: &str) -> Result<()> {
        wait::until(LIMIT, &format!("the way out by {interface}"), async || {
            let default = self.node.exec(["ip", "-j", "route", "show", "default"]).await?.json()?;
            ensure!(default.as_array().is_some_and(|routes| routes.len() == 1), "{default}");
            ensure!(default[0]["dev"] == interface && default[0]["gateway"] == OUTSIDE, "{default}");
            let to_the_api = self.node.exec(["ip", "-j", "route", "get", OUTSIDE]).await?.json()?;
            ensure!(to_the_api[0]["dev"] == interface, "{to_the_api}");
            Ok(())
        })
        .await
    }
}

/// The bond, with what else is wanted of it.
fn bond(rest: &Value) -> Value {
    let mut bond = json!({
        "name": "bond0", "type": "bond", "state": "up", "copy-mac-from": "eth1",
        "link-aggregation": {"mode": "active-backup", "options": {"miimon": 100}, "port": ["eth1", "eth2"]},
    });
    bond.as_object_mut()
        .into_iter()
        .for_each(|bond| bond.extend(rest.as_object().cloned().unwrap_or_default()));
    bond
}

fn fixed_address() -> Value {
    json!({"enabled": true, "dhcp": false, "address": [{"ip": ADDRESS, "prefix-length": 24}]})
}

fn default_route(interface: &str) -> Value {
    let route = json!({
        "destination": "0.0.0.0/0", "next-hop-address": OUTSIDE, "next-hop-interface": interface,
    });
    json!({"config": [route]})
}

#[tokio::test(flavor = "multi_thread")]
async fn it_takes_over_the_address_and_the_way_out_under_traffic() -> Result<()> {
    let (trial, _door) = Trial::by_eth1().await?;
    let pings = Pings::start(&trial.lab, ADDRESS)?;
    let bond = bond(&json!({"ipv4": fixed_address(), "ipv6": {"enabled": false}}));
    let desired = json!({"interfaces": [bond], "routes": default_route("bond0")});
    trial.apply(&policy("primary", &json!({"desiredState": desired}))).await?;
    trial.until_says("primary", "Available", "1/1 nodes successfully configured").await?;

    trial.is_the_way_out("bond0").await?;
    assert_eq!(addresses(&trial.link("bond0").await?), [ADDRESS]);
    for port in ["eth1", "eth2"] {
        let link = trial.link(port).await?;
        assert_eq!((&link["master"], addresses(&link)), (&json!("bond0"), vec![]), "{link}");
    }
    // What was said of the bond came through it; so does the report.
    wait::until(LIMIT, "the bond to be reported", async || {
        let reported = trial.reported("bond0").await?;
        ensure!(reported["ipv4"]["address"][0]["ip"] == ADDRESS, "{reported}");
        Ok(())
    })
    .await?;
    println!("{:?}", pings.more(10).await?);
    let timings = trial.enactments.get("node1.primary").await?.status.timings.context("no timings")?;
    println!("{timings:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_one_gives_the_card_back_and_says_why() -> Result<()> {
    let (trial, _door) = Trial::by_eth1().await?;
    // Whoever is outside knows nothing of VLAN 102.
    let vlan = json!({
        "name": "bond0.102", "type": "vlan", "state": "up", "vlan": {"base-iface": "bond0", "id": 102},
        "ipv4": fixed_address(), "ipv6": {"enabled": false},
    });
    let off = json!({"enabled": false});
    let desired = json!({
        "interfaces": [bond(&json!({"ipv4": off, "ipv6": off})), vlan],
        "routes": default_route("bond0.102"),
    });
    let probes = json!([{"name": "api", "builtIn": "ApiServer", "timeout": "20s"}]);
    trial.apply(&policy("primary", &json!({"desiredState": desired, "probes": probes}))).await?;
    trial.until_says("primary", "Degraded", "1/1 nodes failed to configure").await?;

    let said = trial.message("primary").await?;
    println!("{said}");
    ensure!(said.starts_with("probe \"api\" (https://10.98.0.1:6443) failed"), "{said}");
    ensure!(said.ends_with("rolled back: the network is as it was before"), "{said}");
    trial.is_the_way_out("eth1").await?;
    let card = trial.link("eth1").await?;
    assert_eq!((&card["master"], addresses(&card)), (&Value::Null, vec![ADDRESS]), "{card}");
    for gone in ["bond0", "bond0.102"] {
        assert_eq!(trial.link(gone).await?, Value::Null);
    }
    wait::until(LIMIT, "the card to be reported", async || {
        let (card, bond) = (trial.reported("eth1").await?, trial.reported("bond0").await?);
        ensure!(card["ipv4"]["address"][0]["ip"] == ADDRESS && bond.is_null(), "{card} {bond}");
        Ok(())
    })
    .await
}
