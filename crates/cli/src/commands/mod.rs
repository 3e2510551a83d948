//! One file per subcommand.

pub mod check;
pub mod controller;
pub mod crds;
pub mod handler;
pub mod manifests;
pub mod node;
pub mod operator;
pub mod remove;
pub mod render;
pub mod standalone;

use std::{fs, os::unix::fs::DirBuilderExt as _, path::Path};

use anyhow::{Context as _, Result};
use jiff::Timestamp;

/// Runs a long-running role to its end.
pub fn on_runtime<T>(role: impl Future<Output = Result<T>>) -> Result<T> {
    // The machine has threads of its own; everything else waits, and one thread can wait for all of it.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let result = runtime.block_on(role);
    // What still blocks a thread is not waited for.
    runtime.shutdown_background();
    result
}

/// Creates a directory that only its owner can read, because its files may contain secrets of the network.
fn make_private_directory(path: &Path) -> Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .with_context(|| format!("cannot create the directory {} (--state-dir)", path.display()))
}

/// A variable that is set to nothing, as manifests do, is not set.
fn given(value: Option<String>) -> Option<String> {
    value.filter(|value| !value.is_empty())
}

#[expect(clippy::disallowed_methods, reason = "this is the binary, where time comes in")]
fn now() -> Timestamp {
    Timestamp::now()
}
