//! The host on a real NetworkManager: it passes the laws, and a change that is interrupted is rolled back.

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use rig::{
    Lab, NmNode, UmlNode, binaries,
    process::{Invocation, Process},
    wait,
};
use serde_json::{Value, json};
use tokio::time::Instant;

const LIMIT: Duration = Duration::from_mins(3);
const LAWS_LIMIT: Duration = Duration::from_mins(30);
/// Multiplies the time limits of the program, so that a node on a busy machine does not exceed them.
const SLOWNESS: &str = "--slowness=10";
/// For what takes seconds on an idle machine, and much longer on a busy one.
const SHORT_LIMIT: Duration = Duration::from_mins(1);
/// For what takes no time: far less than the minutes for which nmstate retries.
const IMMEDIATE_LIMIT: Duration = Duration::from_secs(20);

#[tokio::test]
async fn the_laws_hold_on_network_manager() -> Result<()> {
    let fixture = HostFixture::new().await?;
    let before = fixture.node.snapshot().await?;
    let laws = fixture.node.exec_with(fixture.call(&[SLOWNESS, "laws", "eth1"]), LAWS_LIMIT).await?;
    assert_eq!(laws.json()?, "the laws hold");
    fixture.node.wait_until_restored(&before, SHORT_LIMIT).await?;
    fixture.journal_is_empty()
}

#[tokio::test]
async fn the_laws_hold_on_another_kernel_and_a_newer_network_manager() -> Result<()> {
    let lab = Lab::new().await?;
    let node = lab.uml_node("node1").start().await?;
    let program = UmlNode::path_inside(&binaries::machine_host().await?)?;
    let call = |arguments: &[&str]| {
        Invocation::new([&program, "--journal", "/var/lib/knmstate", SLOWNESS])
            .args(arguments.iter().copied())
    };
    // Two and a half minutes on an idle machine: the guest is slow, and the laws wait for its network to settle.
    let laws = node.exec_with(call(&["laws", "eth1"]), LAWS_LIMIT).await?;
    assert_eq!(laws.json()?, "the laws hold");
    // Unlike that of the machine's kernel, this answer is known.
    let abilities = node.exec_with(call(&["abilities"]), LIMIT).await?.json()?;
    assert_eq!(abilities["bridgeVlanFiltering"], true, "{abilities}");
    Ok(())
}

#[tokio::test]
async fn a_killed_agent_leaves_the_change_to_the_timer() -> Result<()> {
    let fixture = HostFixture::new().await?;
    let before = fixture.node.snapshot().await?;
    // The change has to be applied within this time, also on a slow machine, and the test has to read it.
    let (agent, _) = fixture.begin_and_wait(20).await?;
    let changed = fixture.node.snapshot().await?;
    ensure!(changed != before, "the change is not there");
    agent.signal(Signal::SIGKILL)?;
    fixture.node.wait_until_restored(&before, Duration::from_secs(20) + SHORT_LIMIT).await?;
    assert_eq!(fixture.host(&["list"]).await?, json!([]));
    fixture.journal_is_empty()
}

#[tokio::test]
async fn a_restarted_agent_finds_the_change_and_rolls_it_back() -> Result<()> {
    let fixture = HostFixture::new().await?;
    let before = fixture.node.snapshot().await?;
    let (agent, checkpoint) = fixture.begin_and_wait(180).await?;
    agent.signal(Signal::SIGKILL)?;

    let open = fixture.host(&["list"]).await?;
    assert_eq!((&open[0]["checkpoint"], &open[0]["ours"]), (&json!(checkpoint), &json!(true)), "{open}");
    assert!(open[0]["guard"].as_u64().is_some_and(|left| (1..=181_000).contains(&left)), "{open}");
    let refused = fixture.change(&small_change(), 10).await?;
    assert_eq!(refused["error"], "Busy", "{refused}");
    let undone = fixture.host(&["roll-back", &checkpoint]).await?;
    assert!(undone.get("ok").is_some(), "{undone}");
    fixture.node.wait_until_restored(&before, SHORT_LIMIT).await?;
    fixture.journal_is_empty()
}

#[tokio::test]
async fn a_change_that_network_manager_lost_is_not_committed_and_can_be_rolled_back() -> Result<()> {
    let fixture = HostFixture::new().await?;
    for end in ["stop", "kill"] {
        let before = fixture.node.snapshot().await?;
        let (agent, checkpoint) = fixture.begin_and_wait(180).await?;
        match end {
            "stop" => fixture.node.stop_network_manager().await?,
            _ => fixture.node.kill_network_manager().await?,
        }
        let lost = json!([{ "checkpoint": checkpoint, "ours": true, "guard": "lost" }]);
        assert_eq!(fixture.host(&["list"]).await?, lost, "while NetworkManager is down, after {end}");
        let refused = fixture.host(&["roll-back", &checkpoint]).await?;
        assert_eq!(refused["error"], "Unavailable", "{refused}");
        fixture.node.start_network_manager().await?;

        let kept = fixture.node.snapshot().await?;
        ensure!(kept.mentions("10.98.0.77"), "after {end}, the change is gone: {kept:?}");
        assert_eq!(fixture.host(&["list"]).await?, lost, "after {end}");
        let refused = fixture.change(&small_change(), 10).await?;
        assert_eq!(refused["error"], "Busy", "{refused}");
        let commit = fixture.host(&["commit", &checkpoint]).await?;
        assert_eq!(commit["error"], "CheckpointGone", "after {end}: {commit}");
        let undone = fixture.host(&["roll-back", &checkpoint]).await?;
        assert!(undone.get("ok").is_some(), "after {end}: {undone}");
        fixture
            .node
            .wait_until_restored(&before, SHORT_LIMIT)
            .await
            .with_context(|| format!("after {end}"))?;
        assert_eq!(fixture.host(&["list"]).await?, json!([]));
        fixture.journal_is_empty()?;
        drop(agent);
    }
    Ok(())
}

#[tokio::test]
async fn after_a_kill_of_network_manager_while_applying_the_change_can_be_rolled_back() -> Result<()> {
    let fixture = HostFixture::new().await?;
    let before = fixture.node.snapshot().await?;
    // It never commits, so the result is the same if NetworkManager is killed after the change is applied.
    let agent = fixture.start_with(&["begin-and-wait", "--deadline=180"], &small_change())?;
    // As soon as the journal has the checkpoint, applying has begun.
    wait::until(SHORT_LIMIT, "the checkpoint in the journal", async || {
        let note: Value =
            serde_json::from_str(&std::fs::read_to_string(fixture.journal.join("open-change.json"))?)?;
        note["checkpoint"].as_str().map(str::to_owned).context("not yet")
    })
    .await?;
    fixture.node.kill_network_manager().await?;
    let outcome = fixture.answer(&agent).await?;
    if outcome.get("ok").is_none() {
        assert_eq!(outcome["error"], "Unavailable", "{outcome}");
    }
    fixture.node.start_network_manager().await?;
    let open = fixture.host(&["list"]).await?;
    assert_eq!(open[0]["guard"], "lost", "{open}");
    let checkpoint = open[0]["checkpoint"].as_str().context("a checkpoint")?;
    let undone = fixture.host(&["roll-back", checkpoint]).await?;
    assert!(undone.get("ok").is_some(), "{undone}");
    fixture.node.wait_until_restored(&before, SHORT_LIMIT).await?;
    fixture.journal_is_empty()
}

#[tokio::test]
async fn a_network_manager_that_hangs_blocks_no_call_for_ever() -> Result<()> {
    let fixture = HostFixture::new().await?;
    let before = fixture.node.snapshot().await?;
    let arguments = ["--observe-limit=5", "change", "--deadline=10", "--look-meanwhile"];
    let agent = fixture.start_with(&arguments, &large_change())?;
    wait::until(SHORT_LIMIT, "the checkpoint in the journal", async || {
        let note = std::fs::read_to_string(fixture.journal.join("open-change.json"))?;
        ensure!(note.contains("Checkpoint/"), "not yet");
        Ok(())
    })
    .await?;
    fixture.node.signal_network_manager("STOP").await?;
    let began = Instant::now();
    let read = fixture.host(&["--observe-limit=5", "observe"]).await?;
    assert_eq!(read["error"], "Timeout", "{read}");
    ensure!(began.elapsed() < Duration::from_secs(5) + IMMEDIATE_LIMIT, "reading took {:?}", began.elapsed());
    let outcome = fixture.answer(&agent).await?;
    assert!(["Timeout", "Unavailable"].map(Into::into).contains(&outcome["error"]), "{outcome}");
    let look = &outcome["look"];
    assert_eq!(look["end"], "reading the state was not finished after 5s", "in the same process: {outcome}");
    // The limit counts in the worker; the rest is the time until the end of the worker is noticed.
    assert!(look["ms"].as_u64().is_some_and(|took| (5_000..15_000).contains(&took)), "{outcome}");
    ensure!(began.elapsed() < Duration::from_secs(10) + SHORT_LIMIT, "beginning took {:?}", began.elapsed());

    fixture.node.signal_network_manager("CONT").await?;
    fixture.node.wait_until_restored(&before, Duration::from_secs(10) + SHORT_LIMIT).await?;
    wait::until(SHORT_LIMIT, "the journal to be empty", async || {
        assert_eq!(fixture.host(&["list"]).await?, json!([]));
        fixture.journal_is_empty()
    })
    .await
}

#[tokio::test]
async fn errors_are_reported_at_once_and_nothing_is_changed() -> Result<()> {
    let fixture = HostFixture::new().await?;
    let before = fixture.node.snapshot().await?;
    for (desired, kind, text) in [
        (json!({ "interfaces": [{ "name": "eth1", "mtuu": 1400 }] }), "Invalid", "interfaces[eth1].mtuu: "),
        (
            json!({ "interfaces": [{ "name": "eth1", "type": "ethernet", "mtu": "many" }] }),
            "Invalid",
            "interfaces[eth1].mtu: ",
        ),
        (
            json!({ "interfaces": [{ "name": "eth1", "802.1x": { "password": "hush", "eap-methods": "hush" } }] }),
            "Invalid",
            "interfaces[eth1].802.1x.eap-methods: ",
        ),
        (
            json!({ "interfaces": [{ "name": "bond1", "type": "bond", "state": "up",
                "link-aggregation": { "mode": "active-backup", "port": ["eth1"] } }] }),
            "Unsupported",
            "interfaces[bond1].type: this machine cannot do interfaces of type bond",
        ),
        (
            json!({ "interfaces": [{ "name": "eth9", "type": "ethernet", "state": "up" }] }),
            "Invalid",
            "interfaces[eth9]: ",
        ),
        (
            json!({ "routes": { "config": [{ "destination": "10.5.0.0/16", "next-hop-interface": "eth9" }] } }),
            "Invalid",
            "routes.config[0].next-hop-interface: there is no interface eth9",
        ),
    ] {
        let began = Instant::now();
        let refused = fixture.change(&desired, 30).await?;
        assert_eq!(refused["error"], kind, "{refused}");
        assert!(refused["text"].as_str().is_some_and(|found| found.starts_with(text)), "{text}: {refused}");
        assert!(!refused.to_string().contains("hush"), "{refused}");
        assert!(began.elapsed() < IMMEDIATE_LIMIT, "{desired} took {:?}", began.elapsed());
        let planned = fixture.plan(&desired).await?;
        assert_eq!((&planned["error"], &planned["text"]), (&refused["error"], &refused["text"]));
    }
    assert_eq!(fixture.node.snapshot().await?, before);
    fixture.node.stop_network_manager().await?;
    for arguments in [&["observe"][..], &["roll-back", "/none"]] {
        let found = fixture.host(arguments).await?;
        assert!(["Unavailable", "CheckpointGone"].map(Into::into).contains(&found["error"]), "{found}");
    }
    let refused = fixture.change(&small_change(), 30).await?;
    assert_eq!(refused["error"], "Unavailable", "{refused}");
    let versions = fixture.host(&["versions"]).await?;
    assert_eq!(versions["networkManager"], Value::Null, "{versions}");
    fixture.journal_is_empty()
}

#[tokio::test]
async fn a_plan_shows_the_changes_and_changes_nothing() -> Result<()> {
    let fixture = HostFixture::new().await?;
    let before = fixture.node.snapshot().await?;
    let plan = fixture.plan(&small_change()).await?;
    let interfaces = plan["ok"]["interfaces"].as_array().with_context(|| plan.to_string())?;
    let names: BTreeSet<_> = interfaces.iter().filter_map(|interface| interface["name"].as_str()).collect();
    assert_eq!(names, BTreeSet::from(["br7", "eth0", "eth1"]), "{plan:#}");
    assert_eq!(plan["ok"]["routes"], small_change()["routes"], "{plan:#}");
    let gone =
        |name: &str| json!({ "interfaces": [{ "name": name, "type": "linux-bridge", "state": "absent" }] });
    assert_eq!(fixture.plan(&gone("br7")).await?, json!({ "ok": {} }), "it does not exist");
    assert_eq!(fixture.node.snapshot().await?, before);
    fixture.journal_is_empty()?;

    let (agent, checkpoint) = fixture.begin_and_wait(180).await?;
    assert_eq!(fixture.plan(&gone("br7")).await?["ok"], gone("br7"), "it exists");
    let changed = fixture.node.snapshot().await?;
    let no_change = json!({ "ok": {} });
    assert_eq!(fixture.plan(&small_change()).await?, no_change, "while the change is open");
    // Only a route, which nmstate's own comparison does not cover.
    let mut another = json!({ "routes": small_change()["routes"] });
    assert_eq!(fixture.plan(&another).await?, no_change);
    another["routes"]["config"][0]["destination"] = json!("203.0.113.0/24");
    assert_eq!(fixture.plan(&another).await?, json!({ "ok": another }));
    assert_eq!(fixture.node.snapshot().await?, changed);
    drop(agent);
    let undone = fixture.host(&["roll-back", &checkpoint]).await?;
    assert!(undone.get("ok").is_some(), "{undone}");
    fixture.node.wait_until_restored(&before, SHORT_LIMIT).await?;

    // A profile that NetworkManager could activate later.
    let profile =
        ["connection", "add", "type", "bridge", "ifname", "br8", "con-name", "br8", "autoconnect", "no"];
    fixture.node.exec(["nmcli"].iter().chain(&profile).copied()).await?.success()?;
    assert_eq!(fixture.plan(&gone("br8")).await?["ok"], gone("br8"), "a profile is left");
    let removed = fixture.change(&gone("br8"), 60).await?;
    assert!(removed.get("ok").is_some(), "{removed}");
    assert_eq!(fixture.plan(&gone("br8")).await?, json!({ "ok": {} }), "it is removed");
    Ok(())
}

#[tokio::test]
async fn kernel_features_are_detected_without_leaving_a_trace() -> Result<()> {
    let fixture = HostFixture::new().await?;
    let before = fixture.node.snapshot().await?;
    let found = fixture.host(&["abilities"]).await?;
    assert_eq!(fixture.node.snapshot().await?, before);
    let bridge = ["ip", "link", "add", "br9", "type", "bridge", "vlan_filtering", "1"];
    let really = fixture.node.exec(bridge).await?.success().is_ok();
    assert_eq!(found["bridgeVlanFiltering"], really, "{found}");
    Ok(())
}

#[tokio::test]
async fn another_programs_checkpoint_is_left_alone() -> Result<()> {
    let fixture = HostFixture::new().await?;
    let manager = "org.freedesktop.NetworkManager";
    let made = fixture
        .node
        .exec([
            "dbus-send",
            "--system",
            "--print-reply=literal",
            &format!("--dest={manager}"),
            "/org/freedesktop/NetworkManager",
            &format!("{manager}.CheckpointCreate"),
            "array:objpath:",
            "uint32:180",
            "uint32:0",
        ])
        .await?
        .success()?;
    let foreign = made.trim();
    let open = fixture.host(&["list"]).await?;
    assert_eq!((&open[0]["checkpoint"], &open[0]["ours"]), (&json!(foreign), &json!(false)), "{open}");
    let refused = fixture.change(&small_change(), 10).await?;
    assert_eq!(refused["error"], "Busy", "{refused}");
    for verb in ["commit", "roll-back"] {
        let refused = fixture.host(&[verb, foreign]).await?;
        assert_eq!(refused["error"], "NotOurs", "{verb}: {refused}");
    }
    let open = fixture.host(&["list"]).await?;
    assert_eq!(open[0]["checkpoint"], foreign, "{open}");
    fixture.journal_is_empty()
}

#[tokio::test]
async fn watchers_get_events_of_the_kernel_and_of_network_manager() -> Result<()> {
    let fixture = HostFixture::new().await?;
    let watcher = fixture.start(&["events", "--silence-ms=60000"], "/dev/null")?;
    wait::until(SHORT_LIMIT, "the watcher to be ready", async || {
        ensure!(watcher.log_tail(100).contains("watching"), "not yet");
        Ok(())
    })
    .await?;
    fixture.node.exec(["ip", "addr", "add", "10.97.0.1/24", "dev", "eth2"]).await?.success()?;
    fixture.node.exec(["ip", "rule", "add", "from", "10.97.0.0/24", "table", "77"]).await?.success()?;
    fixture.node.exec(["ip", "link", "add", "v7", "type", "veth", "peer", "name", "v8"]).await?.success()?;
    fixture.node.kill_network_manager().await?;
    fixture.node.start_network_manager().await?;
    wait::until(SHORT_LIMIT, "all events", async || {
        let log = watcher.log_tail(1000);
        for topic in ["Address", "Route", "Rule", "Link", "ServiceGone", "ServiceBack"] {
            ensure!(log.contains(topic), "no event {topic}: {log}");
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_topology_change_does_not_alter_the_reported_ageing_time() -> Result<()> {
    let fixture = HostFixture::new().await?;
    let desired = json!({ "interfaces": [{
        "name": "br1", "type": "linux-bridge", "state": "up", "ipv4": { "enabled": false }, "ipv6": { "enabled": false },
        "bridge": { "port": [{ "name": "eth1" }], "options": {
            "mac-ageing-time": 600, "stp": { "enabled": true, "forward-delay": 2, "hello-time": 1, "max-age": 20 },
        } },
    }] });
    let changed = fixture.change(&desired, 60).await?;
    assert!(changed.get("ok").is_some(), "{changed}");
    let ageing_time = async |fixture: &HostFixture| -> Result<Value> {
        let links = fixture.node.exec(["ip", "-json", "-details", "link", "show", "br1"]).await?.json()?;
        Ok(links[0]["linkinfo"]["info_data"]["ageing_time"].clone())
    };
    // In hundredths of a second; the kernel uses this value for 22 seconds.
    wait::until(SHORT_LIMIT, "the kernel to shorten the ageing time", async || {
        let time = ageing_time(&fixture).await?;
        ensure!(time == 400, "it is {time}");
        Ok(())
    })
    .await?;
    let state = fixture.host(&["observe"]).await?;
    let plan = fixture.plan(&desired).await?;
    assert_eq!(ageing_time(&fixture).await?, 400, "the topology change was over before it was read");

    let interfaces = state["ok"]["interfaces"].as_array().into_iter().flatten();
    let seen: Vec<&Value> = interfaces
        .filter(|interface| interface["name"] == "br1")
        .map(|bridge| &bridge["bridge"]["options"]["mac-ageing-time"])
        .collect();
    assert_eq!(seen, [600], "{state}");
    assert_eq!(plan, json!({ "ok": {} }));
    Ok(())
}

/// A node, and the program that calls the host on it. Each call is a process of its own, so all state is on disk.
struct HostFixture {
    lab: Lab,
    node: NmNode,
    program: String,
    journal: PathBuf,
}

impl HostFixture {
    async fn new() -> Result<Self> {
        let program = binaries::machine_host().await?.display().to_string();
        let lab = Lab::new().await?;
        let node = lab.nm_node("node1").start().await?;
        node.settle().await?;
        let fixture = Self { journal: lab.directory().join("journal"), lab, node, program };
        Ok(fixture)
    }

    fn call(&self, arguments: &[&str]) -> Invocation {
        Invocation::new([&self.program, "--journal"])
            .arg(self.journal.display().to_string())
            .args(arguments.iter().copied())
            .env("RUST_BACKTRACE", "0")
    }

    async fn host(&self, arguments: &[&str]) -> Result<Value> {
        self.node.exec_with(self.call(arguments), LIMIT).await?.json()
    }

    async fn change(&self, desired: &Value, deadline: u32) -> Result<Value> {
        let call = self.call(&["change", &format!("--deadline={deadline}")]).stdin(desired.to_string());
        self.node.exec_with(call, LIMIT).await?.json()
    }

    async fn plan(&self, desired: &Value) -> Result<Value> {
        let call = self.call(&["plan"]).stdin(desired.to_string());
        let mut plan = self.node.exec_with(call, LIMIT).await?.json()?;
        // The time differs with each call.
        plan.as_object_mut().into_iter().for_each(|plan| drop(plan.remove("ms")));
        Ok(plan)
    }

    /// Starts the program with a file as its input; its output goes to its log.
    fn start(&self, arguments: &[&str], input: &str) -> Result<Process> {
        let shell = Invocation::new(["sh", "-c", "input=$1; shift; exec \"$@\" <$input", "sh", input]);
        let call = shell
            .args([&self.program, "--journal"])
            .arg(self.journal.display().to_string())
            .args(arguments.iter().copied());
        let log = self.lab.directory().join("agent.log");
        let _ = std::fs::remove_file(&log);
        self.node.enter(call).start("agent", &log)
    }

    fn start_with(&self, arguments: &[&str], desired: &Value) -> Result<Process> {
        let input = self.lab.directory().join("desired.json");
        std::fs::write(&input, desired.to_string())?;
        self.start(arguments, &input.display().to_string())
    }

    /// Starts a change, and waits until it is applied and open. Returns the name of its checkpoint, too.
    async fn begin_and_wait(&self, deadline: u32) -> Result<(Process, String)> {
        let agent =
            self.start_with(&["begin-and-wait", &format!("--deadline={deadline}")], &small_change())?;
        let answer = self.answer(&agent).await?;
        let checkpoint = answer["ok"].as_str().with_context(|| answer.to_string())?.to_owned();
        Ok((agent, checkpoint))
    }

    /// The first line that it prints.
    async fn answer(&self, agent: &Process) -> Result<Value> {
        wait::until(LIMIT, "an answer of the agent", async || {
            let log = agent.log_tail(10);
            Ok(serde_json::from_str(log.lines().next().context("nothing yet")?)?)
        })
        .await
    }

    fn journal_is_empty(&self) -> Result<()> {
        match std::fs::read_dir(&self.journal) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error.into()),
            Ok(files) => {
                let files: Vec<_> =
                    files.map(|file| file.map(|file| file.path())).collect::<Result<_, _>>()?;
                ensure!(files.is_empty(), "left in the journal: {files:?}");
                Ok(())
            }
        }
    }
}

/// A change of a NIC that is not configured, of the one that is, and a new interface.
fn small_change() -> Value {
    json!({
        "interfaces": [
            { "name": "eth1", "type": "ethernet", "state": "up", "mtu": 1400,
              "ipv4": { "enabled": true, "dhcp": false, "address": [{ "ip": "10.98.0.77", "prefix-length": 24 }] } },
            { "name": "eth0", "type": "ethernet", "state": "up", "mtu": 1420 },
            { "name": "br7", "type": "linux-bridge", "state": "up", "bridge": { "port": [] } }
        ],
        "routes": { "config": [
            { "destination": "198.51.100.0/24", "next-hop-interface": "eth1", "next-hop-address": "10.98.0.1" }
        ] }
    })
}

/// A change that takes seconds to apply.
fn large_change() -> Value {
    let mut desired = small_change();
    let bridges = (10..20).map(|number| {
        json!({ "name": format!("br{number}"), "type": "linux-bridge", "state": "up", "bridge": { "port": [] } })
    });
    desired["interfaces"]
        .as_array_mut()
        .into_iter()
        .for_each(|interfaces| interfaces.extend(bridges.clone()));
    desired
}
