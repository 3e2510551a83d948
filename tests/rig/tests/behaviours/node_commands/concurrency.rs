//! Commands that are killed, a NetworkManager that restarts, and an agent on the same machine.

use super::*;
use crate::standalone::slow_probe;

#[tokio::test]
async fn a_killed_command_is_rolled_back() -> Result<()> {
    let fixture = CommandFixture::new().await?;
    let before = fixture.node.snapshot().await?;
    let policy = json!({ "apiVersion": "nmstate.io/v1", "kind": "NodeNetworkConfigurationPolicy",
        "metadata": { "name": "p" }, "spec": { "desiredState": with_address(), "probes": slow_probe()["probes"] } });
    let file = fixture.file("p.json", &policy)?;
    // By NetworkManager's timer alone.
    let applying = fixture.start(&["apply", "--no-commit", "--timeout=10", &file])?;
    fixture.until_present(ADDRESS).await?;
    drop(applying);
    let unfinished = fixture.settle("commit", &[]).await?;
    ensure!(unfinished.0.status.code() == Some(1), "an unfinished change was committed: {unfinished:?}");
    fixture.node.wait_until_restored(&before, SHORT_LIMIT).await.context("by the timer")?;

    // At once by the next command.
    let applying = fixture.start(&["apply", "--timeout=3600", &file])?;
    fixture.until_present(ADDRESS).await?;
    let busy = fixture.settle("rollback", &[]).await?.result(1, "refused")?;
    ensure!(busy["message"].to_string().contains("another program"), "{busy}");
    drop(applying);
    fixture.settle("rollback", &[]).await?.result(0, "rolled-back")?;
    fixture.node.wait_until_restored(&before, SHORT_LIMIT).await
}

#[tokio::test]
async fn a_change_that_network_manager_lost_is_rolled_back_instead_of_committed() -> Result<()> {
    let fixture = CommandFixture::new().await?;
    let before = fixture.node.snapshot().await?;
    fixture.apply(&["--no-commit"], &with_address()).await?.result(0, "open")?;
    fixture.node.kill_network_manager().await?;
    let down = fixture.settle("commit", &[]).await?;
    ensure!(down.0.status.code() == Some(3), "NetworkManager is down: {down:?}");
    fixture.node.start_network_manager().await?;
    let forgotten = fixture.settle("commit", &[]).await?.result(1, "failed")?;
    let message = forgotten["message"].to_string();
    ensure!(message.contains("restarted") && message.contains("as it was before"), "{message}");
    fixture.node.wait_until_restored(&before, SHORT_LIMIT).await
}

#[tokio::test]
async fn an_agent_does_not_touch_the_open_change_of_a_command() -> Result<()> {
    let fixture = CommandFixture::new().await?;
    let wanted =
        json!({ "interfaces": [{ "name": "eth2", "type": "ethernet", "state": "up", "mtu": 1400 }] });
    let policy = json!({ "apiVersion": "nmstate.io/v1", "kind": "NodeNetworkConfigurationPolicy",
        "metadata": { "name": "mtu" }, "spec": { "desiredState": wanted } });
    fs::create_dir(fixture.lab.directory().join("policies"))?;
    fixture.apply(&["--no-commit", "--timeout=15"], &with_address()).await?.result(0, "open")?;
    fixture.file("policies/mtu.json", &policy)?;
    let agent = fixture.agent()?;
    wait::until(SHORT_LIMIT, "the agent to find the open change", async || {
        ensure!(
            agent.log_tail(50).contains("another change of the network is still open"),
            "{}",
            agent.log_tail(50)
        );
        Ok(())
    })
    .await?;
    fixture.until_present(ADDRESS).await.context("it was rolled back before its deadline")?;
    // NetworkManager rolls it back, and then the agent applies its policy.
    fixture.until_present("1400").await?;
    ensure!(!fixture.node.snapshot().await?.mentions(ADDRESS), "it was not rolled back");

    // An idle agent does not block commands, and rolls back a change that NetworkManager lost.
    fs::remove_file(fixture.lab.directory().join("policies/mtu.json"))?;
    fixture.apply(&["--no-commit", "--timeout=3600"], &with_address()).await?.result(0, "open")?;
    fixture.node.kill_network_manager().await?;
    fixture.node.start_network_manager().await?;
    wait::until(SHORT_LIMIT, "the change to be undone", async || {
        ensure!(!fixture.node.snapshot().await?.mentions(ADDRESS), "it is still there");
        Ok(())
    })
    .await?;
    drop(agent);
    Ok(())
}

#[tokio::test]
async fn commands_are_refused_while_an_agent_has_an_open_change() -> Result<()> {
    let fixture = CommandFixture::new().await?;
    let policy = json!({ "apiVersion": "nmstate.io/v1", "kind": "NodeNetworkConfigurationPolicy",
        "metadata": { "name": "p" }, "spec": { "desiredState": with_address(), "probes": slow_probe()["probes"] } });
    fs::create_dir(fixture.lab.directory().join("policies"))?;
    fixture.file("policies/p.json", &policy)?;
    let agent = fixture.agent()?;
    fixture.until_present(ADDRESS).await?;
    let other = json!({ "interfaces": [{ "name": "eth2", "type": "ethernet", "state": "up", "mtu": 1400 }] });
    for answer in [
        fixture.apply(&[], &other).await?,
        fixture.settle("rollback", &[]).await?,
        fixture.settle("commit", &[]).await?,
    ] {
        let refused = answer.result(1, "refused")?;
        ensure!(refused["message"].to_string().contains("another program is changing"), "{refused}");
    }
    fixture.until_present(ADDRESS).await?;
    drop(agent);
    Ok(())
}
