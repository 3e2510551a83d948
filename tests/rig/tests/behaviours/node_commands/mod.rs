//! `knmstate node` and `nmstatectl` on a real NetworkManager, as a program that drives the node calls them.

mod concurrency;
mod nmstatectl;

use std::{fs, path::PathBuf, time::Duration};

use anyhow::{Context, Result, ensure};
use rig::{
    Lab, NmNode, Output, binaries,
    process::{Invocation, Process},
    wait,
};
use serde_json::{Value, json};

use crate::standalone::with_address;

const LIMIT: Duration = Duration::from_mins(3);
const SHORT_LIMIT: Duration = Duration::from_mins(1);
const ADDRESS: &str = "10.98.0.77";

#[tokio::test]
async fn the_state_is_shown_in_the_format_of_nmstate() -> Result<()> {
    let fixture = CommandFixture::new().await?;
    let yaml = fixture.node(&["show"], "").await?.success()?;
    ensure!(yaml.starts_with("---\n") && yaml.contains(&fixture.node.address()), "{yaml}");
    let all = fixture.node(&["show", "--json"], "").await?.json()?;
    ensure!(all["routes"]["running"].is_array() && all["dns-resolver"].is_object(), "{all}");
    let one = fixture.node(&["show", "eth0", "--json"], "").await?.json()?;
    assert_eq!(one["interfaces"].as_array().map(Vec::len), Some(1), "{one}");
    assert_eq!(one["interfaces"][0]["name"], "eth0");
    let none = fixture.node(&["show", "eth77"], "").await?;
    assert_eq!(none.status.code(), Some(1));
    ensure!(none.stderr().contains("eth77") && none.stdout().is_empty(), "{}", none.stderr());
    Ok(())
}

#[tokio::test]
async fn a_state_is_applied_checked_and_committed() -> Result<()> {
    let fixture = CommandFixture::new().await?;
    let open = fixture.apply(&["--no-commit", "--timeout=60"], &with_address()).await?.result(0, "open")?;
    let checkpoint = open["checkpoint"].as_str().with_context(|| open.to_string())?;
    assert_eq!(open["timeoutSeconds"], 60, "{open}");
    let probes: Vec<_> = open["probes"].as_array().into_iter().flatten().collect();
    ensure!(probes.iter().any(|one| one["name"] == "default-gateway" && one["after"] == "Passed"), "{open}");
    fixture.until_present(ADDRESS).await?;

    // While it is open no other change can begin, and no other checkpoint is accepted.
    let other = json!({ "interfaces": [{ "name": "eth2", "type": "ethernet", "state": "up", "mtu": 1400 }] });
    let refused = fixture.apply(&[], &other).await?.result(1, "refused")?;
    let message = refused["message"].as_str().unwrap_or_default();
    ensure!(message.contains(checkpoint) && message.contains("nothing was changed"), "{message}");
    let wrong = fixture.settle("commit", &["/org/freedesktop/NetworkManager/Checkpoint/99"]).await?;
    let message = wrong.result(1, "refused")?["message"].to_string();
    ensure!(message.contains("Checkpoint/99") && message.contains(checkpoint), "{message}");

    let committed = fixture.settle("commit", &[checkpoint]).await?.result(0, "committed")?;
    assert_eq!(committed["checkpoint"], checkpoint);
    let again = fixture.settle("commit", &[checkpoint]).await?.result(1, "refused")?;
    ensure!(again["message"].to_string().contains("the change is gone"), "{again}");
    fixture.settle("rollback", &[]).await?.result(1, "refused")?;
    fixture.until_present(ADDRESS).await?;
    // The network is as desired now, but --no-commit creates a checkpoint nevertheless.
    fixture.apply(&[], &with_address()).await?.result(0, "unchanged")?;
    let unchanged = fixture.apply(&["--no-commit"], &with_address()).await?.result(0, "unchanged")?;
    ensure!(unchanged["checkpoint"].is_string(), "{unchanged}");
    fixture.apply(&[], &other).await?.result(1, "refused")?;
    fixture.settle("commit", &[]).await?.result(0, "committed")?;
    fixture.apply(&[], &other).await?.result(0, "changed")?;
    // A change that may be a mistake is applied, with a note.
    let odd = json!({ "interfaces": [{ "name": "eth2", "type": "ethernet", "state": "up",
        "ipv4": { "enabled": true, "dhcp": false, "address": [{ "ip": "10.97.0.0", "prefix-length": 24 }] } }] });
    let changed = fixture.apply(&[], &odd).await?.result(0, "changed")?;
    ensure!(changed["notes"].to_string().contains("10.97.0.0 is the address of 10.97.0.0/24"), "{changed}");
    Ok(())
}

#[tokio::test]
async fn a_change_is_rolled_back_on_request_or_without_a_commit_in_time() -> Result<()> {
    let fixture = CommandFixture::new().await?;
    let before = fixture.node.snapshot().await?;
    fixture.apply(&["--no-commit"], &with_address()).await?.result(0, "open")?;
    fixture.until_present(ADDRESS).await?;
    fixture.settle("rollback", &[]).await?.result(0, "rolled-back")?;
    fixture.node.wait_until_restored(&before, SHORT_LIMIT).await?;

    let open = fixture.apply(&["--no-commit", "--timeout=8"], &with_address()).await?.result(0, "open")?;
    fixture.until_present(ADDRESS).await?;
    fixture.node.wait_until_restored(&before, SHORT_LIMIT).await.context("after its timeout")?;
    let checkpoint = open["checkpoint"].as_str().unwrap_or_default();
    for named in [&[][..], &[checkpoint]] {
        let late = fixture.settle("commit", named).await?.result(1, "refused")?;
        let message = late["message"].to_string();
        ensure!(message.contains("its time passed") && message.contains("the change is gone"), "{message}");
    }
    fixture.node.wait_until_restored(&before, SHORT_LIMIT).await
}

#[tokio::test]
async fn a_failed_probe_rolls_back_the_change_and_is_named() -> Result<()> {
    let fixture = CommandFixture::new().await?;
    let before = fixture.node.snapshot().await?;
    let cut_off = json!({ "routes": { "config": [
        { "destination": "0.0.0.0/0", "next-hop-interface": "eth0", "state": "absent" }
    ] } });
    for arguments in [&[][..], &["--no-commit"]] {
        let failed = fixture.apply(arguments, &cut_off).await?.result(1, "failed")?;
        let message = failed["message"].as_str().unwrap_or_default();
        ensure!(
            message.contains("probe \"default-gateway\"") && message.contains("as it was before"),
            "{message}"
        );
        ensure!(failed["checkpoint"].is_null(), "{failed}");
        let gateway =
            failed["probes"].as_array().into_iter().flatten().find(|one| one["name"] == "default-gateway");
        assert_eq!(gateway.map(|probe| &probe["after"]), Some(&json!("Failed")), "{failed}");
        fixture.node.wait_until_restored(&before, SHORT_LIMIT).await?;
    }
    // Without probes the change is applied.
    fixture.apply(&["--no-commit", "--no-probes"], &cut_off).await?.result(0, "open")?;
    fixture.settle("rollback", &[]).await?.result(0, "rolled-back")?;
    fixture.node.wait_until_restored(&before, SHORT_LIMIT).await
}

#[tokio::test]
async fn policies_are_applied_with_their_captures_and_probes() -> Result<()> {
    let fixture = CommandFixture::new().await?;
    let before = fixture.node.snapshot().await?;
    let policy = json!({ "apiVersion": "nmstate.io/v1", "kind": "NodeNetworkConfigurationPolicy",
        "metadata": { "name": "p" }, "spec": {
            "capture": { "way-out": "routes.running.destination==\"0.0.0.0/0\"" },
            "desiredState": { "interfaces": [
                { "name": "{{ capture.way-out.routes.running.0.next-hop-interface }}", "mtu": 1420 }
            ] },
            "probes": [{ "name": "web", "timeout": "2s", "tcp": { "host": "10.99.0.254", "port": 81 } }] } });
    let failed = fixture.apply(&[], &policy).await?.result(1, "failed")?;
    ensure!(failed["message"].to_string().contains("probe \\\"web\\\""), "{failed}");
    fixture.node.wait_until_restored(&before, SHORT_LIMIT).await?;
    fixture.apply(&["--no-probes"], &policy).await?.result(0, "changed")?;
    fixture.until_present("1420").await
}

#[tokio::test]
async fn invalid_input_has_its_own_exit_code_and_changes_nothing() -> Result<()> {
    let fixture = CommandFixture::new().await?;
    let before = fixture.node.snapshot().await?;
    for (case, text, expected) in [
        ("no YAML", "interfaces: [", "line "),
        ("two documents", "interfaces: []\n---\ninterfaces: []\n", "2 documents"),
        ("another kind", "{apiVersion: v1, kind: Pod}", "NodeNetworkConfigurationPolicy"),
        ("an unknown key", "interfaces: [{name: eth1, mtuu: 1}]", "interfaces[eth1].mtuu"),
        ("no such interface", "interfaces: [{name: eth9, type: ethernet, state: up}]", "eth9"),
    ] {
        let output = fixture.node(&["apply", "--json", "-"], text).await?;
        let answer = CommandOutput(output).result(2, "not-understood").with_context(|| case.to_owned())?;
        let message = answer["message"].as_str().unwrap_or_default();
        ensure!(message.contains(expected) && message.contains("nothing was changed"), "{case}: {message}");
    }
    let output = fixture.node(&["apply", "/no/such/file"], "").await?;
    assert_eq!(output.status.code(), Some(2), "{}", output.stderr());
    assert_eq!(fixture.node.snapshot().await?, before);
    Ok(())
}

#[tokio::test]
async fn an_ephemeral_change_is_not_on_disk() -> Result<()> {
    let fixture = CommandFixture::new().await?;
    let before = fixture.node.exec(["ls", "/etc/NetworkManager/system-connections"]).await?.success()?;
    fixture.apply(&["--persistence=Ephemeral"], &with_address()).await?.result(0, "changed")?;
    fixture.until_present(ADDRESS).await?;
    assert_eq!(fixture.node.exec(["ls", "/etc/NetworkManager/system-connections"]).await?.success()?, before);
    Ok(())
}

/// A node, and the commands in it.
struct CommandFixture {
    lab: Lab,
    node: NmNode,
    program: String,
    state: PathBuf,
}

/// The output of a command that prints JSON.
#[derive(Debug)]
struct CommandOutput(Output);

impl CommandOutput {
    /// Checks the exit code and the field `result`, and returns the whole answer.
    fn result(&self, code: i32, result: &str) -> Result<Value> {
        let answer: Value = serde_json::from_str(&self.0.stdout())
            .with_context(|| format!("{}{}", self.0.stdout(), self.0.stderr()))?;
        ensure!(
            self.0.status.code() == Some(code) && answer["result"] == result,
            "{:?}: {answer}",
            self.0.status
        );
        Ok(answer)
    }
}

impl CommandFixture {
    async fn new() -> Result<Self> {
        let program = binaries::knmstate().await?.display().to_string();
        let lab = Lab::new().await?;
        lab.gateway().on().await?;
        lab.dns().on().await?;
        let node = lab.nm_node("node1").start().await?;
        node.settle().await?;
        let state = lab.directory().join("state");
        Ok(Self { lab, node, program, state })
    }

    fn call(&self, program: &str, arguments: &[&str]) -> Invocation {
        Invocation::new([program])
            .args(arguments.iter().copied())
            .env("KNMSTATE_STATE_DIR", self.state.display().to_string())
            .env("RUST_BACKTRACE", "0")
    }

    async fn node(&self, arguments: &[&str], input: &str) -> Result<Output> {
        let words: Vec<&str> = ["node"].iter().chain(arguments).copied().collect();
        self.node.exec_with(self.call(&self.program, &words).stdin(input), LIMIT).await
    }

    async fn nmstatectl(&self, arguments: &[&str], input: &str) -> Result<Output> {
        let program = self.lab.directory().join("nmstatectl").display().to_string();
        self.node.exec_with(self.call(&program, arguments).stdin(input), LIMIT).await
    }

    async fn apply(&self, arguments: &[&str], document: &Value) -> Result<CommandOutput> {
        let words: Vec<&str> = ["apply", "--json", "-"].iter().chain(arguments).copied().collect();
        Ok(CommandOutput(self.node(&words, &document.to_string()).await?))
    }

    async fn settle(&self, how: &str, checkpoint: &[&str]) -> Result<CommandOutput> {
        let words: Vec<&str> = [how, "--json"].iter().chain(checkpoint).copied().collect();
        Ok(CommandOutput(self.node(&words, "").await?))
    }

    fn file(&self, name: &str, document: &Value) -> Result<String> {
        let path = self.lab.directory().join(name);
        fs::write(&path, document.to_string())?;
        Ok(path.display().to_string())
    }

    /// Starts a command. Dropping it sends SIGKILL.
    fn start(&self, arguments: &[&str]) -> Result<Process> {
        let words: Vec<&str> = ["node"].iter().chain(arguments).copied().collect();
        let log = self.lab.directory().join("command.log");
        self.node.enter(self.call(&self.program, &words)).start("command", &log)
    }

    fn agent(&self) -> Result<Process> {
        let option = |flag: &str, path: PathBuf| format!("--{flag}={}", path.display());
        let policies = option("policies", self.lab.directory().join("policies"));
        let state = option("state-dir", self.state.clone());
        let call = self.call(&self.program, &["standalone", "--node-name=node1", &policies, &state]);
        self.node.enter(call).start("agent", &self.lab.directory().join("agent.log"))
    }

    async fn until_present(&self, text: &str) -> Result<()> {
        wait::until(LIMIT, text, async || {
            ensure!(self.node.snapshot().await?.mentions(text), "it is not there");
            Ok(())
        })
        .await
    }
}
