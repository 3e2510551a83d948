//! `knmstate standalone` on a real NetworkManager: policies are applied, or rolled back with a reason.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use rig::{
    Lab, NmNode, Output, Primary, binaries,
    process::{Invocation, Process},
    wait,
};
use serde_json::{Value, json};
use tokio::time::Instant;

const LIMIT: Duration = Duration::from_mins(3);
const SHORT_LIMIT: Duration = Duration::from_secs(20);

#[tokio::test]
async fn policies_are_applied_and_a_second_run_changes_nothing() -> Result<()> {
    let fixture = StandaloneFixture::new().await?;
    fixture.policy("10-bridge", &with_address())?;
    fixture.policy("20-routes", &json!({ "routes": { "config": [
        { "destination": "198.51.100.0/24", "next-hop-interface": "br1", "next-hop-address": "10.98.0.254", "table-id": 254 }
    ] } }))?;
    let first = fixture.once().await?;
    ensure!(first.status.code() == Some(0), "{}{}", first.stdout(), first.stderr());
    for line in ["10-bridge  applied", "20-routes  applied"] {
        ensure!(first.stdout().contains(line), "{}", first.stdout());
    }
    let kernel = fixture.node.snapshot().await?;
    ensure!(kernel.mentions("10.98.0.77") && kernel.mentions("198.51.100.0/24"), "{kernel:?}");
    let status = fixture.enactment("10-bridge")?;
    assert_eq!(shown(&status), "Available SuccessfullyConfigured", "{status}");
    // The machine's own kernel has no VLAN filtering on bridges, which only adds a note.
    assert!(status["notes"][0].as_str().is_some_and(|note| note.contains("br1")), "{status}");
    let state = fs::read_to_string(fixture.output.join("nns-node1.yaml"))?;
    ensure!(state.contains("10.98.0.77") && state.contains("hostNetworkManagerVersion"), "{state}");

    let times = fixture.times_of_output()?;
    let second = fixture.once().await?;
    ensure!(second.stdout().contains("10-bridge  unchanged"), "{}", second.stdout());
    assert_eq!(fixture.node.snapshot().await?, kernel);
    assert_eq!(fixture.times_of_output()?, times, "unchanged output was written again");
    Ok(())
}

#[tokio::test]
async fn a_policy_that_removes_the_default_route_is_rolled_back_within_15_seconds() -> Result<()> {
    let fixture = StandaloneFixture::new().await?;
    let before = fixture.node.snapshot().await?;
    fixture.policy(
        "cut-off",
        &json!({ "routes": { "config": [
        { "destination": "0.0.0.0/0", "next-hop-interface": "eth0", "state": "absent" }
    ] } }),
    )?;
    let began = Instant::now();
    let output = fixture.once().await?;
    let took = began.elapsed();
    fixture.rolled_back(
        &output,
        "cut-off",
        &["probe \"default-gateway\"", "10.99.0.254", "no default route is left"],
    )?;
    fixture.node.wait_until_restored(&before, SHORT_LIMIT).await?;
    ensure!(took < Duration::from_secs(15), "it took {took:?}");
    println!("default route: rolled back and reported after {took:?}");
    Ok(())
}

#[tokio::test]
async fn a_policy_that_removes_the_only_name_server_is_rolled_back_within_15_seconds() -> Result<()> {
    let fixture = StandaloneFixture::new().await?;
    let before = fixture.node.snapshot().await?;
    fixture.policy(
        "mute",
        &json!({ "dns-resolver": { "config": { "server": [], "search": [] } },
        "interfaces": [{ "name": "eth0", "type": "ethernet", "state": "up", "ipv4": {
            "enabled": true, "dhcp": false, "address": [{ "ip": "10.99.0.11", "prefix-length": 24 }] } }] }),
    )?;
    let began = Instant::now();
    let output = fixture.once().await?;
    let took = began.elapsed();
    fixture.rolled_back(&output, "mute", &["probe \"name-servers\"", "10.99.0.53"])?;
    fixture.node.wait_until_restored(&before, SHORT_LIMIT).await?;
    ensure!(took < Duration::from_secs(15), "it took {took:?}");
    println!("name server: rolled back and reported after {took:?}");
    Ok(())
}

#[tokio::test]
async fn a_gateway_that_no_longer_answers_is_detected() -> Result<()> {
    let fixture = StandaloneFixture::new().await?;
    let before = fixture.node.snapshot().await?;
    // The address stays, but in a network of its own: the gateway is configured and cannot be reached.
    fixture.policy_with(
        "stray",
        &json!({ "interfaces": [{ "name": "eth0", "type": "ethernet", "state": "up", "ipv4": {
        "enabled": true, "dhcp": false, "address": [{ "ip": "10.55.0.11", "prefix-length": 24 }] } }],
        "routes": { "config": [
            { "destination": "0.0.0.0/0", "next-hop-interface": "eth0", "state": "absent" },
            { "destination": "0.0.0.0/0", "next-hop-interface": "eth0", "next-hop-address": "10.55.0.254" }
        ] } }),
        &json!({ "probes": [{ "name": "gateway", "timeout": "5s", "builtIn": "DefaultGateway" }] }),
    )?;
    let output = fixture.once_with(&["--max-attempts=1"]).await?;
    fixture.rolled_back(&output, "stray", &["probe \"gateway\"", "10.55.0.254", "within 5 s"])?;
    fixture.node.wait_until_restored(&before, SHORT_LIMIT).await
}

#[tokio::test]
async fn without_gateway_and_name_server_a_policy_is_available_at_once() -> Result<()> {
    let fixture = StandaloneFixture::with(Primary::Unconfigured).await?;
    fixture.policy("bridge", &with_address())?;
    let began = Instant::now();
    let output = fixture.once().await?;
    let took = began.elapsed();
    ensure!(output.status.success(), "{}{}", output.stdout(), output.stderr());
    ensure!(took < Duration::from_secs(5), "it took {took:?}");
    println!("isolated node: available after {took:?}");
    Ok(())
}

#[tokio::test]
async fn killed_between_apply_and_commit_the_change_is_rolled_back_and_the_order_is_retried() -> Result<()> {
    let fixture = StandaloneFixture::new().await?;
    let before = fixture.node.snapshot().await?;
    fixture.policy_with("p", &with_address(), &slow_probe())?;
    let agent = fixture.start(&["--change-deadline=8"])?;
    fixture.until_present("10.98.0.77").await?;
    // Dropping the handle sends SIGKILL.
    drop(agent);
    let began = Instant::now();
    fixture.node.wait_until_restored(&before, Duration::from_secs(8 + 5)).await?;
    println!("killed agent: rolled back after {:?} of 8 s", began.elapsed());

    // The next process counts this attempt, and a change that is open when a process starts is rolled back.
    let again = fixture.start(&["--change-deadline=60"])?;
    fixture.until_present("10.98.0.77").await?;
    drop(again);
    let third = fixture.start(&["--change-deadline=60"])?;
    wait::until(LIMIT, "the enactment to show the interruptions", async || {
        let status = fixture.enactment("p")?;
        ensure!(status["retryCount"]["1"].as_i64() >= Some(2), "{status}");
        Ok(())
    })
    .await?;
    third.signal(Signal::SIGTERM)?;
    fixture.node.wait_until_restored(&before, SHORT_LIMIT).await?;
    drop(third);
    Ok(())
}

#[tokio::test]
async fn a_change_is_rolled_back_when_network_manager_ends_during_it() -> Result<()> {
    for end in ["stop", "kill"] {
        let fixture = StandaloneFixture::new().await?;
        let before = fixture.node.snapshot().await?;
        fixture.policy_with("p", &with_address(), &slow_probe())?;
        let agent = fixture.start(&["--max-attempts=1"])?;
        fixture.until_present("10.98.0.77").await?;
        match end {
            "stop" => fixture.node.stop_network_manager().await?,
            _ => fixture.node.kill_network_manager().await?,
        }
        fixture.node.start_network_manager().await?;
        let status = fixture.settled("p").await.with_context(|| format!("after {end}"))?;
        assert_eq!(shown(&status), "Failing FailedToConfigure", "after {end}: {status}");
        fixture
            .node
            .wait_until_restored(&before, Duration::from_mins(1))
            .await
            .with_context(|| format!("after {end}"))?;
        drop(agent);
    }
    Ok(())
}

#[tokio::test]
async fn an_apply_that_hangs_is_bounded() -> Result<()> {
    let fixture = StandaloneFixture::new().await?;
    let before = fixture.node.snapshot().await?;
    fixture.policy("p", &many_bridges())?;
    let agent = fixture.start(&["--max-attempts=1", "--change-deadline=6"])?;
    wait::until(SHORT_LIMIT, "the checkpoint in the journal", async || {
        let note = fs::read_to_string(fixture.state.join("journal/open-change.json"))?;
        ensure!(note.contains("Checkpoint/"), "not yet");
        Ok(())
    })
    .await?;
    fixture.node.signal_network_manager("STOP").await?;
    let began = Instant::now();
    let status = fixture.settled("p").await?;
    println!("hanging apply: failed after {:?}", began.elapsed());
    assert_eq!(shown(&status), "Failing FailedToConfigure", "{status}");
    fixture.node.signal_network_manager("CONT").await?;
    fixture.node.wait_until_restored(&before, Duration::from_mins(1)).await?;
    drop(agent);
    Ok(())
}

#[tokio::test]
async fn changes_of_the_machine_are_reported_and_changes_of_the_policies_are_applied() -> Result<()> {
    let fixture = StandaloneFixture::new().await?;
    let agent = fixture.start(&[])?;
    let state = fixture.output.join("nns-node1.yaml");
    fixture.until_file(&state, "eth0").await?;
    fixture.node.exec(["ip", "addr", "add", "10.97.0.1/24", "dev", "eth2"]).await?.success()?;
    fixture.until_file(&state, "10.97.0.1").await?;
    fixture.policy("p", &with_address())?;
    let status = fixture.settled("p").await?;
    assert_eq!(shown(&status), "Available SuccessfullyConfigured", "{status}");
    fixture.until_file(&state, "10.98.0.77").await?;
    // A mistake in a file that was correct before changes nothing.
    fs::write(fixture.policies.join("p.yaml"), "kind: [")?;
    wait::until(SHORT_LIMIT, "the mistake in the log", async || {
        ensure!(agent.log_tail(50).contains("p.yaml: line 1"), "{}", agent.log_tail(50));
        Ok(())
    })
    .await?;
    ensure!(fixture.node.snapshot().await?.mentions("10.98.0.77"), "the policy was undone");
    fs::remove_file(fixture.policies.join("p.yaml"))?;
    wait::until(SHORT_LIMIT, "the enactment to be deleted", async || {
        ensure!(!fixture.output.join("nnce-node1.p.yaml").exists(), "it is still there");
        Ok(())
    })
    .await?;
    ensure!(
        fixture.node.snapshot().await?.mentions("10.98.0.77"),
        "the deletion of the policy undid its change"
    );
    Ok(())
}

#[tokio::test]
async fn restarted_twenty_times_with_everything_applied_it_changes_nothing() -> Result<()> {
    let fixture = StandaloneFixture::new().await?;
    fixture.policy("bridge", &with_address())?;
    ensure!(fixture.once().await?.status.success());
    fixture.node.wait_for_bridges().await?;
    let monitor = fixture.node.enter(Invocation::new(["ip", "monitor", "link", "address", "route", "rule"]));
    let monitor = monitor.start("monitor", &fixture.lab.directory().join("monitor.log"))?;
    // Timers of the kernel are late by up to an eighth of their length.
    let mut last = (monitor.log_tail(10_000), Instant::now());
    wait::until(LIMIT, "the network to settle", async || {
        let log = monitor.log_tail(10_000);
        if log != last.0 {
            last = (log, Instant::now());
        }
        ensure!(last.1.elapsed() >= Duration::from_secs(3), "it still changes: {}", last.0);
        Ok(())
    })
    .await?;
    let (log, times) = (monitor.log_tail(10_000), fixture.times_of_output()?);
    for _ in 0..20 {
        let output = fixture.once().await?;
        ensure!(output.stdout().contains("unchanged"), "{}", output.stdout());
    }
    assert_eq!(monitor.log_tail(10_000), log, "the network was changed");
    assert_eq!(fixture.times_of_output()?, times, "something was written");
    // The monitor works.
    fixture.node.exec(["ip", "addr", "add", "10.97.0.1/24", "dev", "eth2"]).await?.success()?;
    wait::until(SHORT_LIMIT, "the monitor to record the change", async || {
        ensure!(monitor.log_tail(10_000) != log, "it records nothing");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn after_a_reboot_orders_on_disk_are_applied_again() -> Result<()> {
    let fixture = StandaloneFixture::new().await?;
    fixture.policy("bridge", &with_address())?;
    ensure!(fixture.once().await?.status.success());
    // As after a reboot without a disk: no profiles are left, and no interfaces except hardware.
    fixture.node.stop_network_manager().await?;
    fixture
        .node
        .exec(["sh", "-c", "rm -f /etc/NetworkManager/system-connections/br1* /etc/NetworkManager/system-connections/eth1*; ip link del br1; ip addr flush dev eth1"])
        .await?
        .success()?;
    fixture.node.start_network_manager().await?;
    ensure!(!fixture.node.snapshot().await?.mentions("10.98.0.77"), "the bridge is still there");
    let agent = fixture.start(&[])?;
    fixture.until_present("10.98.0.77").await?;
    drop(agent);
    Ok(())
}

#[tokio::test]
async fn errors_are_reported_within_seconds_and_nothing_is_changed() -> Result<()> {
    let fixture = StandaloneFixture::new().await?;
    let before = fixture.node.snapshot().await?;
    let kind = |name: &str| json!({ "interfaces": [{ "name": "x0", "type": name, "state": "up" }] });
    let captured = json!({ "interfaces": [{ "name": "{{ capture.gw.interfaces.0.name }}", "mtu": 1400 }] });
    for (case, desired, rest, expected) in [
        (
            "unknown-key",
            json!({ "interfaces": [{ "name": "eth1", "mtuu": 1 }] }),
            json!({}),
            "interfaces[eth1].mtuu: ",
        ),
        (
            "no-such-interface",
            json!({ "interfaces": [{ "name": "eth9", "type": "ethernet", "state": "up" }] }),
            json!({}),
            "interfaces[eth9]",
        ),
        ("no-such-kind", kind("vrf"), json!({}), "interfaces[x0]"),
        ("no-capture", captured.clone(), json!({}), "capture"),
        ("empty-capture", captured, json!({ "capture": { "gw": "interfaces.name==\"eth77\"" } }), "gw"),
    ] {
        fixture.policy_with(case, &desired, &rest)?;
        let began = Instant::now();
        let output = fixture.once().await?;
        let took = began.elapsed();
        let text = output.stdout().split_whitespace().collect::<Vec<_>>().join(" ");
        ensure!(output.status.code() == Some(1), "{case}: {text}{}", output.stderr());
        ensure!(text.contains(&format!("{case} failed")) && text.contains(expected), "{case}: {text}");
        ensure!(text.contains(&format!("{case}.yaml: ")), "{case}: no file: {text}");
        ensure!(took < Duration::from_secs(5), "{case} took {took:?}");
        fs::remove_file(fixture.policies.join(format!("{case}.yaml")))?;
    }
    fs::write(fixture.policies.join("bad.yaml"), "apiVersion: nmstate.io/v1\nkind: [")?;
    fixture.policy("good", &with_address())?;
    let output = fixture.once().await?;
    ensure!(output.status.code() == Some(2), "{}", output.stdout());
    ensure!(
        output.stderr().contains("bad.yaml: line ") && output.stderr().contains("nothing was changed"),
        "{}",
        output.stderr()
    );
    assert_eq!(fixture.node.snapshot().await?, before);
    Ok(())
}

/// The usual case: a bridge takes over NIC, addresses and routes of the interface with the default route.
#[tokio::test]
async fn a_bridge_takes_over_the_default_route_and_captures_are_kept() -> Result<()> {
    let fixture = StandaloneFixture::new().await?;
    let capture = json!({
        "default-gw": "routes.running.destination==\"0.0.0.0/0\"",
        "base-iface": "interfaces.name==capture.default-gw.routes.running.0.next-hop-interface",
        "base-routes": "routes.running.next-hop-interface==capture.default-gw.routes.running.0.next-hop-interface",
        "bridge-routes": "capture.base-routes | routes.running.next-hop-interface:=\"br-ex\"",
    });
    let desired = json!({
        "interfaces": [{
            "name": "br-ex", "type": "linux-bridge", "state": "up",
            "ipv4": "{{ capture.base-iface.interfaces.0.ipv4 }}",
            "bridge": { "options": { "stp": { "enabled": false } },
                "port": [{ "name": "{{ capture.base-iface.interfaces.0.name }}" }] },
        }],
        "routes": { "config": "{{ capture.bridge-routes.routes.running }}" },
    });
    fixture.policy_with("way-out", &desired, &json!({ "capture": capture }))?;
    let output = fixture.once().await?;
    ensure!(output.status.success(), "{}{}", output.stdout(), output.stderr());
    let route = fixture.node.exec(["ip", "route", "show", "default"]).await?.success()?;
    ensure!(route.contains("dev br-ex"), "{route}");
    let status = fixture.enactment("way-out")?;
    assert_eq!(status["capturedStates"]["base-iface"]["state"]["interfaces"][0]["name"], "eth0", "{status}");
    let probes = status["probes"].as_array().cloned().unwrap_or_default();
    let gateway = probes.iter().find(|probe| probe["name"] == "default-gateway");
    assert_eq!(gateway.map(|probe| &probe["after"]), Some(&json!("Passed")), "{status}");

    // The default route is on the bridge now: resolved again, the captures would make the bridge a port of itself.
    let kernel = fixture.node.snapshot().await?;
    let again = fixture.once().await?;
    ensure!(again.stdout().contains("way-out  unchanged"), "{}", again.stdout());
    assert_eq!(fixture.node.snapshot().await?, kernel);
    Ok(())
}

/// A node, and the program in it.
pub(crate) struct StandaloneFixture {
    pub(crate) lab: Lab,
    pub(crate) node: NmNode,
    program: String,
    policies: PathBuf,
    pub(crate) output: PathBuf,
    pub(crate) state: PathBuf,
}

impl StandaloneFixture {
    pub(crate) async fn new() -> Result<Self> {
        let fixture = Self::with(Primary::Static).await?;
        fixture.node.settle().await?;
        Ok(fixture)
    }

    async fn with(primary: Primary) -> Result<Self> {
        let program = binaries::knmstate().await?.display().to_string();
        let lab = Lab::new().await?;
        if primary != Primary::Unconfigured {
            lab.gateway().on().await?;
            lab.dns().on().await?;
        }
        let node = lab.nm_node("node1").primary(primary).start().await?;
        let directory = lab.directory().to_owned();
        fs::create_dir(directory.join("policies"))?;
        let (policies, output, state) =
            (directory.join("policies"), directory.join("output"), directory.join("state"));
        Ok(Self { lab, node, program, policies, output, state })
    }

    pub(crate) fn policy(&self, name: &str, desired: &Value) -> Result<()> {
        self.policy_with(name, desired, &json!({}))
    }

    pub(crate) fn policy_with(&self, name: &str, desired: &Value, rest: &Value) -> Result<()> {
        let mut spec = rest.clone();
        spec["desiredState"] = desired.clone();
        let policy = json!({ "apiVersion": "nmstate.io/v1", "kind": "NodeNetworkConfigurationPolicy",
            "metadata": { "name": name }, "spec": spec });
        // JSON is YAML.
        Ok(fs::write(self.policies.join(format!("{name}.yaml")), format!("{policy:#}"))?)
    }

    fn call(&self, arguments: &[&str]) -> Invocation {
        let option = |name: &str, path: &Path| format!("--{name}={}", path.display());
        Invocation::new([&self.program, "standalone", "--node-name=node1"])
            .args([
                option("policies", &self.policies),
                option("output", &self.output),
                option("state-dir", &self.state),
            ])
            .args(arguments.iter().copied())
            .env("RUST_BACKTRACE", "0")
    }

    async fn once(&self) -> Result<Output> {
        self.once_with(&[]).await
    }

    pub(crate) async fn once_with(&self, arguments: &[&str]) -> Result<Output> {
        self.node.exec_with(self.call(&["--once"]).args(arguments.iter().copied()), LIMIT).await
    }

    pub(crate) fn start(&self, arguments: &[&str]) -> Result<Process> {
        let log = self.lab.directory().join("agent.log");
        let _ = fs::remove_file(&log);
        self.node.enter(self.call(arguments)).start("agent", &log)
    }

    pub(crate) fn enactment(&self, policy: &str) -> Result<Value> {
        let text = fs::read_to_string(self.output.join(format!("nnce-node1.{policy}.yaml")))?;
        let enactment: Value = serde_saphyr::from_str(&text)?;
        Ok(enactment["status"].clone())
    }

    /// Waits until an order is carried out or has failed for good.
    pub(crate) async fn settled(&self, policy: &str) -> Result<Value> {
        wait::until(LIMIT, "the order to be finished", async || {
            let status = self.enactment(policy)?;
            let shown = shown(&status);
            ensure!(shown.starts_with("Available") || shown.starts_with("Failing"), "{status}");
            Ok(status)
        })
        .await
    }

    pub(crate) async fn until_present(&self, address: &str) -> Result<()> {
        wait::until(LIMIT, address, async || {
            ensure!(self.node.snapshot().await?.mentions(address), "it is not there");
            Ok(())
        })
        .await
    }

    pub(crate) async fn until_file(&self, path: &Path, text: &str) -> Result<()> {
        wait::until(SHORT_LIMIT, text, async || {
            ensure!(fs::read_to_string(path)?.contains(text), "it is not in {}", path.display());
            Ok(())
        })
        .await
    }

    pub(crate) fn rolled_back(&self, output: &Output, policy: &str, expected: &[&str]) -> Result<()> {
        let table = output.stdout().split_whitespace().collect::<Vec<_>>().join(" ");
        ensure!(output.status.code() == Some(1), "{table}{}", output.stderr());
        let status = self.enactment(policy)?;
        assert_eq!(shown(&status), "Failing FailedToConfigure", "{status}");
        let conditions = status["conditions"].as_array().into_iter().flatten();
        let message: String = conditions
            .filter(|one| one["type"] == "Failing")
            .filter_map(|one| one["message"].as_str())
            .collect();
        for text in expected.iter().chain(&["rolled back: the network is as it was before"]) {
            ensure!(message.contains(text), "{text:?} is not in: {message}");
            ensure!(table.contains(text), "{text:?} is not in the table: {table}");
        }
        println!("{message}");
        Ok(())
    }

    /// When each file of the output was written.
    fn times_of_output(&self) -> Result<Vec<(PathBuf, std::time::SystemTime)>> {
        let files = fs::read_dir(&self.output)?;
        let mut times: Vec<_> = files
            .map(|file| {
                let file = file?;
                Ok((file.path(), file.metadata()?.modified()?))
            })
            .collect::<Result<_>>()?;
        times.sort();
        Ok(times)
    }
}

/// The first condition that is true, as `kubectl get` shows it.
pub(crate) fn shown(status: &Value) -> String {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let shown = conditions.into_iter().find(|condition| condition["status"] == "True");
    shown.map_or_else(String::new, |condition| {
        format!("{} {}", condition["type"].as_str().unwrap_or(""), condition["reason"].as_str().unwrap_or(""))
    })
}

/// A bridge on a NIC, with an address.
pub(crate) fn with_address() -> Value {
    json!({ "interfaces": [
        { "name": "br1", "type": "linux-bridge", "state": "up",
          "bridge": { "options": { "stp": { "enabled": false } }, "port": [{ "name": "eth1" }] },
          "ipv4": { "enabled": true, "dhcp": false, "address": [{ "ip": "10.98.0.77", "prefix-length": 24 }] } }
    ] })
}

/// A change that takes seconds to apply.
fn many_bridges() -> Value {
    let bridges: Vec<Value> = (10..20)
        .map(|number| json!({ "name": format!("br{number}"), "type": "linux-bridge", "state": "up", "bridge": { "port": [] } }))
        .collect();
    json!({ "interfaces": bridges })
}

/// A probe that keeps the change open for a while, and fails in the end because the port is closed.
pub(crate) fn slow_probe() -> Value {
    json!({ "probes": [{ "name": "web", "timeout": "60s", "tcp": { "host": "10.99.0.254", "port": 81 } }] })
}
