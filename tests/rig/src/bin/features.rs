//! Writes `docs/features.md` from the records of a test run, or checks whether they would change it.

use std::{fs, path::PathBuf, process::ExitCode};

use anyhow::{Context as _, Result};
use clap::Parser;
use rig::features::{FeatureRecord, document, same_but_for_versions};

/// Writes the table of features from the records of a test run.
#[derive(Parser)]
struct Args {
    /// The file with the records of the tests.
    records: PathBuf,
    /// The document.
    document: PathBuf,
    /// Write nothing, and fail if the document would change.
    #[arg(long)]
    check: bool,
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let records = fs::read_to_string(&args.records).with_context(|| args.records.display().to_string())?;
    let text = document(&FeatureRecord::parse_lines(&records)?);
    if !args.check {
        fs::write(&args.document, text)?;
        return Ok(ExitCode::SUCCESS);
    }
    let current = fs::read_to_string(&args.document).unwrap_or_default();
    if same_but_for_versions(&current, &text) {
        return Ok(ExitCode::SUCCESS);
    }
    let current: Vec<&str> = current.lines().collect();
    for line in text.lines().filter(|line| !current.contains(line)) {
        println!("  not in {}: {line}", args.document.display());
    }
    for line in current.iter().filter(|line| !text.lines().any(|new| new == **line)) {
        println!("  not in the records: {line}");
    }
    Ok(ExitCode::FAILURE)
}
