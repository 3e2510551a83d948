//! Applies an nmstate document (JSON on standard input) to the machine it runs on and prints the state afterwards.
//!
//! This is nmstate and NetworkManager with nothing of ours in between: the rig's proof that its nodes are real.

use std::io::{Read as _, stdin};

use nmstate::{NetworkState, NmstateError};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut document = String::new();
    stdin().read_to_string(&mut document)?;
    let state = apply(&document)?;
    println!("{}", serde_json::to_string_pretty(&state)?);
    Ok(())
}

fn apply(document: &str) -> Result<NetworkState, NmstateError> {
    NetworkState::new_from_json(document)?.apply()?;
    let mut state = NetworkState::new();
    state.retrieve()?;
    Ok(state)
}
