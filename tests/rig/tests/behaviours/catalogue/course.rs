//! What an example goes through, without a cluster: applied, seen in the kernel, told back, left alone, taken away.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rig::{Output, Snapshot, shell::Shell as _, wait};

use super::{
    check::{all_pass, some_fail},
    example::{Case, Example},
    reported::missing,
    stage::Stage,
};

const LIMIT: Duration = Duration::from_secs(30);

pub(super) async fn walk(stage: &Stage, case: &Case) -> Result<()> {
    let expectation = &case.expectation;
    let before = at_rest(stage).await?;
    stage.lines(&expectation.given.join("\n"), LIMIT).await?.success().context("what is given")?;
    let Some(removal) = &case.removal else { return rolled_back(stage, case, &before).await };
    ensure!(some_fail(&expectation.kernel, stage).await, "what is expected is so from the start");

    outcome(&stage.once(&case.example).await?, &case.example, "applied")?;
    all_pass(&expectation.kernel, stage).await?;
    outcome(&stage.once(&case.example).await?, &case.example, "unchanged").context("applied again")?;
    let (desired, reported) = stage.told(&case.example).await?;
    let missing = missing(&desired, &reported, &expectation.unreported);
    ensure!(missing.is_empty(), "not reported: {}", missing.join("\n"));

    outcome(&stage.once(removal).await?, removal, "applied").context("removal")?;
    ensure!(some_fail(&expectation.kernel, stage).await, "what is expected is so after the removal");
    stage.lines(&expectation.undo.join("\n"), LIMIT).await?.success().context("undo")?;
    before.is_again_on(stage, LIMIT).await.context("after the removal")
}

/// An example that is meant to fail says why, and leaves nothing behind.
async fn rolled_back(stage: &Stage, case: &Case, before: &Snapshot) -> Result<()> {
    let output = stage.once(&case.example).await?;
    outcome(&output, &case.example, "failed")?;
    let said = output.stdout().split_whitespace().collect::<Vec<_>>().join(" ");
    for expected in &case.expectation.fails {
        ensure!(said.contains(expected), "{expected:?} is not said: {said}");
    }
    all_pass(&case.expectation.kernel, stage).await?;
    before.is_again_on(stage, LIMIT).await
}

/// The node as it is when two looks at it say the same.
pub(super) async fn at_rest(stage: &Stage) -> Result<Snapshot> {
    wait::until(LIMIT, "the node to be at rest", async || {
        let first = Snapshot::of(stage).await?;
        for unsettled in ["tentative", "NO-CARRIER"] {
            ensure!(!first.mentions(unsettled), "{unsettled}: {first:?}");
        }
        ensure!(Snapshot::of(stage).await? == first, "it is still changing");
        Ok(first)
    })
    .await
}

fn outcome(output: &Output, example: &Example, expected: &str) -> Result<()> {
    let is_line = |line: &str| {
        let mut words = line.split_whitespace();
        words.next() == Some(&example.policy) && words.next() == Some(expected)
    };
    let (table, complaint) = (output.stdout(), output.stderr());
    ensure!(table.lines().any(is_line), "{} is not {expected}: {table}{complaint}", example.policy);
    Ok(())
}
