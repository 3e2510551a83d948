//! `cargo run -p xtask -- image` builds the container image.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::{Args, Parser, Subcommand};
use xtask::knmstate_image;

/// The limit in bytes, because every node downloads and keeps the image.
const MAX_IMAGE_SIZE: usize = 25_000_000;

/// Tasks of the knmstate workspace that are not a cargo build.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Build knmstate statically and pack it into an OCI image layout tar (`ctr images import`, `podman load`).
    Image(ImageArgs),
}

#[derive(Args)]
struct ImageArgs {
    /// Pack this statically linked program instead of building one.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["profile", "target"])]
    binary: Option<PathBuf>,
    /// Cargo profile to build with.
    #[arg(long, default_value = "release")]
    profile: String,
    /// Rust target to build for; the host's when absent. Its linker must be installed.
    #[arg(long, value_name = "TRIPLE")]
    target: Option<String>,
    /// The version that the program reports, instead of the workspace's.
    #[arg(long, value_name = "VERSION")]
    version: Option<String>,
    /// The file of the image [default: target/image/knmstate.tar in the workspace].
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Do not compress, for an image that is read on this machine only.
    #[arg(long)]
    uncompressed: bool,
    /// The name of the image, with host and tag.
    #[arg(long, value_name = "NAME", default_value = knmstate_image::DEV_REFERENCE)]
    tag: String,
}

fn main() -> ExitCode {
    let done = match Cli::parse().task {
        Task::Image(args) => image(args),
    };
    // One line with all causes, without a backtrace.
    done.map_or_else(
        |error| {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}

fn image(args: ImageArgs) -> Result<()> {
    let workspace =
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask has no parent directory")?;
    let version = args.version.as_deref();
    let binary = match args.binary {
        Some(binary) => binary,
        None => knmstate_image::build_static(workspace, &args.profile, args.target.as_deref(), version)?,
    };
    let output = args.output.unwrap_or_else(|| workspace.join("target/image/knmstate.tar"));
    let mut image = knmstate_image::pack(&binary, &args.tag, version)?;
    if !args.uncompressed {
        image = image.compressed();
    }
    let size = knmstate_image::write_file(&image, &output)?;
    println!("{} ({}), {}", output.display(), args.tag, megabytes(size));
    ensure!(
        args.uncompressed || size <= MAX_IMAGE_SIZE,
        "the image has {}; at most {} are allowed",
        megabytes(size),
        megabytes(MAX_IMAGE_SIZE)
    );
    Ok(())
}

fn megabytes(bytes: usize) -> String {
    format!("{}.{} MB", bytes / 1_000_000, bytes % 1_000_000 / 100_000)
}
