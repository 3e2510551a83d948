//! Every example has an expectation and is listed in the docs.

use std::{collections::BTreeSet, fs, path::PathBuf};

use anyhow::{Result, ensure};
use rig::machine::rig_file;

use super::example::{Example, cases, examples};

/// Directories whose examples have tests of their own.
const TESTED_ELSEWHERE: [&str; 4] = ["cluster", "quickstart", "refused", "rolled-back"];

#[test]
fn every_example_is_tried_and_listed() -> Result<()> {
    let cases = cases()?;
    let tried: BTreeSet<PathBuf> = cases
        .iter()
        .flat_map(|case| [Some(&case.example), case.removal.as_ref()])
        .flatten()
        .map(|example| example.path.clone())
        .collect();
    let features = fs::read_to_string(rig_file("../../docs/features.md"))?;
    let mut names = BTreeSet::new();
    for topic in fs::read_dir(examples())? {
        let topic = topic?.path();
        if !topic.is_dir() || TESTED_ELSEWHERE.iter().any(|directory| topic.ends_with(directory)) {
            continue;
        }
        for file in fs::read_dir(&topic)? {
            let example = Example::read(&file?.path())?;
            ensure!(tried.contains(&example.path), "{} has no expectation", example.id);
            let row = format!("(../examples/{}.yaml) | {} |", example.id, example.title);
            ensure!(features.contains(&row), "docs/features.md has no row {row:?}: make features");
            ensure!(names.insert(example.policy.clone()), "{} is the name of two policies", example.policy);
        }
    }
    ensure!(cases.len() >= 60, "{} examples", cases.len());
    let unseen = cases.iter().filter(|case| case.expectation.reason.is_some()).count();
    ensure!(unseen <= 5, "{unseen} examples are not verified on a kernel");
    Ok(())
}
