//! Programs of this workspace, built on first use, so that a test never runs an outdated one.
//!
//! Each function returns the path of a program, and fails when it does not compile.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use anyhow::{Context, Result};
use tokio::sync::OnceCell;

use crate::process::Invocation;

/// Long enough for a cold build on a busy machine.
const BUILD_LIMIT: Duration = Duration::from_mins(30);

/// All in one call and for the whole workspace: with an example among the targets, cargo selects the same features as
/// `cargo test`, and has nothing to compile again.
const TARGETS: [&str; 5] =
    ["--workspace", "--bin=knmstate", "--bin=guest-agent", "--example=apply_state", "--example=machine_host"];

/// Variables that cargo sets for the test's package, or that make libtest print times. If they were passed on, build
/// scripts that read them would run again, here and in the next `cargo test`, and half of all crates would be
/// recompiled.
const TEST_VARIABLES: [&str; 9] = [
    "CARGO_MANIFEST_DIR",
    "CARGO_MANIFEST_LINKS",
    "CARGO_PKG_NAME",
    "CARGO_PKG_VERSION_MAJOR",
    "CARGO_PKG_VERSION_MINOR",
    "CARGO_PKG_VERSION_PATCH",
    "CARGO_PKG_VERSION_PRE",
    "OUT_DIR",
    "RUSTC_BOOTSTRAP",
];

/// The product: `knmstate`, a debug build.
pub async fn knmstate() -> Result<PathBuf> {
    program("knmstate").await
}

/// An example that applies an nmstate document from its standard input with the nmstate crate, and prints the state
/// afterwards.
pub async fn apply_state() -> Result<PathBuf> {
    program("apply_state").await
}

/// An example that applies documents with the host crate, on the node that it runs on.
pub async fn machine_host() -> Result<PathBuf> {
    program("machine_host").await
}

/// The product as a release build, for measurements.
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

/// One of the [`TARGETS`], by its name.
pub(crate) async fn program(name: &str) -> Result<PathBuf> {
    static BUILT: OnceCell<BTreeMap<String, PathBuf>> = OnceCell::const_new();
    let built = BUILT.get_or_try_init(build).await?;
    built.get(name).cloned().with_context(|| format!("cargo built no program named {name}"))
}

/// Builds the [`TARGETS`], and returns their paths by name.
async fn build() -> Result<BTreeMap<String, PathBuf>> {
    let without = TEST_VARIABLES.iter().flat_map(|name| ["-u", name]);
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

/// Reads the paths of programs from cargo's messages, by name.
fn executables(messages: &str) -> BTreeMap<String, PathBuf> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let programs = messages.filter_map(|message| {
        let name = message["target"]["name"].as_str()?.to_owned();
        Some((name, PathBuf::from(message["executable"].as_str()?)))
    });
    programs.collect()
}
