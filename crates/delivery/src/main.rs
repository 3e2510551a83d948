//! `generate-delivery`: writes what users get knmstate by. `make generate` calls it.

use std::{fs, path::PathBuf, process::ExitCode};

use anyhow::{Context as _, Result};
use clap::Parser;

/// Write plain manifests, the Helm chart and the OLM bundle anew.
#[derive(Parser)]
struct Args {
    /// The folder that gets them.
    #[arg(long, short, value_name = "DIR", default_value = "deploy")]
    output: PathBuf,
}

fn main() -> ExitCode {
    // One line with every cause: a backtrace of a build tool helps nobody.
    write(&Args::parse()).map_or_else(
        |error| {
            eprintln!("generate-delivery: {error:#}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}

fn write(args: &Args) -> Result<()> {
    let files = knmstate_delivery::files()?;
    for folder in knmstate_delivery::FOLDERS.map(|folder| args.output.join(folder)) {
        // What is no longer delivered goes.
        if folder.exists() {
            fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
        }
    }
    for file in files {
        let path = args.output.join(&file.path);
        let folder = path.parent().context("a file without a folder")?;
        fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
        fs::write(&path, file.text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
