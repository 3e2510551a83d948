//! `knmstate render`: the API server accepts its output, which gives a machine the network of the policy.

mod documents;
mod ignition;
mod overlay;

use std::{fs, time::Duration};

use anyhow::{Context as _, Result, ensure};
use rig::{Lab, NmNode, Output, Primary, UmlNode, binaries, machine::rig_file, process::Invocation, wait};
use serde_json::{Value, json};

use documents::{nic, policy};
use ignition::{Machine as _, MachineConfigFiles, Volatile as _};

const LIMIT: Duration = Duration::from_mins(4);
const SHORT_LIMIT: Duration = Duration::from_secs(40);

/// Runs `knmstate render` with these arguments and this document.
async fn render(arguments: &[&str], stdin: &str) -> Result<Output> {
    let program = binaries::knmstate().await?.display().to_string();
    let call = Invocation::new([&program, "render"]).args(arguments.iter().copied()).stdin(stdin);
    call.run(Duration::from_secs(30)).await
}

async fn machine_config(document: &str) -> Result<Value> {
    let arguments = ["machineconfig", "--file=-", "--pool=worker", "--name=99-worker-test"];
    Ok(serde_saphyr::from_str(&render(&arguments, document).await?.success()?)?)
}

#[tokio::test]
async fn every_machine_config_is_accepted_by_an_api_server_with_the_kind() -> Result<()> {
    let lab = Lab::new().await?;
    let api = lab.api_server().start().await?;
    let definitions = rig_file("openshift").display().to_string();
    api.kubectl(["apply", "-f", &definitions]).await?.success()?;
    wait::until(SHORT_LIMIT, "the API to serve MachineConfigs", async || {
        api.kubectl(["get", "machineconfigs,machineconfigpools"]).await?.success()
    })
    .await?;
    let check = async |object: &str| {
        api.kubectl_with(object, ["apply", "--dry-run=server", "--validate=strict", "-f", "-"]).await
    };
    let mut objects = vec![serde_saphyr::from_str(&render(&["overlay"], "").await?.success()?)?];
    for document in documents::all()? {
        objects.push(machine_config(&document).await?);
    }
    ensure!(objects.len() > 5, "{}", objects.len());
    for object in &objects {
        let answer = check(&object.to_string()).await?.success()?;
        ensure!(answer.contains("created (server dry run)"), "{answer}");
    }
    // A field that does not exist is refused.
    let mut wrong = objects.swap_remove(0);
    wrong["spec"]["files"] = json!([]);
    let answer = check(&wrong.to_string()).await?;
    ensure!(!answer.status.success() && answer.stderr().contains("spec.files"), "{}", answer.stderr());
    Ok(())
}

#[tokio::test]
async fn documents_that_cannot_be_rendered_exit_with_2_and_write_nothing() -> Result<()> {
    let lab = Lab::new().await?;
    let file = lab.directory().join("mc.yaml");
    let output = format!("--output={}", file.display());
    let arguments = ["machineconfig", "--file=-", "--pool=worker", &output];
    let absent =
        policy("p", &json!({ "interfaces": [{ "name": "eth1", "type": "ethernet", "state": "absent" }] }));
    let answer = render(&arguments, &absent).await?;
    assert_eq!(answer.status.code(), Some(2), "{}", answer.stderr());
    ensure!(
        answer.stderr().starts_with("knmstate: standard input: policy p: interfaces[eth1].state: "),
        "{}",
        answer.stderr()
    );
    ensure!(answer.stdout().is_empty() && !file.exists());
    let unnamed = render(&arguments[..3], "interfaces: []").await?;
    assert_eq!(unnamed.status.code(), Some(2), "{}", unnamed.stderr());

    render(&arguments, &policy("p", &json!({ "interfaces": [nic("eth1", "10.98.0.7")] })))
        .await?
        .success()?;
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&file)?.permissions());
    assert_eq!(mode & 0o777, 0o600);
    Ok(())
}

/// Boots the machine with these files: its volatile network state is removed, and NetworkManager is started again.
async fn boot_with(node: &NmNode, files: &MachineConfigFiles) -> Result<()> {
    node.stop_network_manager().await?;
    node.clear().await?;
    node.write_files(files).await?;
    node.start_network_manager().await
}

/// Checks that a run has found all of these policies to be applied already.
fn all_unchanged(output: &Output, policies: &[&str]) -> Result<()> {
    for policy in policies {
        let words = output.stdout().split_whitespace().collect::<Vec<_>>().join(" ");
        ensure!(words.contains(&format!("{policy} unchanged")), "{}{}", output.stdout(), output.stderr());
    }
    Ok(())
}

#[tokio::test]
async fn the_files_give_a_machine_the_network_of_the_policy() -> Result<()> {
    let lab = Lab::new().await?;
    let node = lab.nm_node("node1").primary(Primary::Unconfigured).start().await?;
    // The NIC has a profile already, and NetworkManager prefers the profile that it used last.
    let old = ["connection", "add", "type", "ethernet", "ifname", "eth1", "con-name", "old"];
    let address = ["ipv4.method", "manual", "ipv4.addresses", "10.98.0.5/24"];
    node.exec(["nmcli"].iter().chain(&old).chain(&address).copied()).await?.success()?;
    node.exec(["nmcli", "connection", "up", "old"]).await?.success()?;

    let documents = [
        documents::address_with_routes(),
        documents::plain_bridge(),
        documents::vxlan(),
        documents::on_nics(),
    ];
    let policies: String =
        documents.iter().enumerate().map(|(number, state)| policy(&format!("p{number}"), state)).collect();
    boot_with(&node, &MachineConfigFiles::of(&machine_config(&policies).await?)?).await?;

    wait::until(SHORT_LIMIT, "the network of the policies", async || {
        let addresses = node.exec(["ip", "-j", "-d", "addr"]).await?.json()?;
        let link = |name: &str| {
            let links = addresses.as_array().into_iter().flatten();
            links.clone().find(|link| link["ifname"] == name).cloned().with_context(|| format!("no {name}"))
        };
        let has = |link: &Value, address: &str| {
            let found =
                link["addr_info"].as_array().into_iter().flatten().any(|info| info["local"] == address);
            ensure!(found, "no {address}: {link:#}");
            Ok(())
        };
        ensure!(!addresses.to_string().contains("tentative"), "duplicate address detection is still running");
        let eth1 = link("eth1")?;
        has(&eth1, "10.98.0.7")?;
        has(&eth1, "2001:db8:98::7")?;
        ensure!(!eth1.to_string().contains("10.98.0.5"), "the old profile is active: {eth1:#}");
        ensure!(eth1["mtu"] == 1400, "{eth1:#}");
        let bridge = link("br1")?;
        has(&bridge, "10.97.0.1")?;
        ensure!(link("eth2")?["master"] == "br1", "eth2 is no port");
        let vxlan = link("vx7")?;
        ensure!(vxlan["linkinfo"]["info_data"]["id"] == 7, "{vxlan:#}");
        let mac_vlan = link("mv1")?;
        has(&mac_vlan, "10.96.0.1")?;
        ensure!(mac_vlan["linkinfo"]["info_data"]["mode"] == "bridge", "{mac_vlan:#}");
        has(&link("pair1")?, "10.94.0.1")?;
        let tap = link("tap1")?;
        ensure!(tap["linkinfo"]["info_data"]["mode"] == "vepa", "{tap:#}");
        let routes = node.exec(["ip", "route", "show", "table", "all"]).await?.success()?;
        ensure!(routes.contains("198.51.100.0/24 via 10.98.0.254 dev eth1"), "{routes}");
        ensure!(routes.contains("blackhole 192.0.2.128/25"), "{routes}");
        ensure!(routes.contains("203.0.113.0/24 via 10.98.0.254 dev eth1 table 100"), "{routes}");
        let rules = node.exec(["ip", "rule"]).await?.success()?;
        ensure!(rules.contains("from 203.0.113.0/24 lookup 100"), "{rules}");
        let resolver = node.exec(["cat", "/etc/resolv.conf"]).await?.success()?;
        ensure!(resolver.contains("nameserver 10.98.0.53") && resolver.contains("example.com"), "{resolver}");
        Ok(())
    })
    .await?;

    let directory = lab.directory().join("policies");
    fs::create_dir(&directory)?;
    fs::write(directory.join("all.yaml"), &policies)?;
    node.wait_for_bridges().await?;
    let before = node.snapshot().await?;
    let program = binaries::knmstate().await?.display().to_string();
    let path = |name: &str| lab.directory().join(name).display().to_string();
    let call = Invocation::new([&program, "standalone", "--once", "--policies", &path("policies")])
        .args(["--state-dir", &path("state")]);
    all_unchanged(&node.exec_with(call, LIMIT).await?, &["p0", "p1", "p2", "p3"])?;
    assert_eq!(node.snapshot().await?, before);
    Ok(())
}

#[tokio::test]
async fn the_files_give_a_full_kernel_the_bond_the_vlan_the_trunk_and_the_vrf() -> Result<()> {
    let lab = Lab::new().await?;
    let node = lab.uml_node("node1").start().await?;
    let example = fs::read_to_string(rig_file("../../examples/vlan/on-bond.yaml"))?;
    let trunk = policy("trunk", &documents::trunk("eth3"));
    let vrf = policy("vrf", &documents::vrf());
    let policies = format!("{example}{trunk}{vrf}");
    node.write_files(&MachineConfigFiles::of(&machine_config(&policies).await?)?).await?;
    node.exec(["nmcli", "connection", "reload"]).await?.success()?;

    wait::until(LIMIT, "the network of the policies", async || {
        let links = node.exec(["ip", "-j", "-d", "addr"]).await?.json()?;
        let link = |name: &str| {
            let mut links = links.as_array().into_iter().flatten();
            links
                .find(|link| link["ifname"] == name)
                .cloned()
                .with_context(|| format!("no {name}: {links:#?}"))
        };
        let bond = link("bond0")?;
        let options = &bond["linkinfo"]["info_data"];
        ensure!(options["mode"] == "active-backup" && options["miimon"] == 140, "{bond:#}");
        for port in ["eth1", "eth2"] {
            ensure!(link(port)?["master"] == "bond0", "{port} is no port: {links:#}");
        }
        let vlan = link("bond0.102")?;
        ensure!(vlan["link"] == "bond0" && vlan["linkinfo"]["info_data"]["id"] == 102, "{vlan:#}");
        ensure!(vlan.to_string().contains("10.102.0.11"), "{vlan:#}");
        ensure!(vlan["operstate"] == "UP", "{vlan:#}");
        let (vrf, dummy) = (link("vrf1")?, link("dummy1")?);
        ensure!(vrf["linkinfo"]["info_data"]["table"] == 77, "{vrf:#}");
        ensure!(dummy["master"] == "vrf1" && dummy["mtu"] == 1300, "{dummy:#}");
        ensure!(dummy.to_string().contains("10.95.0.1"), "{dummy:#}");
        let bridge = link("br1")?;
        ensure!(bridge["linkinfo"]["info_data"]["vlan_filtering"] == 1, "{bridge:#}");
        let vlans = node.exec(["bridge", "-j", "vlan", "show", "dev", "eth3"]).await?.json()?;
        let vlans: Vec<_> = vlans[0]["vlans"].as_array().into_iter().flatten().collect();
        ensure!(vlans.len() == 4094, "{} VLANs", vlans.len());
        ensure!(vlans[0]["flags"] == json!(["PVID", "Egress Untagged"]), "{}", vlans[0]);
        Ok(())
    })
    .await?;

    let write = Invocation::new(["sh", "-c", "mkdir -p /run/policies && cat >/run/policies/all.yaml"]);
    node.exec_with(write.stdin(policies), LIMIT).await?.success()?;
    let program = UmlNode::path_inside(&binaries::knmstate().await?)?;
    let call = Invocation::new([&program, "standalone", "--once", "--policies=/run/policies"])
        .args(["--state-dir=/run/state", "--v=info"]);
    all_unchanged(&node.exec_with(call, LIMIT).await?, &["bond-with-vlan", "trunk", "vrf"])
}
