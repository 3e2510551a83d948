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

fn manifests(folder: &Path) -> Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder)? {
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
        let (said, complaint) = (answer.stdout(), answer.stderr());
        ensure!(answer.status.success() != is_to_be_refused, "{file}: {said}{complaint}");
        if is_to_be_refused {
            ensure!(complaint.contains("is invalid: spec."), "{file}: {complaint}");
            refused += 1;
        } else {
            accepted += 1;
        }
    }
    ensure!(accepted >= 4 && refused >= 1, "{accepted} accepted, {refused} refused: where are they?");
    Ok(())
}

#[test]
fn every_example_says_what_it_is_for_and_is_in_the_table() -> Result<()> {
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
async fn the_quickstart_is_applied_and_what_is_to_be_rolled_back_is() -> Result<()> {
    let lab = Lab::new().await?;
    lab.dns().on().await?;
    lab.dhcp().on().await?;
    let node = lab.nm_node("node1").primary(Primary::Dhcp).start().await?;
    node.exec(["nmcli", "connection", "modify", "eth0", "ipv6.method", "link-local"]).await?.success()?;
    node.come_to_rest().await?;

    let output = standalone(&node, "quickstart", None).await?;
    ensure!(output.status.code() == Some(0), "{}{}", output.stdout(), output.stderr());
    ensure!(output.stderr().is_empty(), "nothing is wrong: {}", output.stderr());
    node.end_checks_for_duplicates().await?;
    let after = node.snapshot().await?;
    for wanted in ["10.98.0.77", "198.51.100.0/24", "search storage.example.com", "nameserver 10.99.0.53"] {
        ensure!(after.mentions(wanted), "{wanted} is missing: {after:?}");
    }

    for path in manifests(&examples().join("rolled-back"))? {
        let output = standalone(&node, "rolled-back", None).await?;
        let text = output.stdout().split_whitespace().collect::<Vec<_>>().join(" ");
        ensure!(output.status.code() == Some(1), "{text}{}", output.stderr());
        // It is told once.
        ensure!(output.stderr().is_empty(), "{}", output.stderr());
        let file = path.file_name().context("a file")?.to_string_lossy().into_owned();
        for said in [&*file, "probe \"default-gateway\"", "no default route is left", "rolled back: "] {
            ensure!(text.contains(said), "{said:?} is not said: {text}");
        }
        node.is_again(&after, Duration::from_secs(20)).await?;
    }
    Ok(())
}

#[tokio::test]
async fn what_a_user_does_wrong_is_said_with_the_right_exit_code_and_changes_nothing() -> Result<()> {
    let lab = Lab::new().await?;
    let node = lab.nm_node("node1").start().await?;
    node.come_to_rest().await?;
    let before = node.snapshot().await?;
    fs::create_dir(lab.folder().join("empty"))?;
    fs::write(lab.folder().join("file"), "")?;
    let in_lab = |path: &str| lab.folder().join(path).display().to_string();
    let bad_output = format!("--output={}", in_lab("file/below"));

    for (policies, more, code, said) in [
        (in_lab("nowhere"), "", 2, "/nowhere: No such file or directory"),
        (in_lab("file"), "", 2, "/file is no folder; --policies names the folder"),
        (in_lab("empty"), "", 0, "there is no policy in"),
        ("quickstart".to_owned(), &*bad_output, 1, "/file/below (--output): Not a directory"),
        ("quickstart".to_owned(), "--label=x", 2, "'--label <KEY=VALUE>': write KEY=VALUE"),
    ] {
        let output = standalone(&node, &policies, Some(more).filter(|more| !more.is_empty())).await?;
        told(&output, code, said).with_context(|| format!("{policies} {more}"))?;
    }

    let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"].map(str::to_owned);
    let output = node.exec_with(call("quickstart").await?.arg("--once").after(nobody.into()), LIMIT).await?;
    told(&output, 1, "run knmstate as root")?;

    // One that is at work keeps others out.
    let first = node.enter(call(&in_lab("empty")).await?).start("first", &lab.folder().join("first.log"))?;
    wait::until(LIMIT, "the first to watch", async || {
        ensure!(first.log_tail(5).contains("are watched"), "{}", first.log_tail(5));
        Ok(())
    })
    .await?;
    let output = standalone(&node, "quickstart", None).await?;
    told(&output, 1, "another knmstate is at work on this machine")?;
    first.terminate(LIMIT).await?;

    node.stop_network_manager().await?;
    let output = standalone(&node, "quickstart", Some("--max-attempts=1")).await?;
    told(&output, 1, "Check that NetworkManager runs")?;
    node.start_network_manager().await?;
    node.is_again(&before, Duration::from_secs(20)).await
}

#[tokio::test]
async fn interrupted_in_the_middle_it_says_so_and_the_machine_is_as_before() -> Result<()> {
    let lab = Lab::new().await?;
    let node = lab.nm_node("node1").start().await?;
    node.come_to_rest().await?;
    let before = node.snapshot().await?;
    // Nobody answers to the policy's probe, so that the change stays open for a while.
    let policies = lab.folder().join("policies");
    fs::create_dir(&policies)?;
    let text = fs::read_to_string(examples().join("quickstart/10-storage-bridge.yaml"))?;
    let text = text.replace("host: 10.98.0.1", "host: 10.98.0.200").replace("timeout: 10s", "timeout: 60s");
    fs::write(policies.join("p.yaml"), text)?;
    let once = call(&policies.display().to_string()).await?.arg("--once");
    let once = node.enter(once).start("once", &lab.folder().join("once.log"))?;
    wait::until(LIMIT, "the bridge", async || {
        ensure!(node.snapshot().await?.mentions("10.98.0.77"), "it is not there");
        Ok(())
    })
    .await?;
    once.signal(Signal::SIGINT)?;
    node.is_again(&before, Duration::from_secs(20)).await?;
    wait::until(LIMIT, "the table", async || {
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
    for said in ["+br1", "no default route is left; rolled back", "as they were before", "and gone"] {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        ensure!(text.contains(said), "{said:?} is not shown:\n{text}");
    }
    assert_eq!(leftovers::machine_wide_names(), names);
    Ok(())
}

#[tokio::test]
async fn a_demo_that_is_interrupted_leaves_nothing_behind() -> Result<()> {
    let lab = Lab::new().await?;
    let mut demo = demo().await?.start("demo", &lab.folder().join("demo.log"))?;
    let id = format!("knmstate-rig-{}-0", demo.id());
    wait::until(LIMIT, "the demo to be in the middle", async || {
        ensure!(demo.log_tail(5).contains("knmstate standalone"), "{}", demo.log_tail(5));
        Ok(())
    })
    .await?;
    ensure!(!leftovers::of_lab(&id)?.is_empty(), "what is looked for is not what it makes");
    demo.signal(Signal::SIGINT)?;
    wait::until(Duration::from_secs(20), "the demo to end", async || {
        ensure!(demo.check_running().is_err(), "it is still running");
        Ok(())
    })
    .await?;
    ensure!(demo.log_tail(2).contains("interrupted: everything that was started is gone"));
    assert_eq!(leftovers::of_lab(&id)?, BTreeSet::new());
    Ok(())
}

async fn demo() -> Result<Invocation> {
    Ok(Invocation::new([env!("CARGO_BIN_EXE_demo"), &binaries::knmstate().await?.display().to_string()]))
}

/// `knmstate standalone` over a folder of examples, or another one.
async fn call(policies: &str) -> Result<Invocation> {
    let program = binaries::knmstate().await?.display().to_string();
    let policies = examples().join(policies).display().to_string();
    Ok(Invocation::new([&program, "standalone", "--policies", &policies]))
}

async fn standalone(node: &NmNode, policies: &str, more: Option<&str>) -> Result<Output> {
    node.exec_with(call(policies).await?.arg("--once").args(more), LIMIT).await
}

fn told(output: &Output, code: i32, said: &str) -> Result<()> {
    let text = format!("{}{}", output.stdout(), output.stderr());
    ensure!(output.status.code() == Some(code), "{}: {text}", output.status);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    ensure!(words.contains(said), "{said:?} is not said: {text}");
    Ok(())
}
