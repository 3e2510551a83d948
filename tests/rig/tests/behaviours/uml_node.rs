//! A node with a kernel of its own: what the machine's kernel lacks, applied through nmstate and tested with traffic.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use rig::{Lab, UmlNode, Userland, binaries, leftovers, process::Invocation, wait};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

const APPLY_LIMIT: Duration = Duration::from_mins(2);
const SHORT_LIMIT: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_full_kernel_boots_with_network_manager_and_three_nics() -> Result<()> {
    let lab = Lab::new().await?;
    let node = lab.uml_node("node1").start().await?;
    let devices = node.exec(["nmcli", "-t", "-f", "DEVICE,STATE", "device"]).await?.success()?;
    for expected in ["eth1:disconnected", "eth2:disconnected", "eth3:disconnected", "mgmt0:unmanaged"] {
        ensure!(devices.lines().any(|device| device == expected), "no {expected} in\n{devices}");
    }
    assert_eq!(node.exec(["hostname"]).await?.success()?.trim(), "node1");
    for kind in [
        "bond0 type bond mode active-backup",
        "vlan0 link eth3 type vlan id 100",
        "bridge0 type bridge vlan_filtering 1",
        "vrf0 type vrf table 100",
        "dummy0 type dummy",
    ] {
        let words = ["ip", "link", "add"].into_iter().chain(kind.split(' '));
        node.exec(words).await?.success().with_context(|| kind.to_owned())?;
    }
    // Every retrieve of nmstate sends this request, which panics this kernel if its own network driver gets it.
    node.exec(["ethtool", "--show-ring", "*"]).await?;
    node.exec(["true"]).await?.success()?;
    Ok(())
}

#[tokio::test]
async fn each_userland_has_its_version_of_network_manager() -> Result<()> {
    let lab = Lab::new().await?;
    for userland in Userland::ALL {
        let node = lab.uml_node(userland.suite()).userland(userland).start().await?;
        let version = node.exec(["NetworkManager", "--version"]).await?.success()?;
        ensure!(version.starts_with(&format!("{}.", userland.network_manager())), "{userland:?}: {version}");
    }
    Ok(())
}

#[tokio::test]
async fn an_open_vswitch_bridge_is_created_through_nmstate_and_carries_traffic() -> Result<()> {
    let lab = Lab::new().await?;
    let node = lab.uml_node("node1").open_vswitch().start().await?;
    apply(&node, &json!({"interfaces": [
        {"name": "br1", "type": "ovs-bridge", "state": "up", "bridge": {"port": [{"name": "eth1"}, {"name": "inside"}]}},
        {"name": "inside", "type": "ovs-interface", "state": "up",
         "ipv4": {"enabled": true, "dhcp": false, "address": [{"ip": "10.98.0.80", "prefix-length": 24}]}},
    ]}))
    .await?;
    // The datapath of the kernel, and not the one in user space.
    let datapath = node.exec(["ovs-dpctl", "show"]).await?.success()?;
    ensure!(datapath.contains("eth1") && datapath.contains("inside (internal)"), "{datapath}");
    eventually(&node, &["ping", "-c1", "-W1", "10.98.0.1"]).await
}

#[tokio::test]
async fn a_simulated_nic_has_virtual_functions_with_interfaces() -> Result<()> {
    let lab = Lab::new().await?;
    let node = lab.uml_node("node1").simulated_nics(2).start().await?;
    let devices = async || node.exec(["nmcli", "-t", "-f", "DEVICE,STATE", "device"]).await?.success();
    let found = devices().await?;
    for expected in ["eth3:disconnected", "sim0:disconnected", "sim1:disconnected", "mgmt0:unmanaged"] {
        ensure!(found.lines().any(|device| device == expected), "no {expected} in\n{found}");
    }
    let device = "/sys/class/net/sim0/device";
    node.exec(["sh", "-c", &format!("echo 2 >{device}/sriov_numvfs")]).await?.success()?;
    wait::until(SHORT_LIMIT, "interfaces of the functions", async || {
        let found = devices().await?;
        ensure!(found.contains("sim0v0:disconnected") && found.contains("sim0v1:disconnected"), "{found}");
        Ok(())
    })
    .await?;
    let listed = node.exec(["ls", &format!("{device}/virtfn1/net")]).await?.success()?;
    assert_eq!(listed.trim(), "sim0v1");
    let links = node.exec(["ip", "-j", "link", "show", "sim0"]).await?.json()?;
    assert_eq!(links[0]["vfinfo_list"].as_array().map(Vec::len), Some(2), "{links:#}");

    node.exec(["sh", "-c", &format!("echo 0 >{device}/sriov_numvfs")]).await?.success()?;
    wait::until(SHORT_LIMIT, "the functions to be removed", async || {
        let found = devices().await?;
        ensure!(!found.contains("sim0v"), "{found}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_vlan_on_a_bond_is_applied_through_nmstate_and_removed() -> Result<()> {
    let lab = Lab::new().await?;
    let node = lab.uml_node("node1").start().await?;
    apply(&node, &vlan_on_bond("10.100.0.1")).await?;

    let links = links(&node).await?;
    let bond = named(&links, "bond0")?;
    assert_eq!(bond["linkinfo"]["info_data"]["mode"], "active-backup");
    for port in ["eth1", "eth2"] {
        assert_eq!(named(&links, port)?["master"], "bond0");
    }
    let vlan = named(&links, "bond0.100")?;
    assert_eq!(vlan["link"], "bond0");
    assert_eq!(vlan["linkinfo"]["info_kind"], "vlan");
    assert_eq!(vlan["linkinfo"]["info_data"]["id"], 100);
    let address = &vlan["addr_info"][0];
    assert_eq!((&address["local"], &address["prefixlen"]), (&json!("10.100.0.1"), &json!(24)));

    apply(&node, &json!({"interfaces": [{"name": "bond0", "state": "absent"}]})).await?;
    let links = self::links(&node).await?;
    for gone in ["bond0", "bond0.100"] {
        ensure!(named(&links, gone).is_err(), "{gone} is still there");
    }
    for port in ["eth1", "eth2"] {
        ensure!(named(&links, port)?.get("master").is_none(), "{port} still belongs to a bond");
    }
    Ok(())
}

#[tokio::test]
async fn two_nodes_talk_through_tagged_vlans_over_bonds() -> Result<()> {
    let lab = Lab::new().await?;
    let (one, two) = tokio::try_join!(lab.uml_node("node1").start(), lab.uml_node("node2").start())?;
    let (first, second) = (vlan_on_bond("10.100.0.1"), vlan_on_bond("10.100.0.2"));
    tokio::try_join!(apply(&one, &first), apply(&two, &second))?;
    // Frames of full size: the tag makes them longer.
    eventually(&one, &["ping", "-c1", "-W1", "-M", "do", "-s", "1472", "10.100.0.2"]).await?;

    let active = one.exec(["cat", "/sys/class/net/bond0/bonding/active_slave"]).await?.success()?;
    let index = active.trim().trim_start_matches("eth").parse()?;
    one.nic(index).pull().await?;
    eventually(
        &one,
        &["sh", "-c", &format!("! grep -x {} /sys/class/net/bond0/bonding/active_slave", active.trim())],
    )
    .await?;
    eventually(&one, &["ping", "-c1", "-W1", "10.100.0.2"]).await?;
    one.nic(index).restore().await?;

    for index in [1, 2] {
        two.nic(index).drop_packets().await?;
    }
    let lost = one.exec(["ping", "-c1", "-W1", "10.100.0.2"]).await?;
    ensure!(!lost.status.success(), "packets got through: {}", lost.stdout());
    Ok(())
}

#[tokio::test]
async fn a_guest_reaches_a_server_in_the_lab() -> Result<()> {
    let lab = Lab::new().await?;
    let listener = lab.network().listen("10.99.0.1:8080".parse()?).await?;
    let node = lab.uml_node("node1").start().await?;
    let serve = async {
        let (mut connection, peer) = listener.accept().await?;
        connection.write_all(b"hello from the lab").await?;
        Ok::<_, anyhow::Error>(peer.ip().to_string())
    };
    let ask = node.exec(["bash", "-c", "cat </dev/tcp/10.99.0.1/8080"]);
    let (peer, answer) = tokio::time::timeout(SHORT_LIMIT, async { tokio::try_join!(serve, ask) }).await??;
    assert_eq!(answer.success()?, "hello from the lab");
    assert_eq!(peer, node.address());
    Ok(())
}

#[tokio::test]
async fn a_command_keeps_its_input_outputs_status_and_limit() -> Result<()> {
    let lab = Lab::new().await?;
    let node = lab.uml_node("node1").start().await?;

    let script = Invocation::new(["sh", "-c", "cat; echo \"$WORD\" >&2; exit 7"]).env("WORD", "aside");
    let bytes: Vec<u8> = (0..=255).cycle().take(200_000).collect();
    let output = node.exec_with(script.stdin(bytes.clone()), SHORT_LIMIT).await?;
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(output.stderr(), "aside\n");
    ensure!(output.stdout == bytes, "binary output changed on its way");

    let slow = Invocation::new(["sh", "-c", "echo begun; sleep 4321 & wait"]);
    let error = node.exec_with(slow, Duration::from_secs(1)).await.expect_err("it sleeps for an hour");
    ensure!(format!("{error:#}").contains("killed after 1s; until then it printed: begun"), "{error:#}");
    nothing_sleeps(&node).await?;

    let abandoned = node.exec(["sleep", "4321"]);
    tokio::time::timeout(Duration::from_secs(1), abandoned).await.expect_err("it sleeps for an hour");
    nothing_sleeps(&node).await?;

    let error = node.exec(["/no/such/program"]).await.expect_err("there is none");
    ensure!(format!("{error:#}").contains("/no/such/program: No such file"), "{error:#}");

    let own = node.run_binary(Path::new("/bin/echo"), ["from the machine"], "").await?;
    assert_eq!(own.success()?, "from the machine\n");
    Ok(())
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "measures how soon the end of a guest is noticed")]
async fn a_panic_of_the_guest_is_detected_at_once_and_leaves_nothing() -> Result<()> {
    let lab = Lab::new().await?;
    let node = lab.uml_node("node1").start().await?;
    let begun = Instant::now();
    let error = node.exec(["sh", "-c", "echo c >/proc/sysrq-trigger"]).await.expect_err("the kernel panics");
    ensure!(format!("{error:#}").contains("Kernel panic - not syncing: sysrq triggered crash"), "{error:#}");
    ensure!(begun.elapsed() < Duration::from_secs(10), "noticed only after {:?}", begun.elapsed());

    let id = lab.id().to_owned();
    drop((node, lab));
    assert_eq!(leftovers::of_lab(&id)?, std::collections::BTreeSet::new());
    Ok(())
}

#[tokio::test]
async fn a_dropped_guest_leaves_nothing_in_its_lab() -> Result<()> {
    let lab = Lab::new().await?;
    let before = leftovers::of_lab(lab.id())?;
    let node = lab.uml_node("node1").start().await?;
    ensure!(leftovers::of_lab(lab.id())?.len() > before.len(), "the guest has no processes");
    drop(node);
    assert_eq!(leftovers::of_lab(lab.id())?, before);
    // The kernel removes a network namespace some time after its last process.
    wait::until(SHORT_LIMIT, "its veth interfaces to be deleted", async || {
        let links = lab.network().run(["ip", "-br", "link"]).await?.success()?;
        ensure!(!links.contains("v11-"), "{links}");
        Ok(())
    })
    .await
}

fn vlan_on_bond(address: &str) -> Value {
    json!({"interfaces": [
        {
            "name": "bond0", "type": "bond", "state": "up",
            "link-aggregation": {"mode": "active-backup", "options": {"miimon": 100}, "port": ["eth1", "eth2"]},
        },
        {
            "name": "bond0.100", "type": "vlan", "state": "up", "vlan": {"base-iface": "bond0", "id": 100},
            "ipv4": {"enabled": true, "dhcp": false, "address": [{"ip": address, "prefix-length": 24}]},
        },
    ]})
}

async fn apply(node: &UmlNode, desired: &Value) -> Result<()> {
    let program = UmlNode::path_inside(&binaries::apply_state().await?)?;
    node.exec_with(Invocation::new([program]).stdin(desired.to_string()), APPLY_LIMIT).await?.success()?;
    Ok(())
}

/// All links with their addresses, as `ip -j -d addr` shows them.
async fn links(node: &UmlNode) -> Result<Vec<Value>> {
    let links = node.exec(["ip", "-j", "-d", "addr"]).await?.json()?;
    Ok(links.as_array().context("a list of links")?.clone())
}

fn named<'a>(links: &'a [Value], name: &str) -> Result<&'a Value> {
    links.iter().find(|link| link["ifname"] == name).with_context(|| format!("no link {name} in {links:?}"))
}

async fn eventually(node: &UmlNode, command: &[&str]) -> Result<()> {
    wait::until(SHORT_LIMIT, &command.join(" "), async || {
        node.exec(command.iter().copied()).await?.success()
    })
    .await?;
    Ok(())
}

async fn nothing_sleeps(node: &UmlNode) -> Result<()> {
    eventually(node, &["sh", "-c", "! pgrep -x sleep"]).await
}
