//! The state of the network, to be read.

use std::io::Write;

use anyhow::{Context as _, Result};
use knmstate_files::yaml;
use knmstate_host::{Host as _, NetworkManagerHost, NetworkManagerOptions, NetworkState};
use serde::Serialize;
use serde_json::{Value, json};

/// How a state is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notation {
    Yaml,
    Json,
}

/// The current state. This changes nothing, so it needs no lock.
pub async fn observe() -> Result<NetworkState> {
    // No change is made, so that nothing is noted there.
    let host = NetworkManagerHost::start(NetworkManagerOptions::new("/var/lib/knmstate/journal"))
        .await
        .context("cannot watch the network of this machine")?;
    host.observe().await.context("cannot read the state of the network")
}

/// The state of one interface, if it is there; or of everything.
pub fn only(state: NetworkState, name: Option<&str>) -> Option<Value> {
    match name {
        None => Some(state.into_value()),
        Some(name) => Some(json!({ "interfaces": [state.interface(name)?] })),
    }
}

/// Writes a state, or anything else of the kind.
pub fn write_state(out: &mut impl Write, state: &impl Serialize, notation: Notation) -> Result<()> {
    match notation {
        Notation::Json => {
            serde_json::to_writer_pretty(&mut *out, state)?;
            writeln!(out)?;
        }
        Notation::Yaml => write!(out, "---\n{}", yaml::document(state)?)?,
    }
    out.flush()?;
    Ok(())
}
