//! An NMState that is deleted stays until everything that it stood for is gone: whoever waits for the one has waited for the
//! other, and can remove the operator then.

use knmstate_api::NMState;
use knmstate_client::call::{CallError, within_limit};
use kube::{
    Api, Client, ResourceExt as _,
    api::{Patch, PatchParams},
};
use serde_json::json;

const FINALIZER: &str = "nmstate.io/operands";

/// Lets an NMState not be gone before we say so.
pub async fn hold_back(client: &Client, nmstate: &NMState) -> Result<(), CallError> {
    let held = nmstate.finalizers();
    if held.iter().any(|name| name == FINALIZER) {
        return Ok(());
    }
    set(client, nmstate, held.iter().cloned().chain([FINALIZER.to_owned()]).collect()).await
}

/// Lets it go, as far as we are concerned.
pub async fn let_go(client: &Client, nmstate: &NMState) -> Result<(), CallError> {
    let held = nmstate.finalizers();
    if !held.iter().any(|name| name == FINALIZER) {
        return Ok(());
    }
    set(client, nmstate, held.iter().filter(|name| *name != FINALIZER).cloned().collect()).await
}

/// Only if nobody else has changed it meanwhile: the list is written as a whole.
async fn set(client: &Client, nmstate: &NMState, finalizers: Vec<String>) -> Result<(), CallError> {
    let metadata = json!({"resourceVersion": nmstate.resource_version(), "finalizers": finalizers});
    let patch = Patch::Merge(json!({ "metadata": metadata }));
    let nmstates: Api<NMState> = Api::all(client.clone());
    match within_limit(nmstates.patch(&nmstate.name_any(), &PatchParams::default(), &patch)).await {
        // It is gone, or will be seen again as it is now.
        Err(error) if !matches!(error.code(), Some(404 | 409)) => Err(error),
        _ => Ok(()),
    }
}
