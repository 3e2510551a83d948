//! `knmstate standalone` on a kernel of its own: bonds, VLANs, and bridges that filter VLANs.

use std::time::Duration;

use anyhow::{Result, ensure};
use rig::{Lab, Output, UmlNode, binaries, process::Invocation};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_mins(4);

#[tokio::test]
async fn bonds_vlans_and_trunks_are_created_once_and_not_changed_again() -> Result<()> {
    let lab = Lab::new().await?;
    let node = lab.uml_node("node1").start().await?;
    // The policies are sorted by name, but the VLAN needs the bond.
    policy(
        &node,
        "a-vlan",
        &json!({ "interfaces": [
        { "name": "bond0.7", "type": "vlan", "state": "up", "vlan": { "base-iface": "bond0", "id": 7 },
          "ipv4": { "enabled": true, "dhcp": false, "address": [{ "ip": "10.7.0.1", "prefix-length": 24 }] } }
    ] }),
    )
    .await?;
    policy(&node, "b-bond", &json!({ "interfaces": [
        { "name": "bond0", "type": "bond", "state": "up",
          "link-aggregation": { "mode": "active-backup", "options": { "miimon": "140" }, "port": ["eth1", "eth2"] } }
    ] }))
    .await?;
    policy(
        &node,
        "c-bridge",
        &json!({ "interfaces": [
        { "name": "br1", "type": "linux-bridge", "state": "up", "bridge": { "port": [{ "name": "eth3" }] } },
        { "name": "br2", "type": "linux-bridge", "state": "up", "bridge": { "port": [] } }
    ] }),
    )
    .await?;
    let first = once(&node).await?;
    for policy in ["a-vlan", "b-bond", "c-bridge"] {
        ensure!(
            first.stdout().contains(&format!("{policy:8}  applied")),
            "{}{}",
            first.stdout(),
            first.stderr()
        );
    }
    let links = node.exec(["ip", "-j", "-d", "link"]).await?.json()?;
    let find =
        |name: &str| links.as_array().into_iter().flatten().find(|link| link["ifname"] == name).cloned();
    let (bond_vlan, trunk, plain) = (find("bond0.7"), find("br1"), find("br2"));
    ensure!(bond_vlan.is_some_and(|link| link["link"] == "bond0"), "{links:#}");
    let filtering =
        |link: Option<Value>| link.map(|link| link["linkinfo"]["info_data"]["vlan_filtering"].clone());
    assert_eq!((filtering(trunk), filtering(plain)), (Some(json!(1)), Some(json!(0))), "{links:#}");
    let vlans = node.exec(["bridge", "-j", "vlan", "show", "dev", "eth3"]).await?.json()?;
    let vlans: Vec<&Value> = vlans[0]["vlans"].as_array().into_iter().flatten().collect();
    let numbers: Vec<Option<u64>> = vlans.iter().map(|vlan| vlan["vlan"].as_u64()).collect();
    assert_eq!(numbers, (1..=4094).map(Some).collect::<Vec<_>>());
    assert_eq!(vlans[0]["flags"], json!(["PVID", "Egress Untagged"]));

    let second = once(&node).await?;
    for policy in ["a-vlan", "b-bond", "c-bridge"] {
        ensure!(
            second.stdout().contains(&format!("{policy:8}  unchanged")),
            "{}{}",
            second.stdout(),
            second.stderr()
        );
    }
    Ok(())
}

async fn policy(node: &UmlNode, name: &str, desired: &Value) -> Result<()> {
    let policy = json!({ "apiVersion": "nmstate.io/v1", "kind": "NodeNetworkConfigurationPolicy",
        "metadata": { "name": name }, "spec": { "desiredState": desired } });
    let script = format!("mkdir -p /run/policies && cat >/run/policies/{name}.json");
    node.exec_with(Invocation::new(["sh", "-c", &script]).stdin(policy.to_string()), LIMIT)
        .await?
        .success()?;
    Ok(())
}

async fn once(node: &UmlNode) -> Result<Output> {
    let program = UmlNode::path_inside(&binaries::knmstate().await?)?;
    let call = Invocation::new([
        &program,
        "standalone",
        "--once",
        "--policies=/run/policies",
        "--state-dir=/run/state",
        "--v=info",
    ]);
    node.exec_with(call.env("RUST_BACKTRACE", "0"), LIMIT).await
}
