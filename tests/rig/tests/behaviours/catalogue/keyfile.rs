//! Examples that no node here can run: only the keyfiles that NetworkManager would get are checked.

use std::fs;

use anyhow::{Context as _, Result};
use knmstate_host::NetworkState;
use knmstate_offline::keyfiles::keyfiles;
use rig::features::Method;
use serde_json::Value;

use super::{
    example::{Case, NodeKind},
    of_kind, record,
};

#[test]
fn examples_that_no_node_can_run_have_the_right_keyfiles() -> Result<()> {
    for case in of_kind(NodeKind::Keyfile)? {
        check(&case).with_context(|| case.example.id.clone())?;
        record(&case.example, &case, Method::Keyfile, None).append()?;
    }
    Ok(())
}

fn check(case: &Case) -> Result<()> {
    case.expectation.reason.as_ref().context("the reason is missing")?;
    let manifest: Value = serde_saphyr::from_str(&fs::read_to_string(&case.example.path)?)?;
    let desired = NetworkState::parse(manifest["spec"]["desiredState"].clone())?;
    let files: String = keyfiles(&desired)?.into_iter().map(|file| file.text).collect();
    case.expectation.kernel.iter().try_for_each(|check| check.passes_with(&files))
}
