//! Programs of this workspace, built on first use so that a test never runs an old one.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, Result};
use tokio::sync::OnceCell;

use crate::process::Invocation;

/// Long enough for a cold build on a busy machine.
const BUILD_LIMIT: Duration = Duration::from_mins(30);

/// The product.
pub async fn knmstate() -> Result<PathBuf> {
    static BUILT: OnceCell<PathBuf> = OnceCell::const_new();
    BUILT.get_or_try_init(|| build("knmstate", &["--package=knmstate", "--bin=knmstate"])).await.cloned()
}

/// Applies an nmstate document from its standard input by the nmstate crate, and prints the state afterwards.
pub async fn apply_state() -> Result<PathBuf> {
    static BUILT: OnceCell<PathBuf> = OnceCell::const_new();
    BUILT
        .get_or_try_init(|| build("apply_state", &["--package=knmstate-host", "--example=apply_state"]))
        .await
        .cloned()
}

/// Builds a target and returns the path that cargo says it has.
pub(crate) async fn build(name: &str, target: &[&str]) -> Result<PathBuf> {
    let output = Invocation::new(["cargo", "build", "--quiet", "--message-format=json"])
        .args(target.iter().copied())
        .arg(concat!("--manifest-path=", env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml"))
        .run(BUILD_LIMIT)
        .await?
        .success()
        .with_context(|| format!("build {name}"))?;
    let mut messages = output.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let path = messages.find_map(|message| {
        let ours = message["target"]["name"] == name;
        message["executable"].as_str().filter(|_| ours).map(PathBuf::from)
    });
    path.with_context(|| format!("cargo built no executable named {name}"))
}
