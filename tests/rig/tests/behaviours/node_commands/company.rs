//! Commands that are killed, a NetworkManager that forgets, and an agent on the same machine.

use super::*;
use crate::standalone::slow_probe;

#[tokio::test]
async fn killed_in_the_middle_it_ends_as_before() -> Result<()> {
    let trial = Trial::new().await?;
    let before = trial.node.snapshot().await?;
    let policy = json!({ "apiVersion": "nmstate.io/v1", "kind": "NodeNetworkConfigurationPolicy",
        "metadata": { "name": "p" }, "spec": { "desiredState": with_address(), "probes": slow_probe()["probes"] } });
    let file = trial.file("p.json", &policy)?;
    // By NetworkManager's timer alone.
    let applying = trial.start(&["apply", "--no-commit", "--timeout=10", &file])?;
    trial.has(ADDRESS).await?;
    drop(applying);
    let unfinished = trial.settle("commit", &[]).await?;
    ensure!(
        unfinished.0.status.code() == Some(1),
        "what nobody finished cannot be committed: {unfinished:?}"
    );
    trial.node.is_again(&before, SOON).await.context("by the timer")?;

    // And at once by whoever comes next.
    let applying = trial.start(&["apply", "--timeout=3600", &file])?;
    trial.has(ADDRESS).await?;
    let busy = trial.settle("rollback", &[]).await?.said(1, "refused")?;
    ensure!(busy["message"].to_string().contains("another program"), "{busy}");
    drop(applying);
    trial.settle("rollback", &[]).await?.said(0, "rolled-back")?;
    trial.node.is_again(&before, SOON).await
}

#[tokio::test]
async fn what_network_manager_forgets_is_not_committed_but_put_back() -> Result<()> {
    let trial = Trial::new().await?;
    let before = trial.node.snapshot().await?;
    trial.apply(&["--no-commit"], &with_address()).await?.said(0, "open")?;
    trial.node.kill_network_manager().await?;
    let down = trial.settle("commit", &[]).await?;
    ensure!(down.0.status.code() == Some(3), "without NetworkManager nothing is known: {down:?}");
    trial.node.start_network_manager().await?;
    let forgotten = trial.settle("commit", &[]).await?.said(1, "failed")?;
    let message = forgotten["message"].to_string();
    ensure!(message.contains("restarted") && message.contains("as it was before"), "{message}");
    trial.node.is_again(&before, SOON).await
}

#[tokio::test]
async fn an_agent_leaves_alone_what_a_command_has_left_open() -> Result<()> {
    let trial = Trial::new().await?;
    let wanted =
        json!({ "interfaces": [{ "name": "eth2", "type": "ethernet", "state": "up", "mtu": 1400 }] });
    let policy = json!({ "apiVersion": "nmstate.io/v1", "kind": "NodeNetworkConfigurationPolicy",
        "metadata": { "name": "mtu" }, "spec": { "desiredState": wanted } });
    fs::create_dir(trial.lab.folder().join("policies"))?;
    trial.apply(&["--no-commit", "--timeout=15"], &with_address()).await?.said(0, "open")?;
    trial.file("policies/mtu.json", &policy)?;
    let agent = trial.agent()?;
    wait::until(SOON, "the agent to find it in its way", async || {
        ensure!(
            agent.log_tail(50).contains("another change of the network is still open"),
            "{}",
            agent.log_tail(50)
        );
        Ok(())
    })
    .await?;
    trial.has(ADDRESS).await.context("it is not rolled back before its time")?;
    // NetworkManager rolls it back, and then it is the agent's turn.
    trial.has("1400").await?;
    ensure!(!trial.node.snapshot().await?.mentions(ADDRESS), "its time was over");

    // An agent that is at rest is in nobody's way, and puts back what NetworkManager forgets.
    fs::remove_file(trial.lab.folder().join("policies/mtu.json"))?;
    trial.apply(&["--no-commit", "--timeout=3600"], &with_address()).await?.said(0, "open")?;
    trial.node.kill_network_manager().await?;
    trial.node.start_network_manager().await?;
    wait::until(SOON, "the change to be undone", async || {
        ensure!(!trial.node.snapshot().await?.mentions(ADDRESS), "it is still there");
        Ok(())
    })
    .await?;
    drop(agent);
    Ok(())
}

#[tokio::test]
async fn an_agent_at_work_keeps_commands_out() -> Result<()> {
    let trial = Trial::new().await?;
    let policy = json!({ "apiVersion": "nmstate.io/v1", "kind": "NodeNetworkConfigurationPolicy",
        "metadata": { "name": "p" }, "spec": { "desiredState": with_address(), "probes": slow_probe()["probes"] } });
    fs::create_dir(trial.lab.folder().join("policies"))?;
    trial.file("policies/p.json", &policy)?;
    let agent = trial.agent()?;
    trial.has(ADDRESS).await?;
    let other = json!({ "interfaces": [{ "name": "eth2", "type": "ethernet", "state": "up", "mtu": 1400 }] });
    for answer in [
        trial.apply(&[], &other).await?,
        trial.settle("rollback", &[]).await?,
        trial.settle("commit", &[]).await?,
    ] {
        let refused = answer.said(1, "refused")?;
        ensure!(refused["message"].to_string().contains("another program is changing"), "{refused}");
    }
    trial.has(ADDRESS).await?;
    drop(agent);
    Ok(())
}
