//! The rules of Ignition 3.4.0 for the parts that are used: which keys there are, and what may stand in them. Strict:
//! a key that is not listed is a mistake here, although Ignition has more of them.

use std::collections::BTreeMap;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    ignition: Ignition,
    storage: Storage,
    #[serde(default)]
    systemd: Systemd,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ignition {
    version: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Storage {
    files: Vec<File>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Systemd {
    units: Vec<Unit>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    path: String,
    mode: u32,
    overwrite: bool,
    contents: Contents,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    source: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Unit {
    name: String,
    enabled: bool,
    contents: String,
}

/// What a machine would be given.
#[derive(Debug)]
pub(super) struct Given {
    /// By path.
    pub(super) files: BTreeMap<String, GivenFile>,
    /// Name and contents of those that are enabled.
    pub(super) units: Vec<(String, String)>,
}

#[derive(Debug)]
pub(super) struct GivenFile {
    pub(super) mode: u32,
    pub(super) text: String,
}

/// Reads a document as Ignition would, or says which rule it breaks.
pub(super) fn read(config: &Value) -> Result<Given, String> {
    let config: Config = Config::deserialize(config).map_err(|error| error.to_string())?;
    if config.ignition.version != "3.4.0" {
        return Err(format!("version {}", config.ignition.version));
    }
    let mut files = BTreeMap::new();
    for File { path, mode, overwrite, contents } in config.storage.files {
        let is_clean = path.starts_with('/')
            && path[1..].split('/').all(|part| !part.is_empty() && part != "." && part != "..");
        if !is_clean {
            return Err(format!("the path {path:?} is not absolute, or not the shortest"));
        }
        if mode > 0o7777 {
            return Err(format!("the mode {mode} of {path} is none"));
        }
        // An octal mode that was written as a decimal number has unwanted bits.
        if ![0o600, 0o644].contains(&mode) {
            return Err(format!("the mode {mode:o} of {path}"));
        }
        if !overwrite {
            return Err(format!("{path} would not replace what is there"));
        }
        let data = contents.source.strip_prefix("data:;base64,").ok_or("no data URL")?;
        let text = BASE64_STANDARD.decode(data).map_err(|error| error.to_string())?;
        let text = String::from_utf8(text).map_err(|error| error.to_string())?;
        if files.insert(path.clone(), GivenFile { mode, text }).is_some() {
            return Err(format!("{path} is given twice"));
        }
    }
    let mut units: Vec<(String, String)> = Vec::new();
    for Unit { name, enabled, contents } in config.systemd.units {
        let is_named = [".service", ".mount", ".socket", ".timer", ".target", ".path"]
            .iter()
            .any(|ending| name.len() > ending.len() && name.ends_with(ending))
            && name.chars().all(|c| c.is_ascii_alphanumeric() || ":_.-\\@".contains(c));
        if !is_named || !enabled || units.iter().any(|(other, _)| *other == name) {
            return Err(format!("the unit {name:?}"));
        }
        // Ignition refuses to enable what says nothing about where it belongs.
        if !contents.contains("[Install]\n") {
            return Err(format!("the unit {name} has no [Install]"));
        }
        units.push((name, contents));
    }
    Ok(Given { files, units })
}

#[test]
fn what_breaks_a_rule_is_noticed() {
    use serde_json::json;
    let good = json!({ "ignition": { "version": "3.4.0" }, "storage": { "files": [
        { "path": "/etc/a", "mode": 384, "overwrite": true, "contents": { "source": "data:;base64,YQ==" } }
    ] }, "systemd": { "units": [{ "name": "a.mount", "enabled": true, "contents": "[Install]\n" }] } });
    assert!(read(&good).is_ok());
    for (pointer, value) in [
        ("/ignition/version", json!("3.5.0")),
        ("/ignition/more", json!(1)),
        ("/storage/files/0/path", json!("etc/a")),
        ("/storage/files/0/path", json!("/etc/../a")),
        ("/storage/files/0/mode", json!(600)),
        ("/storage/files/0/mode", json!("0600")),
        ("/storage/files/0/overwrite", json!(false)),
        ("/storage/files/0/filesystem", json!("root")),
        ("/storage/files/0/contents/source", json!("a")),
        ("/storage/files/1", good["storage"]["files"][0].clone()),
        ("/systemd/units/0/name", json!("a")),
        ("/systemd/units/0/contents", json!("")),
    ] {
        let mut bad = good.clone();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        match bad.pointer_mut(parent).unwrap() {
            Value::Array(list) => list.push(value),
            below => below[key] = value,
        }
        assert!(read(&bad).is_err(), "{bad:#}");
    }
}
