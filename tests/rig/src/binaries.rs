//! Programs of this workspace, built on first use so that a test never runs an old one.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use anyhow::{Context, Result};
use tokio::sync::OnceCell;

use crate::process::Invocation;

/// Long enough for a cold build on a busy machine.
const BUILD_LIMIT: Duration = Duration::from_mins(30);

/// All in one go and for the whole workspace: with an example among them, cargo chooses the same features as for
/// `cargo test`, and finds everything built already.
const TARGETS: [&str; 6] = [
    "--workspace",
    "--bin=knmstate",
    "--bin=xtask",
    "--bin=guest-agent",
    "--example=apply_state",
    "--example=machine_host",
];

/// What cargo tells a test about its package. Build scripts that look at it would run again for the sake of the test, and
/// once more for the next `cargo test`; with them, half of all crates.
const OF_THE_TEST: [&str; 8] = [
    "CARGO_MANIFEST_DIR",
    "CARGO_MANIFEST_LINKS",
    "CARGO_PKG_NAME",
    "CARGO_PKG_VERSION_MAJOR",
    "CARGO_PKG_VERSION_MINOR",
    "CARGO_PKG_VERSION_PATCH",
    "CARGO_PKG_VERSION_PRE",
    "OUT_DIR",
];

/// The product.
pub async fn knmstate() -> Result<PathBuf> {
    program("knmstate").await
}

/// Applies an nmstate document from its standard input by the nmstate crate, and prints the state afterwards.
pub async fn apply_state() -> Result<PathBuf> {
    program("apply_state").await
}

/// Puts the host on NetworkManager on trial, on the machine that it runs on.
pub async fn machine_host() -> Result<PathBuf> {
    program("machine_host").await
}

/// The product as users have it, for measurements.
pub async fn knmstate_as_released() -> Result<PathBuf> {
    let output = Invocation::new(["cargo", "build", "--quiet", "--release", "--message-format=json"])
        .args(["--package=knmstate", "--bin=knmstate"])
        .arg(concat!("--manifest-path=", env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml"))
        .run(BUILD_LIMIT)
        .await?
        .success()
        .context("build the product")?;
    executables(&output).remove("knmstate").context("cargo built no program")
}

/// One of the targets, by its name.
pub(crate) async fn program(name: &str) -> Result<PathBuf> {
    static BUILT: OnceCell<BTreeMap<String, PathBuf>> = OnceCell::const_new();
    let built = BUILT.get_or_try_init(build).await?;
    built.get(name).cloned().with_context(|| format!("cargo built no program named {name}"))
}

/// The paths that cargo says the programs have.
async fn build() -> Result<BTreeMap<String, PathBuf>> {
    let without = OF_THE_TEST.iter().flat_map(|name| ["-u", name]);
    let output = Invocation::new(["env"])
        .args(without)
        .args(["cargo", "build", "--quiet", "--message-format=json"])
        .args(TARGETS)
        .arg(concat!("--manifest-path=", env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml"))
        .run(BUILD_LIMIT)
        .await?
        .success()
        .context("build the programs of the workspace")?;
    Ok(executables(&output))
}

/// The programs of cargo's messages, by their names.
fn executables(messages: &str) -> BTreeMap<String, PathBuf> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let programs = messages.filter_map(|message| {
        let name = message["target"]["name"].as_str()?.to_owned();
        Some((name, PathBuf::from(message["executable"].as_str()?)))
    });
    programs.collect()
}
