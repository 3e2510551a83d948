//! A bond over the NIC through which the node reaches its API server.

use anyhow::{Context as _, Result, ensure};
use rig::{port_forward::PortForward, wait};
use serde_json::{Value, json};

use super::{FullKernelFixture, LIMIT, NODE, addresses, pings::Pings};
use crate::cluster::policy;

const ADDRESS: &str = "10.98.0.11";
/// The lab on that segment: the gateway and the API server.
const GATEWAY: &str = "10.98.0.1";

impl FullKernelFixture {
    /// A node whose only route to the API server and to other networks is through eth1.
    async fn through_eth1() -> Result<(Self, PortForward)> {
        let fixture = Self::new().await?;
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
            GATEWAY,
            "ipv6.method",
            "disabled",
        ];
        fixture.node.exec(profile).await?.success()?;
        // mgmt0 stays for the test, without its default route, so that nothing falls back to it.
        fixture.node.exec(["ip", "route", "delete", "default", "dev", "mgmt0"]).await?.success()?;
        fixture.wait_for_default_route("eth1").await?;
        let token = fixture.api.handler_token(NODE).await?;
        let (forward, kubeconfig) = fixture.api.forward_from_back_segment(&token).await?;
        fixture.handler_with(&kubeconfig).await?;
        Ok((fixture, forward))
    }

    /// Waits until this interface has the only default route and the route to the API server.
    async fn wait_for_default_route(&self, interface: &str) -> Result<()> {
        wait::until(LIMIT, &format!("the default route on {interface}"), async || {
            let default = self.node.exec(["ip", "-j", "route", "show", "default"]).await?.json()?;
            ensure!(default.as_array().is_some_and(|routes| routes.len() == 1), "{default}");
            ensure!(default[0]["dev"] == interface && default[0]["gateway"] == GATEWAY, "{default}");
            let to_the_api = self.node.exec(["ip", "-j", "route", "get", GATEWAY]).await?.json()?;
            ensure!(to_the_api[0]["dev"] == interface, "{to_the_api}");
            Ok(())
        })
        .await
    }
}

/// The bond, with further settings.
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
        "destination": "0.0.0.0/0", "next-hop-address": GATEWAY, "next-hop-interface": interface,
    });
    json!({"config": [route]})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bond_takes_over_the_address_and_the_default_route_under_traffic() -> Result<()> {
    let (fixture, _forward) = FullKernelFixture::through_eth1().await?;
    let pings = Pings::start(&fixture.lab, ADDRESS)?;
    let bond = bond(&json!({"ipv4": fixed_address(), "ipv6": {"enabled": false}}));
    let desired = json!({"interfaces": [bond], "routes": default_route("bond0")});
    fixture.apply(&policy("primary", &json!({"desiredState": desired}))).await?;
    fixture.until_condition("primary", "Available", "1/1 nodes successfully configured").await?;

    fixture.wait_for_default_route("bond0").await?;
    assert_eq!(addresses(&fixture.link("bond0").await?), [ADDRESS]);
    for port in ["eth1", "eth2"] {
        let link = fixture.link(port).await?;
        assert_eq!((&link["master"], addresses(&link)), (&json!("bond0"), vec![]), "{link}");
    }
    // The status of the enactment came through the bond; so does the report.
    wait::until(LIMIT, "the bond to be reported", async || {
        let reported = fixture.reported("bond0").await?;
        ensure!(reported["ipv4"]["address"][0]["ip"] == ADDRESS, "{reported}");
        Ok(())
    })
    .await?;
    println!("{:?}", pings.more(10).await?);
    let timings = fixture.enactments.get("node1.primary").await?.status.timings.context("no timings")?;
    println!("{timings:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_bond_is_rolled_back_and_reports_why() -> Result<()> {
    let (fixture, _forward) = FullKernelFixture::through_eth1().await?;
    // The gateway is not in VLAN 102.
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
    fixture.apply(&policy("primary", &json!({"desiredState": desired, "probes": probes}))).await?;
    fixture.until_condition("primary", "Degraded", "1/1 nodes failed to configure").await?;

    let message = fixture.message("primary").await?;
    println!("{message}");
    ensure!(message.starts_with("probe \"api\" (https://10.98.0.1:6443) failed"), "{message}");
    ensure!(message.ends_with("rolled back: the network is as it was before"), "{message}");
    fixture.wait_for_default_route("eth1").await?;
    let nic = fixture.link("eth1").await?;
    assert_eq!((&nic["master"], addresses(&nic)), (&Value::Null, vec![ADDRESS]), "{nic}");
    for gone in ["bond0", "bond0.102"] {
        assert_eq!(fixture.link(gone).await?, Value::Null);
    }
    wait::until(LIMIT, "the NIC to be reported", async || {
        let (nic, bond) = (fixture.reported("eth1").await?, fixture.reported("bond0").await?);
        ensure!(nic["ipv4"]["address"][0]["ip"] == ADDRESS && bond.is_null(), "{nic} {bond}");
        Ok(())
    })
    .await
}
