//! What users install knmstate by, in the hands of the tools that they use: Helm and kubectl.

mod chart;
mod manifests;
mod release;

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use serde_json::Value;

fn deploy(path: &str) -> String {
    format!("{}/../../deploy/{path}", env!("CARGO_MANIFEST_DIR"))
}

/// The documents of a stream, by kind, namespace and name.
fn objects(text: &str) -> Result<BTreeMap<String, Value>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text)?;
    let named = documents.into_iter().filter(|document| !document.is_null()).map(|object| {
        let metadata = &object["metadata"];
        let name = metadata["name"].as_str().context("an object without a name")?;
        let namespace = metadata["namespace"].as_str().unwrap_or_default();
        Ok((format!("{} {namespace}/{name}", object["kind"].as_str().unwrap_or_default()), object))
    });
    named.collect()
}
