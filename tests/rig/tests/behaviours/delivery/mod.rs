//! The chart and the manifests that users install, tested with Helm and kubectl.

mod chart;
mod manifests;
mod release;

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context as _, Result};
use rig::Lab;
use serde_json::Value;

/// A file of the release, as `make release` writes it, in the lab's own directory.
fn asset(lab: &Lab, name: &str) -> Result<String> {
    let release = knmstate_delivery::release()?;
    let file = release.into_iter().find(|file| file.path == Path::new(name)).context("no such asset")?;
    let path = lab.directory().join(name);
    fs::write(&path, file.text)?;
    Ok(path.display().to_string())
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
