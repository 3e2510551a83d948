//! Examples that no node here can carry: they are understood, and NetworkManager would be told the right thing.

use std::fs;

use anyhow::{Context as _, Result};
use knmstate_host::{NetworkState, keyfiles::keyfiles};
use rig::features::Way;
use serde_json::Value;

use super::{
    example::{Case, NodeKind},
    of_kind, seen,
};

#[test]
fn what_no_node_can_carry_is_told_to_network_manager() -> Result<()> {
    for case in of_kind(NodeKind::Keyfile)? {
        look(&case).with_context(|| case.example.id.clone())?;
        seen(&case.example, &case, Way::Keyfile, None).note()?;
    }
    Ok(())
}

fn look(case: &Case) -> Result<()> {
    case.expectation.because.as_ref().context("the reason is missing")?;
    let manifest: Value = serde_saphyr::from_str(&fs::read_to_string(&case.example.path)?)?;
    let desired = NetworkState::parse(manifest["spec"]["desiredState"].clone())?;
    let files: String = keyfiles(&desired)?.into_iter().map(|file| file.text).collect();
    case.expectation.kernel.iter().try_for_each(|check| check.passes_with(&files))
}
