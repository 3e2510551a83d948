//! The host on a real NetworkManager: it obeys the laws, and whatever dies in the middle of a change, the node is as
//! before.

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
/// How slow a node is depends on what else the machine has to do. With this, the program keeps to no limit that a node
/// on a busy machine could need.
const SLOW: &str = "--slowness=10";
/// Within seconds on an idle machine. Who waits this long is on one that is many times slower, or in vain.
const SOON: Duration = Duration::from_mins(1);
/// What is done at once, and far less than the minutes that nmstate tries for or the eternity of a hang.
const AT_ONCE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn the_laws_hold_on_network_manager() -> Result<()> {
    let trial = Trial::new().await?;
    let before = trial.node.snapshot().await?;
    let laws = trial.node.exec_with(trial.call(&[SLOW, "laws", "eth1"]), LAWS_LIMIT).await?;
    assert_eq!(laws.json()?, "the laws hold");
    trial.node.is_again(&before, SOON).await?;
    trial.journal_is_empty()
}

#[tokio::test]
async fn the_laws_hold_on_another_kernel_and_a_newer_network_manager() -> Result<()> {
    let lab = Lab::new().await?;
    let node = lab.uml_node("node1").start().await?;
    let program = UmlNode::path_inside(&binaries::machine_host().await?)?;
    let call = |arguments: &[&str]| {
        Invocation::new([&program, "--journal", "/var/lib/knmstate", SLOW]).args(arguments.iter().copied())
    };
    // Two and a half minutes on an idle machine: the guest is slow, and the laws wait for the node to fall silent.
    let laws = node.exec_with(call(&["laws", "eth1"]), LAWS_LIMIT).await?;
    assert_eq!(laws.json()?, "the laws hold");
    // Unlike the machine's, this kernel is known.
    let abilities = node.exec_with(call(&["abilities"]), LIMIT).await?.json()?;
    assert_eq!(abilities["bridgeVlanFiltering"], true, "{abilities}");
    Ok(())
}

#[tokio::test]
async fn a_killed_agent_leaves_the_change_to_the_timer() -> Result<()> {
    let trial = Trial::new().await?;
    let before = trial.node.snapshot().await?;
    // The change has to be applied within this time, also on a slow machine, and the test has to look at it.
    let (agent, _) = trial.begin_and_wait(20).await?;
    let changed = trial.node.snapshot().await?;
    ensure!(changed != before, "the change is not there");
    agent.signal(Signal::SIGKILL)?;
    trial.node.is_again(&before, Duration::from_secs(20) + SOON).await?;
    assert_eq!(trial.host(&["list"]).await?, json!([]));
    trial.journal_is_empty()
}

#[tokio::test]
async fn a_restarted_agent_finds_the_change_and_undoes_it() -> Result<()> {
    let trial = Trial::new().await?;
    let before = trial.node.snapshot().await?;
    let (agent, checkpoint) = trial.begin_and_wait(180).await?;
    agent.signal(Signal::SIGKILL)?;

    let open = trial.host(&["list"]).await?;
    assert_eq!((&open[0]["checkpoint"], &open[0]["ours"]), (&json!(checkpoint), &json!(true)), "{open}");
    assert!(open[0]["guard"].as_u64().is_some_and(|left| (1..=181_000).contains(&left)), "{open}");
    let refused = trial.change(&two_things(), 10).await?;
    assert_eq!(refused["error"], "Busy", "{refused}");
    let undone = trial.host(&["roll-back", &checkpoint]).await?;
    assert!(undone.get("ok").is_some(), "{undone}");
    trial.node.is_again(&before, SOON).await?;
    trial.journal_is_empty()
}

#[tokio::test]
async fn a_change_that_network_manager_forgot_is_not_committed_and_can_be_undone() -> Result<()> {
    let trial = Trial::new().await?;
    for end in ["stop", "kill"] {
        let before = trial.node.snapshot().await?;
        let (agent, checkpoint) = trial.begin_and_wait(180).await?;
        match end {
            "stop" => trial.node.stop_network_manager().await?,
            _ => trial.node.kill_network_manager().await?,
        }
        let lost = json!([{ "checkpoint": checkpoint, "ours": true, "guard": "lost" }]);
        assert_eq!(trial.host(&["list"]).await?, lost, "while NetworkManager is down, after {end}");
        let refused = trial.host(&["roll-back", &checkpoint]).await?;
        assert_eq!(refused["error"], "Unavailable", "{refused}");
        trial.node.start_network_manager().await?;

        let kept = trial.node.snapshot().await?;
        ensure!(kept.mentions("10.98.0.77"), "after {end}, it was to be kept: {kept:?}");
        assert_eq!(trial.host(&["list"]).await?, lost, "after {end}");
        let refused = trial.change(&two_things(), 10).await?;
        assert_eq!(refused["error"], "Busy", "{refused}");
        let commit = trial.host(&["commit", &checkpoint]).await?;
        assert_eq!(commit["error"], "CheckpointGone", "after {end}: {commit}");
        let undone = trial.host(&["roll-back", &checkpoint]).await?;
        assert!(undone.get("ok").is_some(), "after {end}: {undone}");
        trial.node.is_again(&before, SOON).await.with_context(|| format!("after {end}"))?;
        assert_eq!(trial.host(&["list"]).await?, json!([]));
        trial.journal_is_empty()?;
        drop(agent);
    }
    Ok(())
}

#[tokio::test]
async fn network_manager_killed_while_applying_leaves_nothing_that_cannot_be_undone() -> Result<()> {
    let trial = Trial::new().await?;
    let before = trial.node.snapshot().await?;
    // One that never commits: should applying be over when the blow falls, what has to come out is the same.
    let agent = trial.start_with(&["begin-and-wait", "--deadline=180"], &two_things())?;
    // As soon as the journal knows the checkpoint, applying has begun.
    wait::until(SOON, "the note of the checkpoint", async || {
        let note: Value =
            serde_json::from_str(&std::fs::read_to_string(trial.journal.join("open-change.json"))?)?;
        note["checkpoint"].as_str().map(str::to_owned).context("not yet")
    })
    .await?;
    trial.node.kill_network_manager().await?;
    let outcome = trial.answer(&agent).await?;
    if outcome.get("ok").is_none() {
        assert_eq!(outcome["error"], "Unavailable", "{outcome}");
    }
    trial.node.start_network_manager().await?;
    let open = trial.host(&["list"]).await?;
    assert_eq!(open[0]["guard"], "lost", "{open}");
    let checkpoint = open[0]["checkpoint"].as_str().context("a checkpoint")?;
    let undone = trial.host(&["roll-back", checkpoint]).await?;
    assert!(undone.get("ok").is_some(), "{undone}");
    trial.node.is_again(&before, SOON).await?;
    trial.journal_is_empty()
}

#[tokio::test]
async fn a_network_manager_that_hangs_hangs_nobody() -> Result<()> {
    let trial = Trial::new().await?;
    let before = trial.node.snapshot().await?;
    let arguments = ["--observe-limit=5", "change", "--deadline=10", "--look-meanwhile"];
    let agent = trial.start_with(&arguments, &many_things())?;
    wait::until(SOON, "the note of the checkpoint", async || {
        let note = std::fs::read_to_string(trial.journal.join("open-change.json"))?;
        ensure!(note.contains("Checkpoint/"), "not yet");
        Ok(())
    })
    .await?;
    trial.node.signal_network_manager("STOP").await?;
    let began = Instant::now();
    let read = trial.host(&["--observe-limit=5", "observe"]).await?;
    assert_eq!(read["error"], "Timeout", "{read}");
    ensure!(began.elapsed() < Duration::from_secs(5) + AT_ONCE, "reading took {:?}", began.elapsed());
    let outcome = trial.answer(&agent).await?;
    assert!(["Timeout", "Unavailable"].map(Into::into).contains(&outcome["error"]), "{outcome}");
    let look = &outcome["look"];
    assert_eq!(look["end"], "reading the state was not finished after 5s", "in the same process: {outcome}");
    // The limit is the worker's own; what comes on top is the time that it takes to notice that it has passed.
    assert!(look["ms"].as_u64().is_some_and(|took| (5_000..15_000).contains(&took)), "{outcome}");
    ensure!(began.elapsed() < Duration::from_secs(10) + SOON, "beginning took {:?}", began.elapsed());

    trial.node.signal_network_manager("CONT").await?;
    trial.node.is_again(&before, Duration::from_secs(10) + SOON).await?;
    wait::until(SOON, "the note to be tidied up", async || {
        assert_eq!(trial.host(&["list"]).await?, json!([]));
        trial.journal_is_empty()
    })
    .await
}

#[tokio::test]
async fn what_is_wrong_is_said_at_once_and_nothing_is_touched() -> Result<()> {
    let trial = Trial::new().await?;
    let before = trial.node.snapshot().await?;
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
        let refused = trial.change(&desired, 30).await?;
        assert_eq!(refused["error"], kind, "{refused}");
        assert!(refused["text"].as_str().is_some_and(|found| found.starts_with(text)), "{text}: {refused}");
        assert!(!refused.to_string().contains("hush"), "{refused}");
        assert!(began.elapsed() < AT_ONCE, "{desired} took {:?}", began.elapsed());
        let planned = trial.plan(&desired).await?;
        assert_eq!((&planned["error"], &planned["text"]), (&refused["error"], &refused["text"]));
    }
    assert_eq!(trial.node.snapshot().await?, before);
    trial.node.stop_network_manager().await?;
    for arguments in [&["observe"][..], &["roll-back", "/none"]] {
        let found = trial.host(arguments).await?;
        assert!(["Unavailable", "CheckpointGone"].map(Into::into).contains(&found["error"]), "{found}");
    }
    let refused = trial.change(&two_things(), 30).await?;
    assert_eq!(refused["error"], "Unavailable", "{refused}");
    let versions = trial.host(&["versions"]).await?;
    assert_eq!(versions["networkManager"], Value::Null, "{versions}");
    trial.journal_is_empty()
}

#[tokio::test]
async fn a_plan_says_what_would_change_and_touches_nothing() -> Result<()> {
    let trial = Trial::new().await?;
    let before = trial.node.snapshot().await?;
    let plan = trial.plan(&two_things()).await?;
    let interfaces = plan["ok"]["interfaces"].as_array().with_context(|| plan.to_string())?;
    let names: BTreeSet<_> = interfaces.iter().filter_map(|interface| interface["name"].as_str()).collect();
    assert_eq!(names, BTreeSet::from(["br7", "eth0", "eth1"]), "{plan:#}");
    assert_eq!(plan["ok"]["routes"], two_things()["routes"], "{plan:#}");
    let gone =
        |name: &str| json!({ "interfaces": [{ "name": name, "type": "linux-bridge", "state": "absent" }] });
    assert_eq!(trial.plan(&gone("br7")).await?, json!({ "ok": {} }), "it is gone already");
    assert_eq!(trial.node.snapshot().await?, before);
    trial.journal_is_empty()?;

    let (agent, checkpoint) = trial.begin_and_wait(180).await?;
    assert_eq!(trial.plan(&gone("br7")).await?["ok"], gone("br7"), "it is there");
    let changed = trial.node.snapshot().await?;
    let so_already = json!({ "ok": {} });
    assert_eq!(trial.plan(&two_things()).await?, so_already, "while the change is open");
    // Only a route, which nmstate's own comparison is not asked about.
    let mut another = json!({ "routes": two_things()["routes"] });
    assert_eq!(trial.plan(&another).await?, so_already);
    another["routes"]["config"][0]["destination"] = json!("203.0.113.0/24");
    assert_eq!(trial.plan(&another).await?, json!({ "ok": another }));
    assert_eq!(trial.node.snapshot().await?, changed);
    drop(agent);
    let undone = trial.host(&["roll-back", &checkpoint]).await?;
    assert!(undone.get("ok").is_some(), "{undone}");
    trial.node.is_again(&before, SOON).await?;

    // A profile that NetworkManager would bring up some day.
    let profile =
        ["connection", "add", "type", "bridge", "ifname", "br8", "con-name", "br8", "autoconnect", "no"];
    trial.node.exec(["nmcli"].iter().chain(&profile).copied()).await?.success()?;
    assert_eq!(trial.plan(&gone("br8")).await?["ok"], gone("br8"), "a profile is left");
    let removed = trial.change(&gone("br8"), 60).await?;
    assert!(removed.get("ok").is_some(), "{removed}");
    assert_eq!(trial.plan(&gone("br8")).await?, json!({ "ok": {} }), "now it is gone");
    Ok(())
}

#[tokio::test]
async fn what_the_kernel_can_do_is_found_out_without_leaving_a_trace() -> Result<()> {
    let trial = Trial::new().await?;
    let before = trial.node.snapshot().await?;
    let found = trial.host(&["abilities"]).await?;
    assert_eq!(trial.node.snapshot().await?, before);
    let bridge = ["ip", "link", "add", "br9", "type", "bridge", "vlan_filtering", "1"];
    let really = trial.node.exec(bridge).await?.success().is_ok();
    assert_eq!(found["bridgeVlanFiltering"], really, "{found}");
    Ok(())
}

#[tokio::test]
async fn another_programs_checkpoint_is_left_alone() -> Result<()> {
    let trial = Trial::new().await?;
    let manager = "org.freedesktop.NetworkManager";
    let made = trial
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
    let open = trial.host(&["list"]).await?;
    assert_eq!((&open[0]["checkpoint"], &open[0]["ours"]), (&json!(foreign), &json!(false)), "{open}");
    let refused = trial.change(&two_things(), 10).await?;
    assert_eq!(refused["error"], "Busy", "{refused}");
    for verb in ["commit", "roll-back"] {
        let refused = trial.host(&[verb, foreign]).await?;
        assert_eq!(refused["error"], "NotOurs", "{verb}: {refused}");
    }
    let open = trial.host(&["list"]).await?;
    assert_eq!(open[0]["checkpoint"], foreign, "{open}");
    trial.journal_is_empty()
}

#[tokio::test]
async fn those_who_watch_hear_of_the_kernel_and_of_network_manager() -> Result<()> {
    let trial = Trial::new().await?;
    let watcher = trial.start(&["events", "--silence-ms=60000"], "/dev/null")?;
    wait::until(SOON, "the watcher", async || {
        ensure!(watcher.log_tail(100).contains("watching"), "not yet");
        Ok(())
    })
    .await?;
    trial.node.exec(["ip", "addr", "add", "10.97.0.1/24", "dev", "eth2"]).await?.success()?;
    trial.node.exec(["ip", "rule", "add", "from", "10.97.0.0/24", "table", "77"]).await?.success()?;
    trial.node.exec(["ip", "link", "add", "v7", "type", "veth", "peer", "name", "v8"]).await?.success()?;
    trial.node.kill_network_manager().await?;
    trial.node.start_network_manager().await?;
    wait::until(SOON, "all the news", async || {
        let heard = watcher.log_tail(1000);
        for topic in ["Address", "Route", "Rule", "Link", "ServiceGone", "ServiceBack"] {
            ensure!(heard.contains(topic), "nothing about {topic}: {heard}");
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn what_a_bridge_does_while_its_spanning_tree_changes_is_not_taken_for_a_setting() -> Result<()> {
    let trial = Trial::new().await?;
    let desired = json!({ "interfaces": [{
        "name": "br1", "type": "linux-bridge", "state": "up", "ipv4": { "enabled": false }, "ipv6": { "enabled": false },
        "bridge": { "port": [{ "name": "eth1" }], "options": {
            "mac-ageing-time": 600, "stp": { "enabled": true, "forward-delay": 2, "hello-time": 1, "max-age": 20 },
        } },
    }] });
    let changed = trial.change(&desired, 60).await?;
    assert!(changed.get("ok").is_some(), "{changed}");
    let ageing_time = async |trial: &Trial| -> Result<Value> {
        let links = trial.node.exec(["ip", "-json", "-details", "link", "show", "br1"]).await?.json()?;
        Ok(links[0]["linkinfo"]["info_data"]["ageing_time"].clone())
    };
    // The kernel counts in hundredths, and keeps to this for twenty-two seconds.
    wait::until(SOON, "the kernel to forget sooner", async || {
        let time = ageing_time(&trial).await?;
        ensure!(time == 400, "it is {time}");
        Ok(())
    })
    .await?;
    let state = trial.host(&["observe"]).await?;
    let plan = trial.plan(&desired).await?;
    assert_eq!(ageing_time(&trial).await?, 400, "it was over before it was looked at");

    let interfaces = state["ok"]["interfaces"].as_array().into_iter().flatten();
    let seen: Vec<&Value> = interfaces
        .filter(|interface| interface["name"] == "br1")
        .map(|bridge| &bridge["bridge"]["options"]["mac-ageing-time"])
        .collect();
    assert_eq!(seen, [600], "{state}");
    assert_eq!(plan, json!({ "ok": {} }));
    Ok(())
}

/// A node, and the host on trial in it. Each call is a process of its own, so what is known is what is on disk.
struct Trial {
    lab: Lab,
    node: NmNode,
    program: String,
    journal: PathBuf,
}

impl Trial {
    async fn new() -> Result<Self> {
        let program = binaries::machine_host().await?.display().to_string();
        let lab = Lab::new().await?;
        let node = lab.nm_node("node1").start().await?;
        node.come_to_rest().await?;
        let trial = Self { journal: lab.folder().join("journal"), lab, node, program };
        Ok(trial)
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
        // How long it took is different each time.
        plan.as_object_mut().into_iter().for_each(|plan| drop(plan.remove("ms")));
        Ok(plan)
    }

    /// Starts it with a file as its input; what it prints is in its log.
    fn start(&self, arguments: &[&str], input: &str) -> Result<Process> {
        let shell = Invocation::new(["sh", "-c", "input=$1; shift; exec \"$@\" <$input", "sh", input]);
        let call = shell
            .args([&self.program, "--journal"])
            .arg(self.journal.display().to_string())
            .args(arguments.iter().copied());
        let log = self.lab.folder().join("agent.log");
        let _ = std::fs::remove_file(&log);
        self.node.enter(call).start("agent", &log)
    }

    fn start_with(&self, arguments: &[&str], desired: &Value) -> Result<Process> {
        let input = self.lab.folder().join("desired.json");
        std::fs::write(&input, desired.to_string())?;
        self.start(arguments, &input.display().to_string())
    }

    /// The change is applied and open when this returns, with the name of its checkpoint.
    async fn begin_and_wait(&self, deadline: u32) -> Result<(Process, String)> {
        let agent = self.start_with(&["begin-and-wait", &format!("--deadline={deadline}")], &two_things())?;
        let answer = self.answer(&agent).await?;
        let checkpoint = answer["ok"].as_str().with_context(|| answer.to_string())?.to_owned();
        Ok((agent, checkpoint))
    }

    /// The first line that it prints.
    async fn answer(&self, agent: &Process) -> Result<Value> {
        wait::until(LIMIT, "an answer of the agent", async || {
            let said = agent.log_tail(10);
            Ok(serde_json::from_str(said.lines().next().context("nothing yet")?)?)
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

/// Something for a card that was not configured, for the one that was, and something new.
fn two_things() -> Value {
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

/// So much that applying it takes seconds.
fn many_things() -> Value {
    let mut desired = two_things();
    let bridges = (10..20).map(|number| {
        json!({ "name": format!("br{number}"), "type": "linux-bridge", "state": "up", "bridge": { "port": [] } })
    });
    desired["interfaces"]
        .as_array_mut()
        .into_iter()
        .for_each(|interfaces| interfaces.extend(bridges.clone()));
    desired
}
