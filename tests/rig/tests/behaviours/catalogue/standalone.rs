//! The test of an example without a cluster: apply it, check the kernel, apply it again, check the report, remove it.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rig::{Output, Snapshot, shell::Shell as _, wait};

use super::{
    check::{all_pass, some_fail},
    example::{Case, Example},
    node::ExampleNode,
    reported::missing,
};

const LIMIT: Duration = Duration::from_secs(30);

pub(super) async fn run(node: &ExampleNode, case: &Case) -> Result<()> {
    let expectation = &case.expectation;
    let before = settled(node).await?;
    node.run_script(&expectation.setup.join("\n"), LIMIT).await?.success().context("setup")?;
    let Some(removal) = &case.removal else { return rolled_back(node, case, &before).await };
    ensure!(some_fail(&expectation.kernel, node).await, "the checks pass before the example is applied");

    outcome(&node.once(&case.example).await?, &case.example, "applied")?;
    all_pass(&expectation.kernel, node).await?;
    outcome(&node.once(&case.example).await?, &case.example, "unchanged").context("applied again")?;
    let (desired, reported) = node.desired_and_reported(&case.example).await?;
    let missing = missing(&desired, &reported, &expectation.unreported);
    ensure!(missing.is_empty(), "not reported: {}", missing.join("\n"));

    outcome(&node.once(removal).await?, removal, "applied").context("removal")?;
    ensure!(some_fail(&expectation.kernel, node).await, "the checks pass after the removal");
    node.run_script(&expectation.cleanup.join("\n"), LIMIT).await?.success().context("cleanup")?;
    before.wait_until_restored_on(node, LIMIT).await.context("after the removal")
}

/// An example that is meant to fail reports why, and is rolled back.
async fn rolled_back(node: &ExampleNode, case: &Case, before: &Snapshot) -> Result<()> {
    let output = node.once(&case.example).await?;
    outcome(&output, &case.example, "failed")?;
    let text = output.stdout().split_whitespace().collect::<Vec<_>>().join(" ");
    for expected in &case.expectation.fails {
        ensure!(text.contains(expected), "{expected:?} is not in: {text}");
    }
    all_pass(&case.expectation.kernel, node).await?;
    before.wait_until_restored_on(node, LIMIT).await
}

/// Waits until two snapshots in a row are the same.
pub(super) async fn settled(node: &ExampleNode) -> Result<Snapshot> {
    wait::until(LIMIT, "the network to settle", async || {
        let first = Snapshot::of(node).await?;
        for unsettled in ["tentative", "NO-CARRIER"] {
            ensure!(!first.mentions(unsettled), "{unsettled}: {first:?}");
        }
        ensure!(Snapshot::of(node).await? == first, "it is still changing");
        Ok(first)
    })
    .await
}

fn outcome(output: &Output, example: &Example, expected: &str) -> Result<()> {
    let is_line = |line: &str| {
        let mut words = line.split_whitespace();
        words.next() == Some(&example.policy) && words.next() == Some(expected)
    };
    let (table, errors) = (output.stdout(), output.stderr());
    ensure!(table.lines().any(is_line), "{} is not {expected}: {table}{errors}", example.policy);
    Ok(())
}
