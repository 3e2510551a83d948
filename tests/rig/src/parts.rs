//! Paths of the parts that cargo does not build, and the environment variables that configure the rig.
//!
//! `scripts/setup` installs the parts and prints their paths. The functions that return one fail when a part is
//! missing.

use std::{collections::BTreeMap, path::PathBuf, sync::OnceLock};

use anyhow::{Context, Result, bail};

use crate::process::Invocation;

/// A program of Kubernetes or etcd, such as `kube-apiserver`.
pub async fn kubernetes(binary: &str) -> Result<String> {
    let directory = part("KNMSTATE_KUBE_BIN").await?;
    Ok(format!("{directory}/{binary}"))
}

/// The program `helm`.
pub async fn helm() -> Result<String> {
    part("KNMSTATE_HELM").await
}

/// The root directory of full-kernel nodes with a release of Debian, such as `trixie`.
pub(crate) async fn uml_root(suite: &str) -> Result<PathBuf> {
    Ok(part(&format!("KNMSTATE_UML_ROOT_{}", suite.to_uppercase())).await?.into())
}

/// The kernel of full-kernel nodes, a program.
pub(crate) async fn uml_kernel() -> Result<String> {
    part("KNMSTATE_UML_KERNEL").await
}

/// Where labs create their scratch directories.
pub(crate) fn scratch_root() -> PathBuf {
    std::env::temp_dir()
}

/// Whether to keep the scratch directories with their logs: `KNMSTATE_RIG_KEEP=1`.
pub(crate) fn keep_scratch() -> bool {
    variable("KNMSTATE_RIG_KEEP").is_some()
}

/// The examples to test, if not all: `KNMSTATE_EXAMPLES=bond/,vlan/on-nic` selects those whose name contains one of
/// these.
pub fn example_filter() -> Option<String> {
    variable("KNMSTATE_EXAMPLES")
}

/// The file to which tests append the features that work, for `scripts/test`: `KNMSTATE_FEATURE_RECORDS`.
pub(crate) fn feature_records() -> Option<PathBuf> {
    variable("KNMSTATE_FEATURE_RECORDS").map(PathBuf::from)
}

/// The file to which tests append that they were skipped, for `scripts/test`: `KNMSTATE_SKIPPED`.
pub(crate) fn skip_list() -> Option<PathBuf> {
    variable("KNMSTATE_SKIPPED").map(PathBuf::from)
}

async fn part(name: &str) -> Result<String> {
    static FOUND: OnceLock<BTreeMap<String, String>> = OnceLock::new();
    if let Some(value) = variable(name) {
        return Ok(value);
    }
    if FOUND.get().is_none() {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/setup");
        let output =
            Invocation::new([script, "--print", "test"]).run(std::time::Duration::from_secs(20)).await?;
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
        .with_context(|| format!("scripts/setup --print test prints no {name}"))
}

fn variable(name: &str) -> Option<String> {
    #[expect(clippy::disallowed_methods, reason = "`make test` configures the rig by its environment")]
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
