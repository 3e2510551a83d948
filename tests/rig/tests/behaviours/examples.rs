//! The files in `examples/` and the demo do what they say.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use rig::{Lab, NmNode, Output, Primary, binaries, leftovers, machine::rig_file, process::Invocation, wait};

const LIMIT: Duration = Duration::from_mins(3);

fn examples() -> PathBuf {
    rig_file("../../examples")
}

fn manifests(directory: &Path) -> Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            found.append(&mut manifests(&path)?);
        } else if path.extension().is_some_and(|ending| ending == "yaml") {
            found.insert(path);
        }
    }
    Ok(found)
}

#[tokio::test]
async fn the_api_server_accepts_every_example_but_those_to_be_refused() -> Result<()> {
    let lab = Lab::new().await?;
    let api = lab.api_server().start().await?;
    api.install_crds().await?;
    let (mut accepted, mut refused) = (0, 0);
    for path in manifests(&examples())? {
        let is_to_be_refused = path.starts_with(examples().join("refused"));
        let file = path.display().to_string();
        // Strict: a key that does not exist is an error too.
        let arguments = ["create", "--dry-run=server", "--validate=strict", "-f", &file];
        let answer = api.kubectl(arguments).await?;
        let (output, errors) = (answer.stdout(), answer.stderr());
        ensure!(answer.status.success() != is_to_be_refused, "{file}: {output}{errors}");
        if is_to_be_refused {
            ensure!(errors.contains("is invalid: spec."), "{file}: {errors}");
            refused += 1;
        } else {
            accepted += 1;
        }
    }
    ensure!(accepted >= 4 && refused >= 1, "{accepted} accepted, {refused} refused: examples are missing");
    Ok(())
}

#[test]
fn every_example_begins_with_a_comment_and_is_in_the_table() -> Result<()> {
    let table = fs::read_to_string(examples().join("README.md"))?;
    for path in manifests(&examples())? {
        let text = fs::read_to_string(&path)?;
        ensure!(text.starts_with("# "), "{} does not begin with a comment", path.display());
        let shown = path.strip_prefix(examples())?;
        let topic = shown.parent().context("an example has a topic")?.display();
        let is_listed = [format!("]({})", shown.display()), format!("]({topic}/)")];
        ensure!(
            is_listed.iter().any(|link| table.contains(link)),
            "{} is not in a table of examples/README.md",
            shown.display()
        );
    }
    Ok(())
}

#[tokio::test]
async fn the_quickstart_is_applied_and_failing_examples_are_rolled_back() -> Result<()> {
    let lab = Lab::new().await?;
    lab.dns().on().await?;
    lab.dhcp().on().await?;
    let node = lab.nm_node("node1").primary(Primary::Dhcp).start().await?;
    node.exec(["nmcli", "connection", "modify", "eth0", "ipv6.method", "link-local"]).await?.success()?;
    node.settle().await?;

    let output = standalone(&node, "quickstart", None).await?;
    ensure!(output.status.code() == Some(0), "{}{}", output.stdout(), output.stderr());
    ensure!(output.stderr().is_empty(), "there are errors: {}", output.stderr());
    node.wait_for_duplicate_address_detection().await?;
    let after = node.snapshot().await?;
    for wanted in ["10.98.0.77", "198.51.100.0/24", "search storage.example.com", "nameserver 10.99.0.53"] {
        ensure!(after.mentions(wanted), "{wanted} is missing: {after:?}");
    }

    for path in manifests(&examples().join("rolled-back"))? {
        let output = standalone(&node, "rolled-back", None).await?;
        let text = output.stdout().split_whitespace().collect::<Vec<_>>().join(" ");
        ensure!(output.status.code() == Some(1), "{text}{}", output.stderr());
        // The failure is only in the table.
        ensure!(output.stderr().is_empty(), "{}", output.stderr());
        let file = path.file_name().context("a file")?.to_string_lossy().into_owned();
        for expected in [&*file, "probe \"default-gateway\"", "no default route is left", "rolled back: "] {
            ensure!(text.contains(expected), "{expected:?} is not in: {text}");
        }
        node.wait_until_restored(&after, Duration::from_secs(20)).await?;
    }
    Ok(())
}

#[tokio::test]
async fn mistakes_of_users_are_reported_with_the_right_exit_code_and_change_nothing() -> Result<()> {
    let lab = Lab::new().await?;
    let node = lab.nm_node("node1").start().await?;
    node.settle().await?;
    let before = node.snapshot().await?;
    fs::create_dir(lab.directory().join("empty"))?;
    fs::write(lab.directory().join("file"), "")?;
    let in_lab = |path: &str| lab.directory().join(path).display().to_string();
    let bad_output = format!("--output={}", in_lab("file/below"));

    for (policies, more, code, expected) in [
        (in_lab("nowhere"), "", 2, "/nowhere: No such file or directory"),
        (in_lab("file"), "", 2, "/file is not a directory; --policies names the directory"),
        (in_lab("empty"), "", 0, "there is no policy in"),
        ("quickstart".to_owned(), &*bad_output, 1, "/file/below (--output): Not a directory"),
        ("quickstart".to_owned(), "--label=x", 2, "'--label <KEY=VALUE>': write KEY=VALUE"),
    ] {
        let output = standalone(&node, &policies, Some(more).filter(|more| !more.is_empty())).await?;
        ends_with(&output, code, expected).with_context(|| format!("{policies} {more}"))?;
    }

    let unprivileged = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"].map(str::to_owned);
    let output = node
        .exec_with(call("quickstart").await?.arg("--once").wrapped_in(unprivileged.into()), LIMIT)
        .await?;
    ends_with(&output, 1, "run knmstate as root")?;

    // While one runs, a second one is refused.
    let first =
        node.enter(call(&in_lab("empty")).await?).start("first", &lab.directory().join("first.log"))?;
    wait::until(LIMIT, "the first to watch its policies", async || {
        ensure!(first.log_tail(5).contains("watching the policies"), "{}", first.log_tail(5));
        Ok(())
    })
    .await?;
    let output = standalone(&node, "quickstart", None).await?;
    ends_with(&output, 1, "another knmstate is at work on this machine")?;
    first.terminate(LIMIT).await?;

    node.stop_network_manager().await?;
    let output = standalone(&node, "quickstart", Some("--max-attempts=1")).await?;
    ends_with(&output, 1, "Check that NetworkManager runs")?;
    node.start_network_manager().await?;
    node.wait_until_restored(&before, Duration::from_secs(20)).await
}

#[tokio::test]
async fn an_interrupted_run_reports_it_and_rolls_back() -> Result<()> {
    let lab = Lab::new().await?;
    let node = lab.nm_node("node1").start().await?;
    node.settle().await?;
    let before = node.snapshot().await?;
    // The policy's probe gets no answer, so the change stays open for a while.
    let policies = lab.directory().join("policies");
    fs::create_dir(&policies)?;
    let text = fs::read_to_string(examples().join("quickstart/10-storage-bridge.yaml"))?;
    let text = text.replace("host: 10.98.0.1", "host: 10.98.0.200").replace("timeout: 10s", "timeout: 60s");
    fs::write(policies.join("p.yaml"), text)?;
    let once = call(&policies.display().to_string()).await?.arg("--once");
    let once = node.enter(once).start("once", &lab.directory().join("once.log"))?;
    wait::until(LIMIT, "the bridge to be applied", async || {
        ensure!(node.snapshot().await?.mentions("10.98.0.77"), "it is not there");
        Ok(())
    })
    .await?;
    once.signal(Signal::SIGINT)?;
    node.wait_until_restored(&before, Duration::from_secs(20)).await?;
    wait::until(LIMIT, "the table of results", async || {
        let log = once.log_tail(20);
        ensure!(log.contains("asked to end") && log.contains("storage-bridge  failed"), "{log}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn the_demo_fits_a_terminal_and_leaves_nothing_behind() -> Result<()> {
    let names = leftovers::machine_wide_names();
    let output = demo().await?.run(LIMIT).await?;
    let text = output.stdout();
    ensure!(output.status.success() && output.stderr().is_empty(), "{text}{}", output.stderr());
    for line in text.lines() {
        ensure!(line.chars().count() <= 80 && !line.contains('\x1b'), "{line}");
    }
    for expected in
        ["+br1", "no default route is left; rolled back", "as they were before", "everything removed"]
    {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        ensure!(text.contains(expected), "{expected:?} is not shown:\n{text}");
    }
    assert_eq!(leftovers::machine_wide_names(), names);
    Ok(())
}

#[tokio::test]
async fn a_demo_that_is_interrupted_leaves_nothing_behind() -> Result<()> {
    let lab = Lab::new().await?;
    let mut demo = demo().await?.start("demo", &lab.directory().join("demo.log"))?;
    let id = format!("knmstate-rig-{}-0", demo.id());
    wait::until(LIMIT, "the demo to run knmstate", async || {
        ensure!(demo.log_tail(5).contains("knmstate standalone"), "{}", demo.log_tail(5));
        Ok(())
    })
    .await?;
    ensure!(!leftovers::of_lab(&id)?.is_empty(), "nothing of the running demo is found");
    demo.signal(Signal::SIGINT)?;
    wait::until(Duration::from_secs(20), "the demo to end", async || {
        ensure!(demo.check_running().is_err(), "it is still running");
        Ok(())
    })
    .await?;
    ensure!(demo.log_tail(2).contains("interrupted: everything that was started has been removed"));
    assert_eq!(leftovers::of_lab(&id)?, BTreeSet::new());
    Ok(())
}

async fn demo() -> Result<Invocation> {
    Ok(Invocation::new([env!("CARGO_BIN_EXE_demo"), &binaries::knmstate().await?.display().to_string()]))
}

/// `knmstate standalone` with a directory of examples, or with another directory.
async fn call(policies: &str) -> Result<Invocation> {
    let program = binaries::knmstate().await?.display().to_string();
    let policies = examples().join(policies).display().to_string();
    Ok(Invocation::new([&program, "standalone", "--policies", &policies]))
}

async fn standalone(node: &NmNode, policies: &str, more: Option<&str>) -> Result<Output> {
    node.exec_with(call(policies).await?.arg("--once").args(more), LIMIT).await
}

/// Checks the exit code and a text of the output.
fn ends_with(output: &Output, code: i32, expected: &str) -> Result<()> {
    let text = format!("{}{}", output.stdout(), output.stderr());
    ensure!(output.status.code() == Some(code), "{}: {text}", output.status);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    ensure!(words.contains(expected), "{expected:?} is not in: {text}");
    Ok(())
}
