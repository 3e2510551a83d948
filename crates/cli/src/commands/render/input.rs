//! What is to be rendered: policies, or bare states of nmstate, out of one file.

use std::{
    fs,
    io::{self, Read as _},
    path::Path,
};

use anyhow::Context as _;
use knmstate_api::{NodeNetworkConfigurationPolicy, NodeNetworkConfigurationPolicySpec, State};
use serde_json::Value;

/// One document of the file.
#[derive(Debug)]
pub(super) struct Document {
    /// In messages: the policy, or which document of the file it is.
    pub(super) label: String,
    /// What the MachineConfig is named after, where the document says it.
    pub(super) name: Option<String>,
    pub(super) spec: NodeNetworkConfigurationPolicySpec,
}

/// The text of a file, or of standard input if it is called `-`.
pub(super) fn read(path: &Path) -> anyhow::Result<String> {
    if path == Path::new("-") {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
        return Ok(text);
    }
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// All documents. What is said about a mistake does not quote the file: it may hold secrets.
pub(super) fn documents(text: &str) -> Result<Vec<Document>, String> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).map_err(|error| {
        let place = error.location().map(|at| format!("line {}, column {}: ", at.line(), at.column()));
        let shown = error.without_snippet().to_string();
        // The place is said already, and parsers end their sentences with it.
        let what = shown.split(" at line ").next().unwrap_or_default();
        format!("{}this is not YAML: {what}", place.unwrap_or_default())
    })?;
    let documents = documents.into_iter().filter(|document| !document.is_null()).enumerate();
    let documents: Vec<Document> = documents
        .map(|(index, document)| {
            let name = document.pointer("/metadata/name").and_then(Value::as_str);
            let label = match name {
                Some(name) => format!("policy {name}"),
                None => format!("document {}", index + 1),
            };
            let name = name.map(str::to_owned);
            let spec = spec(document).map_err(|what| format!("{label}: {what}"))?;
            Ok(Document { label, name, spec })
        })
        .collect::<Result<_, String>>()?;
    if documents.is_empty() { Err("there is no policy in it".to_owned()) } else { Ok(documents) }
}

fn spec(document: Value) -> Result<NodeNetworkConfigurationPolicySpec, String> {
    let text = |key: &str| document.get(key).and_then(Value::as_str).unwrap_or_default();
    match (text("apiVersion"), text("kind")) {
        ("", "") => match document {
            Value::Object(state) => Ok(NodeNetworkConfigurationPolicySpec {
                desired_state: Some(State(state)),
                ..NodeNetworkConfigurationPolicySpec::default()
            }),
            _ => Err("this is neither a policy nor a state of nmstate".to_owned()),
        },
        ("nmstate.io/v1" | "nmstate.io/v1beta1", "NodeNetworkConfigurationPolicy") => {
            let mut unknown = Vec::new();
            let policy: NodeNetworkConfigurationPolicy =
                serde_ignored::deserialize(&document, |path| unknown.push(path.to_string()))
                    .map_err(|error| error.to_string())?;
            match unknown.iter().find(|path| path.starts_with("spec.")) {
                Some(path) => Err(format!("{path}: there is no such key; see `kubectl explain nncp.spec`")),
                None => Ok(policy.spec),
            }
        }
        (version, "NodeNetworkConfigurationPolicy") => {
            Err(format!("apiVersion: {version:?} is not known; write nmstate.io/v1"))
        }
        (_, kind) => Err(format!(
            "kind: {kind:?} cannot be rendered; give a NodeNetworkConfigurationPolicy or a state of nmstate"
        )),
    }
}
