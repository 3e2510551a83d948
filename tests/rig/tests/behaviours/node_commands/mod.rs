//! `knmstate node` and `nmstatectl` on a real NetworkManager, as a program that drives the node calls them.

mod company;
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
const SOON: Duration = Duration::from_mins(1);
const ADDRESS: &str = "10.98.0.77";

#[tokio::test]
async fn the_state_is_shown_in_the_words_of_nmstate() -> Result<()> {
    let trial = Trial::new().await?;
    let yaml = trial.node(&["show"], "").await?.success()?;
    ensure!(yaml.starts_with("---\n") && yaml.contains(&trial.node.address()), "{yaml}");
    let all = trial.node(&["show", "--json"], "").await?.json()?;
    ensure!(all["routes"]["running"].is_array() && all["dns-resolver"].is_object(), "{all}");
    let one = trial.node(&["show", "eth0", "--json"], "").await?.json()?;
    assert_eq!(one["interfaces"].as_array().map(Vec::len), Some(1), "{one}");
    assert_eq!(one["interfaces"][0]["name"], "eth0");
    let none = trial.node(&["show", "eth77"], "").await?;
    assert_eq!(none.status.code(), Some(1));
    ensure!(none.stderr().contains("eth77") && none.stdout().is_empty(), "{}", none.stderr());
    Ok(())
}

#[tokio::test]
async fn a_state_is_applied_checked_and_committed() -> Result<()> {
    let trial = Trial::new().await?;
    let open = trial.apply(&["--no-commit", "--timeout=60"], &with_address()).await?.said(0, "open")?;
    let checkpoint = open["checkpoint"].as_str().with_context(|| open.to_string())?;
    assert_eq!(open["timeoutSeconds"], 60, "{open}");
    let probes: Vec<_> = open["probes"].as_array().into_iter().flatten().collect();
    ensure!(probes.iter().any(|one| one["name"] == "default-gateway" && one["after"] == "Passed"), "{open}");
    trial.has(ADDRESS).await?;

    // While it is open there is no other, and no other name for it.
    let other = json!({ "interfaces": [{ "name": "eth2", "type": "ethernet", "state": "up", "mtu": 1400 }] });
    let refused = trial.apply(&[], &other).await?.said(1, "refused")?;
    let message = refused["message"].as_str().unwrap_or_default();
    ensure!(message.contains(checkpoint) && message.contains("nothing was changed"), "{message}");
    let wrong = trial.settle("commit", &["/org/freedesktop/NetworkManager/Checkpoint/99"]).await?;
    let message = wrong.said(1, "refused")?["message"].to_string();
    ensure!(message.contains("Checkpoint/99") && message.contains(checkpoint), "{message}");

    let committed = trial.settle("commit", &[checkpoint]).await?.said(0, "committed")?;
    assert_eq!(committed["checkpoint"], checkpoint);
    let again = trial.settle("commit", &[checkpoint]).await?.said(1, "refused")?;
    ensure!(again["message"].to_string().contains("the change is gone"), "{again}");
    trial.settle("rollback", &[]).await?.said(1, "refused")?;
    trial.has(ADDRESS).await?;
    // It is as desired now; who asks for a checkpoint gets one all the same.
    trial.apply(&[], &with_address()).await?.said(0, "unchanged")?;
    let unchanged = trial.apply(&["--no-commit"], &with_address()).await?.said(0, "unchanged")?;
    ensure!(unchanged["checkpoint"].is_string(), "{unchanged}");
    trial.apply(&[], &other).await?.said(1, "refused")?;
    trial.settle("commit", &[]).await?.said(0, "committed")?;
    trial.apply(&[], &other).await?.said(0, "changed")?;
    // What may not be meant so is done, and said.
    let odd = json!({ "interfaces": [{ "name": "eth2", "type": "ethernet", "state": "up",
        "ipv4": { "enabled": true, "dhcp": false, "address": [{ "ip": "10.97.0.0", "prefix-length": 24 }] } }] });
    let changed = trial.apply(&[], &odd).await?.said(0, "changed")?;
    ensure!(changed["notes"].to_string().contains("10.97.0.0 is the address of 10.97.0.0/24"), "{changed}");
    Ok(())
}

#[tokio::test]
async fn what_is_rolled_back_or_not_committed_in_time_is_as_before() -> Result<()> {
    let trial = Trial::new().await?;
    let before = trial.node.snapshot().await?;
    trial.apply(&["--no-commit"], &with_address()).await?.said(0, "open")?;
    trial.has(ADDRESS).await?;
    trial.settle("rollback", &[]).await?.said(0, "rolled-back")?;
    trial.node.is_again(&before, SOON).await?;

    let open = trial.apply(&["--no-commit", "--timeout=8"], &with_address()).await?.said(0, "open")?;
    trial.has(ADDRESS).await?;
    trial.node.is_again(&before, SOON).await.context("after its time")?;
    let checkpoint = open["checkpoint"].as_str().unwrap_or_default();
    for named in [&[][..], &[checkpoint]] {
        let late = trial.settle("commit", named).await?.said(1, "refused")?;
        let message = late["message"].to_string();
        ensure!(message.contains("its time passed") && message.contains("the change is gone"), "{message}");
    }
    trial.node.is_again(&before, SOON).await
}

#[tokio::test]
async fn a_probe_that_fails_takes_the_change_back_and_is_named() -> Result<()> {
    let trial = Trial::new().await?;
    let before = trial.node.snapshot().await?;
    let cut_off = json!({ "routes": { "config": [
        { "destination": "0.0.0.0/0", "next-hop-interface": "eth0", "state": "absent" }
    ] } });
    for arguments in [&[][..], &["--no-commit"]] {
        let failed = trial.apply(arguments, &cut_off).await?.said(1, "failed")?;
        let message = failed["message"].as_str().unwrap_or_default();
        ensure!(
            message.contains("probe \"default-gateway\"") && message.contains("as it was before"),
            "{message}"
        );
        ensure!(failed["checkpoint"].is_null(), "{failed}");
        let gateway =
            failed["probes"].as_array().into_iter().flatten().find(|one| one["name"] == "default-gateway");
        assert_eq!(gateway.map(|probe| &probe["after"]), Some(&json!("Failed")), "{failed}");
        trial.node.is_again(&before, SOON).await?;
    }
    // Whoever does not want them says so.
    trial.apply(&["--no-commit", "--no-probes"], &cut_off).await?.said(0, "open")?;
    trial.settle("rollback", &[]).await?.said(0, "rolled-back")?;
    trial.node.is_again(&before, SOON).await
}

#[tokio::test]
async fn policies_are_taken_with_their_captures_and_probes() -> Result<()> {
    let trial = Trial::new().await?;
    let before = trial.node.snapshot().await?;
    let policy = json!({ "apiVersion": "nmstate.io/v1", "kind": "NodeNetworkConfigurationPolicy",
        "metadata": { "name": "p" }, "spec": {
            "capture": { "way-out": "routes.running.destination==\"0.0.0.0/0\"" },
            "desiredState": { "interfaces": [
                { "name": "{{ capture.way-out.routes.running.0.next-hop-interface }}", "mtu": 1420 }
            ] },
            "probes": [{ "name": "web", "timeout": "2s", "tcp": { "host": "10.99.0.254", "port": 81 } }] } });
    let failed = trial.apply(&[], &policy).await?.said(1, "failed")?;
    ensure!(failed["message"].to_string().contains("probe \\\"web\\\""), "{failed}");
    trial.node.is_again(&before, SOON).await?;
    trial.apply(&["--no-probes"], &policy).await?.said(0, "changed")?;
    trial.has("1420").await
}

#[tokio::test]
async fn what_cannot_be_understood_is_told_by_its_own_code_and_nothing_is_touched() -> Result<()> {
    let trial = Trial::new().await?;
    let before = trial.node.snapshot().await?;
    for (case, text, said) in [
        ("no YAML", "interfaces: [", "line "),
        ("two documents", "interfaces: []\n---\ninterfaces: []\n", "2 documents"),
        ("another kind", "{apiVersion: v1, kind: Pod}", "NodeNetworkConfigurationPolicy"),
        ("an unknown key", "interfaces: [{name: eth1, mtuu: 1}]", "interfaces[eth1].mtuu"),
        ("no such interface", "interfaces: [{name: eth9, type: ethernet, state: up}]", "eth9"),
    ] {
        let output = trial.node(&["apply", "--json", "-"], text).await?;
        let told = Said(output).said(2, "not-understood").with_context(|| case.to_owned())?;
        let message = told["message"].as_str().unwrap_or_default();
        ensure!(message.contains(said) && message.contains("nothing was changed"), "{case}: {message}");
    }
    let output = trial.node(&["apply", "/no/such/file"], "").await?;
    assert_eq!(output.status.code(), Some(2), "{}", output.stderr());
    assert_eq!(trial.node.snapshot().await?, before);
    Ok(())
}

#[tokio::test]
async fn in_memory_nothing_of_it_is_on_disk() -> Result<()> {
    let trial = Trial::new().await?;
    let before = trial.node.exec(["ls", "/etc/NetworkManager/system-connections"]).await?.success()?;
    trial.apply(&["--persistence=Ephemeral"], &with_address()).await?.said(0, "changed")?;
    trial.has(ADDRESS).await?;
    assert_eq!(trial.node.exec(["ls", "/etc/NetworkManager/system-connections"]).await?.success()?, before);
    Ok(())
}

/// A node, and the commands in it.
struct Trial {
    lab: Lab,
    node: NmNode,
    program: String,
    state: PathBuf,
}

/// What a command that speaks to programs has said.
#[derive(Debug)]
struct Said(Output);

impl Said {
    fn said(&self, code: i32, result: &str) -> Result<Value> {
        let said: Value = serde_json::from_str(&self.0.stdout())
            .with_context(|| format!("{}{}", self.0.stdout(), self.0.stderr()))?;
        ensure!(
            self.0.status.code() == Some(code) && said["result"] == result,
            "{:?}: {said}",
            self.0.status
        );
        Ok(said)
    }
}

impl Trial {
    async fn new() -> Result<Self> {
        let program = binaries::knmstate().await?.display().to_string();
        let lab = Lab::new().await?;
        lab.gateway().on().await?;
        lab.dns().on().await?;
        let node = lab.nm_node("node1").start().await?;
        node.come_to_rest().await?;
        let state = lab.folder().join("state");
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
        let program = self.lab.folder().join("nmstatectl").display().to_string();
        self.node.exec_with(self.call(&program, arguments).stdin(input), LIMIT).await
    }

    async fn apply(&self, arguments: &[&str], document: &Value) -> Result<Said> {
        let words: Vec<&str> = ["apply", "--json", "-"].iter().chain(arguments).copied().collect();
        Ok(Said(self.node(&words, &document.to_string()).await?))
    }

    async fn settle(&self, how: &str, checkpoint: &[&str]) -> Result<Said> {
        let words: Vec<&str> = [how, "--json"].iter().chain(checkpoint).copied().collect();
        Ok(Said(self.node(&words, "").await?))
    }

    fn file(&self, name: &str, document: &Value) -> Result<String> {
        let path = self.lab.folder().join(name);
        fs::write(&path, document.to_string())?;
        Ok(path.display().to_string())
    }

    /// Gone, by SIGKILL, when it is dropped.
    fn start(&self, arguments: &[&str]) -> Result<Process> {
        let words: Vec<&str> = ["node"].iter().chain(arguments).copied().collect();
        let log = self.lab.folder().join("command.log");
        self.node.enter(self.call(&self.program, &words)).start("command", &log)
    }

    fn agent(&self) -> Result<Process> {
        let folder = |flag: &str, path: PathBuf| format!("--{flag}={}", path.display());
        let policies = folder("policies", self.lab.folder().join("policies"));
        let state = folder("state-dir", self.state.clone());
        let call = self.call(&self.program, &["standalone", "--node-name=node1", &policies, &state]);
        self.node.enter(call).start("agent", &self.lab.folder().join("agent.log"))
    }

    async fn has(&self, text: &str) -> Result<()> {
        wait::until(LIMIT, text, async || {
            ensure!(self.node.snapshot().await?.mentions(text), "it is not there");
            Ok(())
        })
        .await
    }
}
