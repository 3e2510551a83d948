//! What looks as if it could not work, and does.

use std::fs;

use anyhow::{Context, Result, ensure};
use rig::{Lab, binaries, process::Invocation};
use serde_json::{Value, json};

use super::{LIMIT, Trial};

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
async fn an_interface_may_go_by_any_of_its_names() -> Result<()> {
    let trial = Trial::on_namespaces().await?;
    let eth1 = json!({ "name": "eth1", "type": "ethernet", "state": "up", "profile-name": "uplink",
        "alt-names": [{ "name": "lan" }] });
    trial.works("a card with two more names", &json!([eth1])).await?;
    for name in ["lan", "uplink"] {
        trial.works(&format!("a base that is called {name}"), &json!([macvlan(name)])).await?;
        assert_eq!(trial.link("mv1").await?["link"], "eth1", "{name}");
        trial.works("its end", &absent(&["mv1"])).await?;
        trial.works(&format!("a port that is called {name}"), &json!([bridge(name)])).await?;
        assert_eq!(trial.link("eth1").await?["master"], "br1", "{name}");
        trial.works("its end", &absent(&["br1"])).await?;
    }
    let address = trial.link("eth2").await?["address"].as_str().context("a MAC address")?.to_owned();
    let by_mac = json!({ "name": "second", "type": "ethernet", "state": "up",
        "identifier": "mac-address", "mac-address": address });
    trial.works("a port that is known by its MAC address", &json!([bridge("second"), by_mac])).await?;
    assert_eq!(trial.link("eth2").await?["master"], "br1");
    Ok(())
}

#[tokio::test]
async fn what_the_same_document_makes_is_there_and_what_it_ends_is_not_missed() -> Result<()> {
    let trial = Trial::on_namespaces().await?;
    let pair = json!({ "name": "v1", "type": "veth", "state": "up", "veth": { "peer": "v2" } });
    let other_end = json!({ "name": "v2", "type": "ethernet", "state": "up" });
    trial.works("the other end of a cable as a port", &json!([bridge("v2"), other_end, pair])).await?;
    assert_eq!(trial.link("v2").await?["master"], "br1");
    trial
        .works(
            "an interface over a bridge that loses its port",
            &json!([macvlan("br1"), {
        "name": "br1", "type": "linux-bridge", "state": "up", "bridge": { "port": [] } }]),
        )
        .await?;
    assert_eq!(trial.link("mv1").await?["link"], "br1");
    trial.works("both ends of a cable, and what stood on each other", &absent(&["mv1", "br1", "v1"])).await?;
    ensure!(trial.link("br1").await.is_err(), "it is still there");
    trial
        .works(
            "what is gone already, and so is its base",
            &json!([{ "name": "mv1", "type": "mac-vlan", "state": "absent", "mac-vlan": { "base-iface": "br1", "mode": "bridge" } }]),
        )
        .await
}

#[tokio::test]
async fn sizes_and_addresses_on_the_edge_are_taken() -> Result<()> {
    let trial = Trial::on_namespaces().await?;
    let sized = |mtu: u32| {
        let mut interface = macvlan("eth2");
        interface["mtu"] = json!(mtu);
        interface
    };
    trial.works("as large as its base", &json!([sized(1500)])).await?;
    let eth2 = |mtu: u32| json!({ "name": "eth2", "type": "ethernet", "state": "up", "mtu": mtu });
    trial.works("base and interface become larger at once", &json!([sized(1600), eth2(1600)])).await?;
    assert_eq!(trial.link("mv1").await?["mtu"], 1600);
    trial.works("and smaller", &json!([sized(1400), eth2(1400)])).await?;
    assert_eq!(trial.link("mv1").await?["mtu"], 1400);
    let eth1 = |ip: &str, prefix: u32| {
        json!([{ "name": "eth1", "type": "ethernet", "state": "up",
            "ipv4": { "enabled": true, "dhcp": false, "address": [{ "ip": ip, "prefix-length": prefix }] } }])
    };
    for (ip, prefix) in [("10.98.0.0", 24), ("10.98.0.255", 24), ("10.98.0.6", 31), ("10.98.0.7", 32)] {
        trial.works(&format!("{ip}/{prefix}"), &eth1(ip, prefix)).await?;
    }
    // This NetworkManager cannot change it, and does not have to.
    let forwarding = json!({ "enabled": true, "dhcp": false, "forwarding": false,
        "address": [{ "ip": "10.98.0.9", "prefix-length": 24 }] });
    let as_it_is = json!([{ "name": "eth1", "type": "ethernet", "state": "up", "ipv4": forwarding },
        { "name": "br1", "type": "linux-bridge", "state": "up", "bridge": { "port": [] },
          "ipv4": { "enabled": true, "dhcp": false, "forwarding": false, "address": [{ "ip": "10.97.0.9", "prefix-length": 24 }] } }]);
    trial.works("forwarding as it is, and as it comes", &as_it_is).await?;
    let out_of_reach = json!({ "interfaces": eth1("10.98.0.7", 24), "routes": { "config": [
        { "destination": "10.55.0.0/16", "next-hop-interface": "eth1", "next-hop-address": "10.77.0.1" },
    ] } });
    trial.all_works("a next hop that is in no network of its interface", &out_of_reach).await
}

#[tokio::test]
async fn vlans_bonds_and_ipvlans_on_the_edge_are_made() -> Result<()> {
    let trial = Trial::on_own_kernel().await?;
    let vlan = |name: &str, base: &str, more: Value| {
        let mut vlan = json!({ "base-iface": base, "id": 7 });
        vlan.as_object_mut().into_iter().for_each(|vlan| {
            vlan.extend(more.as_object().cloned().unwrap_or_default());
        });
        json!({ "name": name, "type": "vlan", "state": "up", "vlan": vlan })
    };
    trial
        .works(
            "a VLAN over a bond that comes after it in the document",
            &json!([vlan("bond0.7", "bond0", json!({})), { "name": "bond0", "type": "bond", "state": "up",
                "link-aggregation": { "mode": "active-backup", "port": ["eth1"] } }]),
        )
        .await?;
    assert_eq!(trial.link("bond0.7").await?["link"], "bond0");
    trial
        .works(
            "the same number with another tag",
            &json!([vlan("bond0.7ad", "bond0", json!({ "protocol": "802.1ad" }))]),
        )
        .await?;
    trial
        .works(
            "one that takes the number of one that goes",
            &json!([{ "name": "bond0.7", "type": "vlan", "state": "absent" }, vlan("seven", "bond0", json!({}))]),
        )
        .await?;
    assert_eq!(trial.link("seven").await?["link"], "bond0");
    trial
        .works(
            "a base that is down",
            &json!([{ "name": "eth3", "type": "ethernet", "state": "down" }, vlan("eth3.7", "eth3", json!({}))]),
        )
        .await?;
    trial
        .works(
            "an ipvlan, which this NetworkManager has",
            &json!([{ "name": "i1", "type": "ipvlan", "state": "up", "ipvlan": { "base-iface": "eth2", "mode": "l3" } }]),
        )
        .await?;
    trial.works("everything gone", &absent(&["seven", "bond0.7ad", "bond0", "eth3.7", "i1"])).await
}

#[tokio::test]
async fn what_another_policy_makes_counts_and_warnings_are_notes_of_their_policy() -> Result<()> {
    let program = binaries::knmstate().await?.display().to_string();
    let lab = Lab::new().await?;
    let node = lab.nm_node("node1").start().await?;
    node.come_to_rest().await?;
    let (policies, output) = (lab.folder().join("policies"), lab.folder().join("output"));
    fs::create_dir(&policies)?;
    for (name, desired) in [
        ("a-bridge", json!({ "interfaces": [bridge("v2")] })),
        (
            "b-cable",
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
            .arg(format!("--state-dir={}", lab.folder().join("state").display()))
            .arg(format!("--output={}", output.display()))
            .env("RUST_BACKTRACE", "0")
    };
    for (round, done) in ["applied", "unchanged"].into_iter().enumerate() {
        let said = node.exec_with(call(), LIMIT).await?;
        for policy in ["a-bridge", "b-cable", "c-address"] {
            let line = said.stdout().lines().find(|line| line.starts_with(policy)).map(str::to_owned);
            ensure!(
                line.is_some_and(|line| line.contains(done)),
                "{round}: {}{}",
                said.stdout(),
                said.stderr()
            );
        }
        for (policy, warned) in [("b-cable", false), ("c-address", true)] {
            let text = fs::read_to_string(output.join(format!("nnce-node1.{policy}.yaml")))?;
            let enactment: Value = serde_saphyr::from_str(&text)?;
            let note = "interfaces[eth1].ipv4.address[0].ip: 10.98.0.0 is the address of 10.98.0.0/24; neighbours may not speak to it";
            let notes = &enactment["status"]["notes"];
            let expected = if warned { json!([note]) } else { Value::Null };
            assert_eq!(*notes, expected, "{done}: {policy}: {text}");
        }
    }
    Ok(())
}
