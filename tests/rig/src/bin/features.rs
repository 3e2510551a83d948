//! Writes `docs/features.md` from what a run of the tests has noted, or says whether that would change it.

use std::{fs, path::PathBuf, process::ExitCode};

use anyhow::{Context as _, Result};
use clap::Parser;
use rig::features::{Seen, document, same_but_for_versions};

#[derive(Parser)]
struct Args {
    /// What the tests have noted.
    seen: PathBuf,
    /// The document.
    document: PathBuf,
    /// Change nothing, and fail when the document says something else.
    #[arg(long)]
    check: bool,
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let seen = fs::read_to_string(&args.seen).with_context(|| args.seen.display().to_string())?;
    let text = document(&Seen::read(&seen)?);
    if !args.check {
        fs::write(&args.document, text)?;
        return Ok(ExitCode::SUCCESS);
    }
    let there = fs::read_to_string(&args.document).unwrap_or_default();
    if same_but_for_versions(&there, &text) {
        return Ok(ExitCode::SUCCESS);
    }
    let there: Vec<&str> = there.lines().collect();
    for line in text.lines().filter(|line| !there.contains(line)) {
        println!("  seen, and not in {}: {line}", args.document.display());
    }
    for line in there.iter().filter(|line| !text.lines().any(|new| new == **line)) {
        println!("  not seen: {line}");
    }
    Ok(ExitCode::FAILURE)
}
