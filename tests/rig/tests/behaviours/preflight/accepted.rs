//! Documents that look wrong and work.

use std::fs;

use anyhow::{Context, Result, ensure};
use rig::{Lab, binaries, process::Invocation};
use serde_json::{Value, json};

use super::{LIMIT, PreflightFixture};

fn macvlan(base: &str) -> Value {
    json!({ "name": "mv1", "type": "mac-vlan", "state": "up",
        "mac-vlan": { "base-iface": base, "mode": "bridge", "promiscuous": true } })
}

fn bridge(port: &str) -> Value {
    json!({ "name": "br1", "type": "linux-bridge", "state": "up",
        "ipv4": { "enabled": false }, "ipv6": { "enabled": false }, "bridge": { "port": [{ "name": port }] } })
}

fn absent(names: &[&str]) -> Value {
    names.iter().map(|name| json!({ "name": name, "state": "absent" })).collect()
}

#[tokio::test]
async fn an_interface_can_be_referred_to_by_any_of_its_names() -> Result<()> {
    let fixture = PreflightFixture::on_namespaces().await?;
    let eth1 = json!({ "name": "eth1", "type": "ethernet", "state": "up", "profile-name": "uplink",
        "alt-names": [{ "name": "lan" }] });
    fixture.applies("a NIC with two more names", &json!([eth1])).await?;
    for name in ["lan", "uplink"] {
        fixture.applies(&format!("a base interface with the name {name}"), &json!([macvlan(name)])).await?;
        assert_eq!(fixture.link("mv1").await?["link"], "eth1", "{name}");
        fixture.applies("its removal", &absent(&["mv1"])).await?;
        fixture.applies(&format!("a port with the name {name}"), &json!([bridge(name)])).await?;
        assert_eq!(fixture.link("eth1").await?["master"], "br1", "{name}");
        fixture.applies("its removal", &absent(&["br1"])).await?;
    }
    let address = fixture.link("eth2").await?["address"].as_str().context("a MAC address")?.to_owned();
    let by_mac = json!({ "name": "second", "type": "ethernet", "state": "up",
        "identifier": "mac-address", "mac-address": address });
    fixture.applies("a port that is selected by its MAC address", &json!([bridge("second"), by_mac])).await?;
    assert_eq!(fixture.link("eth2").await?["master"], "br1");
    Ok(())
}

#[tokio::test]
async fn interfaces_that_the_same_document_creates_or_removes_are_taken_into_account() -> Result<()> {
    let fixture = PreflightFixture::on_namespaces().await?;
    let pair = json!({ "name": "v1", "type": "veth", "state": "up", "veth": { "peer": "v2" } });
    let other_end = json!({ "name": "v2", "type": "ethernet", "state": "up" });
    fixture.applies("the peer of a veth as a port", &json!([bridge("v2"), other_end, pair])).await?;
    assert_eq!(fixture.link("v2").await?["master"], "br1");
    fixture
        .applies(
            "an interface over a bridge that loses its port",
            &json!([macvlan("br1"), {
        "name": "br1", "type": "linux-bridge", "state": "up", "bridge": { "port": [] } }]),
        )
        .await?;
    assert_eq!(fixture.link("mv1").await?["link"], "br1");
    fixture
        .applies(
            "the removal of a veth and of interfaces on top of each other",
            &absent(&["mv1", "br1", "v1"]),
        )
        .await?;
    ensure!(fixture.link("br1").await.is_err(), "it is still there");
    fixture
        .applies(
            "the removal of what is removed already, like its base interface",
            &json!([{ "name": "mv1", "type": "mac-vlan", "state": "absent", "mac-vlan": { "base-iface": "br1", "mode": "bridge" } }]),
        )
        .await
}

#[tokio::test]
async fn mtus_and_addresses_at_the_limits_are_accepted() -> Result<()> {
    let fixture = PreflightFixture::on_namespaces().await?;
    let sized = |mtu: u32| {
        let mut interface = macvlan("eth2");
        interface["mtu"] = json!(mtu);
        interface
    };
    fixture.applies("the MTU of its base interface", &json!([sized(1500)])).await?;
    let eth2 = |mtu: u32| json!({ "name": "eth2", "type": "ethernet", "state": "up", "mtu": mtu });
    fixture.applies("a larger MTU of base and interface at once", &json!([sized(1600), eth2(1600)])).await?;
    assert_eq!(fixture.link("mv1").await?["mtu"], 1600);
    fixture.applies("a smaller one", &json!([sized(1400), eth2(1400)])).await?;
    assert_eq!(fixture.link("mv1").await?["mtu"], 1400);
    let eth1 = |ip: &str, prefix: u32| {
        json!([{ "name": "eth1", "type": "ethernet", "state": "up",
            "ipv4": { "enabled": true, "dhcp": false, "address": [{ "ip": ip, "prefix-length": prefix }] } }])
    };
    for (ip, prefix) in [("10.98.0.0", 24), ("10.98.0.255", 24), ("10.98.0.6", 31), ("10.98.0.7", 32)] {
        fixture.applies(&format!("{ip}/{prefix}"), &eth1(ip, prefix)).await?;
    }
    // This NetworkManager cannot change forwarding, and does not have to.
    let forwarding = json!({ "enabled": true, "dhcp": false, "forwarding": false,
        "address": [{ "ip": "10.98.0.9", "prefix-length": 24 }] });
    let as_it_is = json!([{ "name": "eth1", "type": "ethernet", "state": "up", "ipv4": forwarding },
        { "name": "br1", "type": "linux-bridge", "state": "up", "bridge": { "port": [] },
          "ipv4": { "enabled": true, "dhcp": false, "forwarding": false, "address": [{ "ip": "10.97.0.9", "prefix-length": 24 }] } }]);
    fixture.applies("forwarding with its current value and with its default", &as_it_is).await?;
    let out_of_reach = json!({ "interfaces": eth1("10.98.0.7", 24), "routes": { "config": [
        { "destination": "10.55.0.0/16", "next-hop-interface": "eth1", "next-hop-address": "10.77.0.1" },
    ] } });
    fixture.applies_document("a next hop outside the networks of its interface", &out_of_reach).await
}

#[tokio::test]
async fn vlans_bonds_and_ipvlans_in_unusual_documents_are_accepted() -> Result<()> {
    let fixture = PreflightFixture::on_own_kernel().await?;
    let vlan = |name: &str, base: &str, more: Value| {
        let mut vlan = json!({ "base-iface": base, "id": 7 });
        vlan.as_object_mut().into_iter().for_each(|vlan| {
            vlan.extend(more.as_object().cloned().unwrap_or_default());
        });
        json!({ "name": name, "type": "vlan", "state": "up", "vlan": vlan })
    };
    fixture
        .applies(
            "a VLAN over a bond that comes after it in the document",
            &json!([vlan("bond0.7", "bond0", json!({})), { "name": "bond0", "type": "bond", "state": "up",
                "link-aggregation": { "mode": "active-backup", "port": ["eth1"] } }]),
        )
        .await?;
    assert_eq!(fixture.link("bond0.7").await?["link"], "bond0");
    fixture
        .applies(
            "the same ID with another protocol",
            &json!([vlan("bond0.7ad", "bond0", json!({ "protocol": "802.1ad" }))]),
        )
        .await?;
    fixture
        .applies(
            "the ID of a VLAN that is removed",
            &json!([{ "name": "bond0.7", "type": "vlan", "state": "absent" }, vlan("seven", "bond0", json!({}))]),
        )
        .await?;
    assert_eq!(fixture.link("seven").await?["link"], "bond0");
    fixture
        .applies(
            "a base that is down",
            &json!([{ "name": "eth3", "type": "ethernet", "state": "down" }, vlan("eth3.7", "eth3", json!({}))]),
        )
        .await?;
    fixture
        .applies(
            "an ipvlan, which this NetworkManager supports",
            &json!([{ "name": "i1", "type": "ipvlan", "state": "up", "ipvlan": { "base-iface": "eth2", "mode": "l3" } }]),
        )
        .await?;
    fixture
        .applies("the removal of everything", &absent(&["seven", "bond0.7ad", "bond0", "eth3.7", "i1"]))
        .await
}

#[tokio::test]
async fn interfaces_of_other_policies_count_and_warnings_are_notes_of_their_policy() -> Result<()> {
    let program = binaries::knmstate().await?.display().to_string();
    let lab = Lab::new().await?;
    let node = lab.nm_node("node1").start().await?;
    node.settle().await?;
    let (policies, output) = (lab.directory().join("policies"), lab.directory().join("output"));
    fs::create_dir(&policies)?;
    for (name, desired) in [
        ("a-bridge", json!({ "interfaces": [bridge("v2")] })),
        (
            "b-veth",
            json!({ "interfaces": [{ "name": "v1", "type": "veth", "state": "up", "veth": { "peer": "v2" } }] }),
        ),
        (
            "c-address",
            json!({ "interfaces": [{ "name": "eth1", "type": "ethernet", "state": "up",
                "ipv4": { "enabled": true, "dhcp": false, "address": [{ "ip": "10.98.0.0", "prefix-length": 24 }] } }] }),
        ),
    ] {
        let policy = json!({ "apiVersion": "nmstate.io/v1", "kind": "NodeNetworkConfigurationPolicy",
            "metadata": { "name": name }, "spec": { "desiredState": desired } });
        fs::write(policies.join(format!("{name}.yaml")), policy.to_string())?;
    }
    let call = || {
        Invocation::new([&program, "standalone", "--once", "--node-name=node1"])
            .arg(format!("--policies={}", policies.display()))
            .arg(format!("--state-dir={}", lab.directory().join("state").display()))
            .arg(format!("--output={}", output.display()))
            .env("RUST_BACKTRACE", "0")
    };
    for (round, expected_result) in ["applied", "unchanged"].into_iter().enumerate() {
        let output_of_run = node.exec_with(call(), LIMIT).await?;
        for policy in ["a-bridge", "b-veth", "c-address"] {
            let line =
                output_of_run.stdout().lines().find(|line| line.starts_with(policy)).map(str::to_owned);
            ensure!(
                line.is_some_and(|line| line.contains(expected_result)),
                "{round}: {}{}",
                output_of_run.stdout(),
                output_of_run.stderr()
            );
        }
        for (policy, warned) in [("b-veth", false), ("c-address", true)] {
            let text = fs::read_to_string(output.join(format!("nnce-node1.{policy}.yaml")))?;
            let enactment: Value = serde_saphyr::from_str(&text)?;
            let note = "interfaces[eth1].ipv4.address[0].ip: 10.98.0.0 is the address of 10.98.0.0/24; neighbours may not speak to it";
            let notes = &enactment["status"]["notes"];
            let expected = if warned { json!([note]) } else { Value::Null };
            assert_eq!(*notes, expected, "{expected_result}: {policy}: {text}");
        }
    }
    Ok(())
}
