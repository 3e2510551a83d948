//! Where the parts that are not Rust come from: found by `scripts/setup`, which also installs them.

use std::{collections::BTreeMap, path::PathBuf, sync::OnceLock};

use anyhow::{Context, Result, bail};

use crate::process::Invocation;

/// The folder with etcd, kube-apiserver, kubectl and the others.
pub async fn kubernetes(binary: &str) -> Result<String> {
    let folder = part("KNMSTATE_KUBE_BIN").await?;
    Ok(format!("{folder}/{binary}"))
}

/// The program `helm`.
pub async fn helm() -> Result<String> {
    part("KNMSTATE_HELM").await
}

/// The root folder of full-kernel nodes with a release of Debian, such as `trixie`.
pub async fn uml_root(suite: &str) -> Result<PathBuf> {
    Ok(part(&format!("KNMSTATE_UML_ROOT_{}", suite.to_uppercase())).await?.into())
}

/// The kernel of full-kernel nodes with simulated cards.
pub async fn uml_kernel() -> Result<String> {
    part("KNMSTATE_UML_KERNEL").await
}

/// Where labs make their scratch folders.
pub fn scratch_root() -> PathBuf {
    std::env::temp_dir()
}

/// `KNMSTATE_RIG_KEEP=1` keeps the scratch folders, for a look at the logs.
pub fn keep_scratch() -> bool {
    variable("KNMSTATE_RIG_KEEP").is_some()
}

/// `KNMSTATE_EXAMPLES=bond/` tries only those examples whose name has this in it.
pub fn wanted_examples() -> Option<String> {
    variable("KNMSTATE_EXAMPLES")
}

/// Where `scripts/test` wants noted what was seen to work.
pub fn seen_features() -> Option<PathBuf> {
    variable("KNMSTATE_SEEN").map(PathBuf::from)
}

/// Where `scripts/test` wants skipped tests noted.
pub fn skip_list() -> Option<PathBuf> {
    variable("KNMSTATE_SKIPPED").map(PathBuf::from)
}

async fn part(name: &str) -> Result<String> {
    static FOUND: OnceLock<BTreeMap<String, String>> = OnceLock::new();
    if let Some(value) = variable(name) {
        return Ok(value);
    }
    if FOUND.get().is_none() {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/setup");
        let output = Invocation::new([script, "--print"]).run(std::time::Duration::from_secs(20)).await?;
        if !output.status.success() {
            bail!("parts of the rig are missing; run `make setup` first\n{}", output.stderr());
        }
        let pairs = output.stdout();
        let pairs = pairs.lines().filter_map(|line| line.split_once('='));
        let _ = FOUND.set(pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect());
    }
    FOUND
        .get()
        .and_then(|found| found.get(name))
        .cloned()
        .with_context(|| format!("scripts/setup --print names no {name}"))
}

fn variable(name: &str) -> Option<String> {
    #[expect(clippy::disallowed_methods, reason = "the rig is steered by the environment of `make test`")]
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
