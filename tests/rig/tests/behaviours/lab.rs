//! A lab leaves nothing behind, however the test ends, and labs are isolated from each other.

use std::{cell::Cell, panic::AssertUnwindSafe, process::Stdio, time::Duration};

use anyhow::{Context, Result, ensure};
use futures::FutureExt as _;
use rig::{Lab, kube_node, leftovers, wait};
use tokio::io::{AsyncBufReadExt as _, BufReader};

#[tokio::test]
async fn three_nodes_and_an_api_server_leave_nothing_behind() -> Result<()> {
    let before = leftovers::machine_wide_names();
    let lab = Lab::new().await?;
    lab.dhcp().on().await?;
    lab.dns().on().await?;
    let id = lab.id().to_owned();
    let parts = tokio::try_join!(
        lab.api_server().start(),
        lab.nm_node("node1").start(),
        lab.nm_node("node2").start(),
        lab.nm_node("node3").start(),
    )?;
    let during = leftovers::of_lab(&id)?;
    ensure!(during.len() > 10, "the search for leftovers finds too little to be trusted: {during:#?}");

    let namespaces = leftovers::namespaces_of_lab(&id)?;
    // The lab's network; network, mounts, host name and processes of each node.
    assert_eq!(namespaces.len(), 1 + 3 * 4, "{namespaces:?}");
    assert_eq!(leftovers::alive(&namespaces)?, namespaces);

    drop(parts);
    drop(lab);

    assert_gone(&id).await?;
    // Tasks that served the lab hold its network until the runtime has had a moment to drop them.
    wait::until(Duration::from_secs(10), "the namespaces to be removed", async || {
        let alive = leftovers::alive(&namespaces)?;
        ensure!(alive.is_empty(), "{alive:?}");
        Ok(())
    })
    .await?;
    assert_eq!(leftovers::machine_wide_names(), before);
    Ok(())
}

#[tokio::test]
async fn a_panic_leaves_nothing_behind() -> Result<()> {
    let id = Cell::new(String::new());
    let test = async {
        let lab = Lab::new().await.expect("a lab");
        let _node = lab.nm_node("node1").start().await.expect("a node");
        id.set(lab.id().to_owned());
        panic!("as a failing test does");
    };
    ensure!(AssertUnwindSafe(test).catch_unwind().await.is_err(), "the test did not panic");
    assert_gone(&id.take()).await
}

#[tokio::test]
async fn sigkill_leaves_nothing_that_the_next_lab_does_not_remove() -> Result<()> {
    let kube_nodes = if kube_node::obstacle()?.is_some() { "0" } else { "1" };
    #[expect(
        clippy::disallowed_methods,
        reason = "the child must not get the rig's own protection against SIGKILL"
    )]
    let mut child = tokio::process::Command::new(env!("CARGO_BIN_EXE_cluster"))
        .args(["--kube-nodes", kube_nodes, "--nm-nodes=1"])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut lines = BufReader::new(child.stdout.take().context("stdout")?).lines();
    let id = tokio::time::timeout(Duration::from_mins(5), async {
        while let Some(line) = lines.next_line().await? {
            if let Some(id) = line.strip_prefix("ready: ") {
                return Ok(id.to_owned());
            }
        }
        anyhow::bail!("the cluster ended early")
    })
    .await??;
    let during = leftovers::of_lab(&id)?;
    ensure!(during.len() > 5, "the search for leftovers finds too little to be trusted: {during:#?}");
    child.kill().await?;

    // Processes, and what hangs on them, end with their parent …
    wait::until(Duration::from_secs(10), "the processes to die with their parent", async || {
        let left = leftovers::of_lab(&id)?;
        let swept_later = |what: &String| what.starts_with("directory") || what.starts_with("cgroup");
        ensure!(left.iter().all(swept_later), "{left:#?}");
        Ok(())
    })
    .await?;
    // … and the next lab removes the rest.
    let _next = Lab::new().await?;
    assert_gone(&id).await
}

#[tokio::test]
async fn labs_use_the_same_addresses_and_are_isolated() -> Result<()> {
    let (one, other) = tokio::try_join!(Lab::new(), Lab::new())?;
    let address = "10.99.0.1:4000".parse()?;
    let _listener = one.network().listen(address).await?;
    one.network().connect(address).await?;
    ensure!(other.network().connect(address).await.is_err(), "one lab reached into another");
    Ok(())
}

/// Destruction of namespaces is finished by the kernel in the background.
async fn assert_gone(id: &str) -> Result<()> {
    wait::until(Duration::from_secs(10), "nothing to be left", async || {
        let left = leftovers::of_lab(id)?;
        ensure!(left.is_empty(), "{left:#?}");
        Ok(())
    })
    .await
}
