//! `knmstate standalone` on a real NetworkManager: what is ordered is there, or everything is as before with a reason.

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
const SOON: Duration = Duration::from_secs(20);

#[tokio::test]
async fn policies_become_the_network_and_a_second_run_touches_nothing() -> Result<()> {
    let trial = Trial::new().await?;
    trial.policy("10-bridge", &with_address())?;
    trial.policy("20-routes", &json!({ "routes": { "config": [
        { "destination": "198.51.100.0/24", "next-hop-interface": "br1", "next-hop-address": "10.98.0.254", "table-id": 254 }
    ] } }))?;
    let first = trial.once().await?;
    ensure!(first.status.code() == Some(0), "{}{}", first.stdout(), first.stderr());
    for line in ["10-bridge  applied", "20-routes  applied"] {
        ensure!(first.stdout().contains(line), "{}", first.stdout());
    }
    let kernel = trial.node.snapshot().await?;
    ensure!(kernel.mentions("10.98.0.77") && kernel.mentions("198.51.100.0/24"), "{kernel:?}");
    let status = trial.enactment("10-bridge")?;
    assert_eq!(shown(&status), "Available SuccessfullyConfigured", "{status}");
    // The machine's own kernel has no VLAN filtering on bridges; nothing is made of that but a remark.
    assert!(status["notes"][0].as_str().is_some_and(|note| note.contains("br1")), "{status}");
    let state = fs::read_to_string(trial.output.join("nns-node1.yaml"))?;
    ensure!(state.contains("10.98.0.77") && state.contains("hostNetworkManagerVersion"), "{state}");

    let times = trial.times_of_output()?;
    let second = trial.once().await?;
    ensure!(second.stdout().contains("10-bridge  unchanged"), "{}", second.stdout());
    assert_eq!(trial.node.snapshot().await?, kernel);
    assert_eq!(trial.times_of_output()?, times, "what is said already is not written again");
    Ok(())
}

#[tokio::test]
async fn a_policy_that_takes_the_default_route_is_rolled_back_within_15_seconds() -> Result<()> {
    let trial = Trial::new().await?;
    let before = trial.node.snapshot().await?;
    trial.policy(
        "cut-off",
        &json!({ "routes": { "config": [
        { "destination": "0.0.0.0/0", "next-hop-interface": "eth0", "state": "absent" }
    ] } }),
    )?;
    let began = Instant::now();
    let output = trial.once().await?;
    let took = began.elapsed();
    trial.rolled_back(
        &output,
        "cut-off",
        &["probe \"default-gateway\"", "10.99.0.254", "no default route is left"],
    )?;
    trial.node.is_again(&before, SOON).await?;
    ensure!(took < Duration::from_secs(15), "it took {took:?}");
    println!("default route: rolled back and reported after {took:?}");
    Ok(())
}

#[tokio::test]
async fn a_policy_that_takes_the_only_name_server_is_rolled_back_within_15_seconds() -> Result<()> {
    let trial = Trial::new().await?;
    let before = trial.node.snapshot().await?;
    trial.policy(
        "mute",
        &json!({ "dns-resolver": { "config": { "server": [], "search": [] } },
        "interfaces": [{ "name": "eth0", "type": "ethernet", "state": "up", "ipv4": {
            "enabled": true, "dhcp": false, "address": [{ "ip": "10.99.0.11", "prefix-length": 24 }] } }] }),
    )?;
    let began = Instant::now();
    let output = trial.once().await?;
    let took = began.elapsed();
    trial.rolled_back(&output, "mute", &["probe \"name-servers\"", "10.99.0.53"])?;
    trial.node.is_again(&before, SOON).await?;
    ensure!(took < Duration::from_secs(15), "it took {took:?}");
    println!("name server: rolled back and reported after {took:?}");
    Ok(())
}

#[tokio::test]
async fn a_gateway_that_no_longer_answers_is_noticed() -> Result<()> {
    let trial = Trial::new().await?;
    let before = trial.node.snapshot().await?;
    // The address stays, but in a network of its own: the gateway is configured and cannot be reached.
    trial.policy_with(
        "stray",
        &json!({ "interfaces": [{ "name": "eth0", "type": "ethernet", "state": "up", "ipv4": {
        "enabled": true, "dhcp": false, "address": [{ "ip": "10.55.0.11", "prefix-length": 24 }] } }],
        "routes": { "config": [
            { "destination": "0.0.0.0/0", "next-hop-interface": "eth0", "state": "absent" },
            { "destination": "0.0.0.0/0", "next-hop-interface": "eth0", "next-hop-address": "10.55.0.254" }
        ] } }),
        &json!({ "probes": [{ "name": "gateway", "timeout": "5s", "builtIn": "DefaultGateway" }] }),
    )?;
    let output = trial.once_with(&["--max-attempts=1"]).await?;
    trial.rolled_back(&output, "stray", &["probe \"gateway\"", "10.55.0.254", "within 5 s"])?;
    trial.node.is_again(&before, SOON).await
}

#[tokio::test]
async fn without_gateway_and_name_server_a_policy_is_available_at_once() -> Result<()> {
    let trial = Trial::with(Primary::Unconfigured).await?;
    trial.policy("bridge", &with_address())?;
    let began = Instant::now();
    let output = trial.once().await?;
    let took = began.elapsed();
    ensure!(output.status.success(), "{}{}", output.stdout(), output.stderr());
    ensure!(took < Duration::from_secs(5), "it took {took:?}");
    println!("isolated node: available after {took:?}");
    Ok(())
}

#[tokio::test]
async fn killed_between_apply_and_commit_the_node_is_as_before_and_the_order_is_tried_again() -> Result<()> {
    let trial = Trial::new().await?;
    let before = trial.node.snapshot().await?;
    trial.policy_with("p", &with_address(), &slow_probe())?;
    let agent = trial.start(&["--change-deadline=8"])?;
    trial.appears("10.98.0.77").await?;
    // SIGKILL is what a handle does when it is dropped.
    drop(agent);
    let began = Instant::now();
    trial.node.is_again(&before, Duration::from_secs(8 + 5)).await?;
    println!("killed agent: as before after {:?} of 8 s", began.elapsed());

    // Its next life knows of the attempt, and goes on from there; and what is open when it starts is rolled back.
    let again = trial.start(&["--change-deadline=60"])?;
    trial.appears("10.98.0.77").await?;
    drop(again);
    let third = trial.start(&["--change-deadline=60"])?;
    wait::until(LIMIT, "the enactment to tell of the interruptions", async || {
        let status = trial.enactment("p")?;
        ensure!(status["retryCount"]["1"].as_i64() >= Some(2), "{status}");
        Ok(())
    })
    .await?;
    third.signal(Signal::SIGTERM)?;
    trial.node.is_again(&before, SOON).await?;
    drop(third);
    Ok(())
}

#[tokio::test]
async fn network_manager_that_ends_in_the_middle_leaves_no_half_done_change() -> Result<()> {
    for end in ["stop", "kill"] {
        let trial = Trial::new().await?;
        let before = trial.node.snapshot().await?;
        trial.policy_with("p", &with_address(), &slow_probe())?;
        let agent = trial.start(&["--max-attempts=1"])?;
        trial.appears("10.98.0.77").await?;
        match end {
            "stop" => trial.node.stop_network_manager().await?,
            _ => trial.node.kill_network_manager().await?,
        }
        trial.node.start_network_manager().await?;
        let status = trial.settled("p").await.with_context(|| format!("after {end}"))?;
        assert_eq!(shown(&status), "Failing FailedToConfigure", "after {end}: {status}");
        trial.node.is_again(&before, Duration::from_mins(1)).await.with_context(|| format!("after {end}"))?;
        drop(agent);
    }
    Ok(())
}

#[tokio::test]
async fn an_apply_that_hangs_is_bounded() -> Result<()> {
    let trial = Trial::new().await?;
    let before = trial.node.snapshot().await?;
    trial.policy("p", &many_bridges())?;
    let agent = trial.start(&["--max-attempts=1", "--change-deadline=6"])?;
    wait::until(SOON, "the note of the checkpoint", async || {
        let note = fs::read_to_string(trial.state.join("journal/open-change.json"))?;
        ensure!(note.contains("Checkpoint/"), "not yet");
        Ok(())
    })
    .await?;
    trial.node.signal_network_manager("STOP").await?;
    let began = Instant::now();
    let status = trial.settled("p").await?;
    println!("hanging apply: failed after {:?}", began.elapsed());
    assert_eq!(shown(&status), "Failing FailedToConfigure", "{status}");
    trial.node.signal_network_manager("CONT").await?;
    trial.node.is_again(&before, Duration::from_mins(1)).await?;
    drop(agent);
    Ok(())
}

#[tokio::test]
async fn a_change_of_the_machine_is_reported_and_a_change_of_the_folder_is_carried_out() -> Result<()> {
    let trial = Trial::new().await?;
    let agent = trial.start(&[])?;
    let state = trial.output.join("nns-node1.yaml");
    trial.until_file(&state, "eth0").await?;
    trial.node.exec(["ip", "addr", "add", "10.97.0.1/24", "dev", "eth2"]).await?.success()?;
    trial.until_file(&state, "10.97.0.1").await?;
    trial.policy("p", &with_address())?;
    let status = trial.settled("p").await?;
    assert_eq!(shown(&status), "Available SuccessfullyConfigured", "{status}");
    trial.until_file(&state, "10.98.0.77").await?;
    // A mistake in a file that was good does not touch what is there.
    fs::write(trial.policies.join("p.yaml"), "kind: [")?;
    wait::until(SOON, "the mistake in the log", async || {
        ensure!(agent.log_tail(50).contains("p.yaml: line 1"), "{}", agent.log_tail(50));
        Ok(())
    })
    .await?;
    ensure!(trial.node.snapshot().await?.mentions("10.98.0.77"), "the policy was let go");
    fs::remove_file(trial.policies.join("p.yaml"))?;
    wait::until(SOON, "the enactment to go", async || {
        ensure!(!trial.output.join("nnce-node1.p.yaml").exists(), "it is still there");
        Ok(())
    })
    .await?;
    ensure!(trial.node.snapshot().await?.mentions("10.98.0.77"), "what a policy made stays when it goes");
    Ok(())
}

#[tokio::test]
async fn restarted_twenty_times_with_everything_applied_it_moves_nothing() -> Result<()> {
    let trial = Trial::new().await?;
    trial.policy("bridge", &with_address())?;
    ensure!(trial.once().await?.status.success());
    trial.node.bridges_come_to_rest().await?;
    let monitor = trial.node.enter(Invocation::new(["ip", "monitor", "link", "address", "route", "rule"]));
    let monitor = monitor.start("monitor", &trial.lab.folder().join("monitor.log"))?;
    // Timers of the kernel are late by up to an eighth of their length.
    let mut last = (monitor.log_tail(10_000), Instant::now());
    wait::until(LIMIT, "the kernel to be at rest", async || {
        let heard = monitor.log_tail(10_000);
        if heard != last.0 {
            last = (heard, Instant::now());
        }
        ensure!(last.1.elapsed() >= Duration::from_secs(3), "it still moves: {}", last.0);
        Ok(())
    })
    .await?;
    let (heard, times) = (monitor.log_tail(10_000), trial.times_of_output()?);
    for _ in 0..20 {
        let output = trial.once().await?;
        ensure!(output.stdout().contains("unchanged"), "{}", output.stdout());
    }
    assert_eq!(monitor.log_tail(10_000), heard, "the kernel was told something");
    assert_eq!(trial.times_of_output()?, times, "something was written");
    // It would have been heard.
    trial.node.exec(["ip", "addr", "add", "10.97.0.1/24", "dev", "eth2"]).await?.success()?;
    wait::until(SOON, "the monitor", async || {
        ensure!(monitor.log_tail(10_000) != heard, "it hears nothing");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn after_a_reboot_orders_on_disk_are_carried_out_anew() -> Result<()> {
    let trial = Trial::new().await?;
    trial.policy("bridge", &with_address())?;
    ensure!(trial.once().await?.status.success());
    // A machine that forgets: no profile survives, no interface but hardware.
    trial.node.stop_network_manager().await?;
    trial
        .node
        .exec(["sh", "-c", "rm -f /etc/NetworkManager/system-connections/br1* /etc/NetworkManager/system-connections/eth1*; ip link del br1; ip addr flush dev eth1"])
        .await?
        .success()?;
    trial.node.start_network_manager().await?;
    ensure!(!trial.node.snapshot().await?.mentions("10.98.0.77"), "it was to be forgotten");
    let agent = trial.start(&[])?;
    trial.appears("10.98.0.77").await?;
    drop(agent);
    Ok(())
}

#[tokio::test]
async fn what_is_wrong_is_said_within_seconds_and_nothing_is_touched() -> Result<()> {
    let trial = Trial::new().await?;
    let before = trial.node.snapshot().await?;
    let kind = |name: &str| json!({ "interfaces": [{ "name": "x0", "type": name, "state": "up" }] });
    let captured = json!({ "interfaces": [{ "name": "{{ capture.gw.interfaces.0.name }}", "mtu": 1400 }] });
    for (case, desired, rest, said) in [
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
        trial.policy_with(case, &desired, &rest)?;
        let began = Instant::now();
        let output = trial.once().await?;
        let took = began.elapsed();
        let text = output.stdout().split_whitespace().collect::<Vec<_>>().join(" ");
        ensure!(output.status.code() == Some(1), "{case}: {text}{}", output.stderr());
        ensure!(text.contains(&format!("{case} failed")) && text.contains(said), "{case}: {text}");
        ensure!(text.contains(&format!("{case}.yaml: ")), "{case}: no file: {text}");
        ensure!(took < Duration::from_secs(5), "{case} took {took:?}");
        fs::remove_file(trial.policies.join(format!("{case}.yaml")))?;
    }
    fs::write(trial.policies.join("bad.yaml"), "apiVersion: nmstate.io/v1\nkind: [")?;
    trial.policy("good", &with_address())?;
    let output = trial.once().await?;
    ensure!(output.status.code() == Some(2), "{}", output.stdout());
    ensure!(
        output.stderr().contains("bad.yaml: line ") && output.stderr().contains("nothing was changed"),
        "{}",
        output.stderr()
    );
    assert_eq!(trial.node.snapshot().await?, before);
    Ok(())
}

/// The classic: a bridge takes over the card, the addresses and the routes of whatever carries the default route.
#[tokio::test]
async fn a_bridge_takes_over_the_way_out_and_what_was_captured_stays() -> Result<()> {
    let trial = Trial::new().await?;
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
    trial.policy_with("way-out", &desired, &json!({ "capture": capture }))?;
    let output = trial.once().await?;
    ensure!(output.status.success(), "{}{}", output.stdout(), output.stderr());
    let route = trial.node.exec(["ip", "route", "show", "default"]).await?.success()?;
    ensure!(route.contains("dev br-ex"), "{route}");
    let status = trial.enactment("way-out")?;
    assert_eq!(status["capturedStates"]["base-iface"]["state"]["interfaces"][0]["name"], "eth0", "{status}");
    let probes = status["probes"].as_array().cloned().unwrap_or_default();
    let gateway = probes.iter().find(|probe| probe["name"] == "default-gateway");
    assert_eq!(gateway.map(|probe| &probe["after"]), Some(&json!("Passed")), "{status}");

    // The default route is now on the bridge; resolved anew, the bridge would be put on top of itself.
    let kernel = trial.node.snapshot().await?;
    let again = trial.once().await?;
    ensure!(again.stdout().contains("way-out  unchanged"), "{}", again.stdout());
    assert_eq!(trial.node.snapshot().await?, kernel);
    Ok(())
}

/// A node, and the program in it.
pub(crate) struct Trial {
    pub(crate) lab: Lab,
    pub(crate) node: NmNode,
    program: String,
    policies: PathBuf,
    pub(crate) output: PathBuf,
    state: PathBuf,
}

impl Trial {
    pub(crate) async fn new() -> Result<Self> {
        let trial = Self::with(Primary::Static).await?;
        trial.node.come_to_rest().await?;
        Ok(trial)
    }

    async fn with(primary: Primary) -> Result<Self> {
        let program = binaries::knmstate().await?.display().to_string();
        let lab = Lab::new().await?;
        if primary != Primary::Unconfigured {
            lab.gateway().on().await?;
            lab.dns().on().await?;
        }
        let node = lab.nm_node("node1").primary(primary).start().await?;
        let folder = lab.folder().to_owned();
        fs::create_dir(folder.join("policies"))?;
        let (policies, output, state) =
            (folder.join("policies"), folder.join("output"), folder.join("state"));
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
        let folder = |name: &str, path: &Path| format!("--{name}={}", path.display());
        Invocation::new([&self.program, "standalone", "--node-name=node1"])
            .args([
                folder("policies", &self.policies),
                folder("output", &self.output),
                folder("state-dir", &self.state),
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
        let log = self.lab.folder().join("agent.log");
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
        wait::until(LIMIT, "the order to be settled", async || {
            let status = self.enactment(policy)?;
            let shown = shown(&status);
            ensure!(shown.starts_with("Available") || shown.starts_with("Failing"), "{status}");
            Ok(status)
        })
        .await
    }

    async fn appears(&self, address: &str) -> Result<()> {
        wait::until(LIMIT, address, async || {
            ensure!(self.node.snapshot().await?.mentions(address), "it is not there");
            Ok(())
        })
        .await
    }

    async fn until_file(&self, path: &Path, text: &str) -> Result<()> {
        wait::until(SOON, text, async || {
            ensure!(fs::read_to_string(path)?.contains(text), "it is not in {}", path.display());
            Ok(())
        })
        .await
    }

    pub(crate) fn rolled_back(&self, output: &Output, policy: &str, said: &[&str]) -> Result<()> {
        let text = output.stdout().split_whitespace().collect::<Vec<_>>().join(" ");
        ensure!(output.status.code() == Some(1), "{text}{}", output.stderr());
        let status = self.enactment(policy)?;
        assert_eq!(shown(&status), "Failing FailedToConfigure", "{status}");
        let conditions = status["conditions"].as_array().into_iter().flatten();
        let message: String = conditions
            .filter(|one| one["type"] == "Failing")
            .filter_map(|one| one["message"].as_str())
            .collect();
        for word in said.iter().chain(&["rolled back: the network is as it was before"]) {
            ensure!(message.contains(word), "{word:?} is not said: {message}");
            ensure!(text.contains(word), "{word:?} is not in the table: {text}");
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

/// A bridge on a card, with an address.
pub(crate) fn with_address() -> Value {
    json!({ "interfaces": [
        { "name": "br1", "type": "linux-bridge", "state": "up",
          "bridge": { "options": { "stp": { "enabled": false } }, "port": [{ "name": "eth1" }] },
          "ipv4": { "enabled": true, "dhcp": false, "address": [{ "ip": "10.98.0.77", "prefix-length": 24 }] } }
    ] })
}

/// So much that applying it takes seconds.
fn many_bridges() -> Value {
    let bridges: Vec<Value> = (10..20)
        .map(|number| json!({ "name": format!("br{number}"), "type": "linux-bridge", "state": "up", "bridge": { "port": [] } }))
        .collect();
    json!({ "interfaces": bridges })
}

/// One that keeps the change open for a while, and fails in the end: nobody listens there.
pub(crate) fn slow_probe() -> Value {
    json!({ "probes": [{ "name": "web", "timeout": "60s", "tcp": { "host": "10.99.0.254", "port": 81 } }] })
}
