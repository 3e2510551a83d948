//! The inputs that mutations begin with: all examples, in the form that each target reads.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

/// One input per example. Fails when the examples cannot be read.
pub fn seeds(target: &str) -> io::Result<Vec<Value>> {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut seeds = Vec::new();
    for file in
        files_below(&examples)?.iter().filter(|path| path.extension().is_some_and(|end| end == "yaml"))
    {
        let policies: Vec<Value> =
            serde_saphyr::from_multiple(&fs::read_to_string(file)?).map_err(io::Error::other)?;
        let specs = policies.into_iter().filter_map(|mut policy| policy.get_mut("spec").map(Value::take));
        seeds.extend(specs.map(|spec| seed(target, &spec)));
    }
    Ok(seeds)
}

/// All files of a directory and its subdirectories, in order.
pub fn files_below(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries: io::Result<Vec<_>> = fs::read_dir(directory)?.collect();
    let mut paths: Vec<PathBuf> = entries?.into_iter().map(|entry| entry.path()).collect();
    paths.sort();
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() { files.extend(files_below(&path)?) } else { files.push(path) }
    }
    Ok(files)
}

fn seed(target: &str, spec: &Value) -> Value {
    let desired = spec.get("desiredState").cloned().unwrap_or_else(|| json!({}));
    let capture = spec.get("capture").cloned().unwrap_or_else(|| json!({}));
    let order = json!({
        "nodeName": "node-1", "policyName": "policy", "policyGeneration": 1, "permit": "Apply",
        "desiredState": desired, "capture": capture
    });
    match target {
        "policy" => spec.clone(),
        "captures" => json!({ "capture": capture, "desired": desired, "current": desired }),
        "documents" => json!({ "desired": desired, "current": desired }),
        "enactment" => json!({ "metadata": { "name": "node-1.policy" }, "spec": order, "status": {
            "desiredState": desired,
            "conditions": [{ "type": "Available", "status": "True", "reason": "SuccessfullyConfigured" }]
        } }),
        "ledger" => json!({ "spec": order, "status": {} }),
        _ => desired,
    }
}
