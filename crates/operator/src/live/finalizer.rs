//! The finalizer of the NMState: a deleted NMState stays until its operands are gone. So a client that waits for the
//! deletion can uninstall the operator afterwards.

use knmstate_api::NMState;
use knmstate_client::call::{CallError, within_limit};
use kube::{
    Api, Client, ResourceExt as _,
    api::{Patch, PatchParams},
};
use serde_json::json;

const FINALIZER: &str = "nmstate.io/operands";

/// Adds the finalizer, unless it is there.
pub(crate) async fn add_finalizer(client: &Client, nmstate: &NMState) -> Result<(), CallError> {
    let finalizers = nmstate.finalizers();
    if finalizers.iter().any(|name| name == FINALIZER) {
        return Ok(());
    }
    set(client, nmstate, finalizers.iter().cloned().chain([FINALIZER.to_owned()]).collect()).await
}

/// Removes the finalizer, so that the API server deletes the NMState.
pub(crate) async fn remove_finalizer(client: &Client, nmstate: &NMState) -> Result<(), CallError> {
    let finalizers = nmstate.finalizers();
    if !finalizers.iter().any(|name| name == FINALIZER) {
        return Ok(());
    }
    set(client, nmstate, finalizers.iter().filter(|name| *name != FINALIZER).cloned().collect()).await
}

/// The list is written as a whole, so a conflict with another client's write must fail.
async fn set(client: &Client, nmstate: &NMState, finalizers: Vec<String>) -> Result<(), CallError> {
    let metadata = json!({"resourceVersion": nmstate.resource_version(), "finalizers": finalizers});
    let patch = Patch::Merge(json!({ "metadata": metadata }));
    let nmstates: Api<NMState> = Api::all(client.clone());
    match within_limit(nmstates.patch(&nmstate.name_any(), &PatchParams::default(), &patch)).await {
        // It is deleted, or the watch will report its new version.
        Err(error) if !matches!(error.code(), Some(404 | 409)) => Err(error),
        _ => Ok(()),
    }
}
