//! Which kinds the API server has.

use std::collections::BTreeSet;

use kube::Client;

use crate::call::{CallError, within_limit};

/// The kinds of a group and version, such as `apps/v1`; none if the server does not have them.
pub async fn kinds_of(client: &Client, api_version: &str) -> Result<BTreeSet<String>, CallError> {
    match within_limit(client.list_api_group_resources(api_version)).await {
        Ok(list) => Ok(list.resources.into_iter().map(|resource| resource.kind).collect()),
        Err(error) if error.code() == Some(404) => Ok(BTreeSet::new()),
        Err(error) => Err(error),
    }
}
