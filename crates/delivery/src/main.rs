//! `generate-delivery`: writes what users install knmstate from. `make generate` and `make release` call it.

use std::{fs, path::PathBuf, process::ExitCode};

use anyhow::{Context as _, Result};
use clap::{Parser, ValueEnum};

/// Write the Helm chart, or the manifests and the OLM bundle of a release.
#[derive(Parser)]
struct Args {
    /// What to write.
    what: What,

    /// The directory that gets the files.
    #[arg(long, short, value_name = "DIR")]
    output: PathBuf,
}

#[derive(Clone, Copy, ValueEnum)]
enum What {
    /// The Helm chart, into DIR/chart.
    Chart,
    /// Plain manifests, into DIR, and the OLM bundle, into DIR/bundle.
    Release,
}

fn main() -> ExitCode {
    // One line with every cause: a backtrace of a build tool helps no reader.
    write(&Args::parse()).map_or_else(
        |error| {
            eprintln!("generate-delivery: {error:#}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}

fn write(args: &Args) -> Result<()> {
    let (files, directory) = match args.what {
        What::Chart => (knmstate_delivery::chart()?, "chart"),
        What::Release => (knmstate_delivery::release()?, "bundle"),
    };
    // Files that are no longer delivered must not stay.
    let old = args.output.join(directory);
    if old.exists() {
        fs::remove_dir_all(&old).with_context(|| format!("cannot remove {}", old.display()))?;
    }
    for file in files {
        let path = args.output.join(&file.path);
        let parent = path.parent().context("a file without a directory")?;
        fs::create_dir_all(parent)
            .with_context(|| format!("cannot create the directory {}", parent.display()))?;
        fs::write(&path, file.text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
