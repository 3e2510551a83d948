//! Reads policies from the files of a directory.

use std::{
    collections::BTreeMap,
    fmt, fs, io,
    path::{Path, PathBuf},
};

use knmstate_api::{NodeNetworkConfigurationPolicy, names, probe::Probe};
use serde_json::Value;

/// An error in a file, described for the admin who has to fix it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyFileError {
    /// The file with the error.
    pub file: PathBuf,
    /// The policy, or the place in the file. May be empty.
    pub place: String,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for PolicyFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.file.display())?;
        if !self.place.is_empty() {
            write!(f, "{}: ", self.place)?;
        }
        f.write_str(&self.what)
    }
}

/// The policies of a directory, and the errors in its files.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PolicyFiles {
    /// The policies by name, each with its file.
    pub policies: BTreeMap<String, (PathBuf, NodeNetworkConfigurationPolicy)>,
    /// The errors, in the order of the files.
    pub errors: Vec<PolicyFileError>,
}

/// Reads all files of a directory that end in `.yaml`, `.yml` or `.json`, sorted by name. A file with an error keeps
/// the policies that it had in `before`, so that a typo does not withdraw an order. Fails when the directory cannot be
/// read.
pub(crate) fn read(directory: &Path, before: &PolicyFiles) -> io::Result<PolicyFiles> {
    let mut files = PolicyFiles::default();
    for file in list(directory)? {
        match fs::read_to_string(&file) {
            // The file has just been replaced or removed. The next reading finds the new one.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => files.error(&file, "", format!("cannot be read: {error}"), before),
            Ok(text) => match documents(&text) {
                Err((place, what)) => files.error(&file, &place, what, before),
                Ok(documents) => files.add(&file, documents, before),
            },
        }
    }
    Ok(files)
}

fn list(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let is_policy_file = |path: &Path| {
        let hidden = path.file_name().is_none_or(|name| name.to_string_lossy().starts_with('.'));
        let known =
            path.extension().is_some_and(|ending| ending == "yaml" || ending == "yml" || ending == "json");
        known && !hidden
    };
    let entries = fs::read_dir(directory)?;
    let mut files: Vec<PathBuf> =
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    files.retain(|path| is_policy_file(path));
    files.sort();
    Ok(files)
}

impl PolicyFiles {
    fn error(&mut self, file: &Path, place: &str, what: impl Into<String>, before: &Self) {
        let error = PolicyFileError { file: file.to_owned(), place: place.to_owned(), what: what.into() };
        self.errors.push(error);
        for (name, (known, policy)) in &before.policies {
            if known == file && !self.policies.contains_key(name) {
                self.policies.insert(name.clone(), (known.clone(), policy.clone()));
            }
        }
    }

    fn add(&mut self, file: &Path, documents: Vec<Value>, before: &Self) {
        for (index, document) in documents.into_iter().enumerate() {
            let name = document.pointer("/metadata/name").and_then(Value::as_str).map(str::to_owned);
            let place = match &name {
                Some(name) => format!("policy {name}"),
                None => format!("document {}", index + 1),
            };
            match policy(&document) {
                Err(what) => self.error(file, &place, what, before),
                Ok(policy) => {
                    let name = name.unwrap_or_default();
                    if let Some((other, _)) = self.policies.get(&name).filter(|(other, _)| other != file) {
                        let what = format!("there is another policy of this name in {}", other.display());
                        self.error(file, &place, what, before);
                    } else {
                        self.policies.insert(name, (file.to_owned(), policy));
                    }
                }
            }
        }
    }
}

/// The documents of a file. Fails with the place and a message, which does not quote the file: it may hold secrets.
pub(crate) fn documents(text: &str) -> Result<Vec<Value>, (String, String)> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).map_err(|error| {
        let place = error.location().map(|at| format!("line {}, column {}", at.line(), at.column()));
        let message = error.without_snippet().to_string();
        // The message of the parser ends with the place, which the caller adds itself.
        let what = message.split(" at line ").next().unwrap_or_default().to_owned();
        (place.unwrap_or_default(), format!("this is not YAML: {what}"))
    })?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

/// Parses a policy. Fails with a message if the document is not one, or one that a node cannot apply without a
/// controller.
pub(crate) fn policy(document: &Value) -> Result<NodeNetworkConfigurationPolicy, String> {
    let text = |key: &str| document.get(key).and_then(Value::as_str).unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    if kind != "NodeNetworkConfigurationPolicy" {
        return Err(format!(
            "kind: {kind:?} is not a NodeNetworkConfigurationPolicy; put other objects elsewhere"
        ));
    }
    if !["nmstate.io/v1", "nmstate.io/v1beta1"].contains(&version) {
        return Err(format!("apiVersion: {version:?} is not known; write nmstate.io/v1"));
    }
    let mut unknown = Vec::new();
    let policy: NodeNetworkConfigurationPolicy =
        serde_ignored::deserialize(document, |path| unknown.push(path.to_string()))
            .map_err(|error| error.to_string())?;
    // Fields outside of the spec do not matter here, such as those that kubectl or the API server adds.
    if let Some(path) = unknown.iter().find(|path| path.starts_with("spec.")) {
        return Err(format!("{path}: there is no such key; see `kubectl explain nncp.spec`, or examples/"));
    }
    check(&policy)?;
    Ok(policy)
}

/// Checks what the API server would refuse, and what needs a controller.
fn check(policy: &NodeNetworkConfigurationPolicy) -> Result<(), String> {
    let name = policy.metadata.name.as_deref().unwrap_or_default();
    let is_named = !name.is_empty()
        && name.len() <= names::MAX_POLICY_NAME_LENGTH
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.')
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.ends_with(|c: char| c.is_ascii_alphanumeric());
    if !is_named {
        return Err(format!(
            "metadata.name: {name:?} must be made of at most 63 lower-case letters, digits, dashes and dots, with a \
             letter or digit at both ends"
        ));
    }
    let spec = &policy.spec;
    if !spec.values.is_empty() || !spec.node_values.is_empty() {
        return Err(
            "spec.values: only the controller of a cluster can fill in values, and this node has none; write the \
             values into desiredState"
                .to_owned(),
        );
    }
    for probe in &spec.probes {
        check_probe(probe).map_err(|what| format!("spec.probes[{}]: {what}", probe.name))?;
    }
    Ok(())
}

fn check_probe(probe: &Probe) -> Result<(), &'static str> {
    let kinds = [
        probe.ping.is_some(),
        probe.tcp.is_some(),
        probe.http.is_some(),
        probe.dns.is_some(),
        probe.lease.is_some(),
        probe.built_in.is_some(),
    ];
    if kinds.into_iter().filter(|there| *there).count() == 1 {
        Ok(())
    } else {
        Err("a probe must have exactly one of ping, tcp, http, dns, lease and builtIn")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(files: &[(&str, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(directory.path().join(name), text).unwrap();
        }
        directory
    }

    fn named(name: &str) -> String {
        format!(
            "apiVersion: nmstate.io/v1\nkind: NodeNetworkConfigurationPolicy\nmetadata: {{ name: {name} }}\n"
        )
    }

    fn errors(files: &[(&str, &str)]) -> Vec<String> {
        let directory = directory(files);
        let found = read(directory.path(), &PolicyFiles::default()).unwrap();
        let here = format!("{}/", directory.path().display());
        found.errors.iter().map(|error| error.to_string().replace(&here, "")).collect()
    }

    #[test]
    fn all_documents_of_all_files_are_read() {
        let two = format!("# two\n---\n{}---\n{}---\n", named("a"), named("b"));
        let json = r#"{ "apiVersion": "nmstate.io/v1beta1", "kind": "NodeNetworkConfigurationPolicy", "metadata": { "name": "c" } }"#;
        let directory = directory(&[
            ("10.yaml", &two),
            ("20.json", json),
            ("30.yml", &named("d")),
            ("notes.txt", "not a policy"),
            (".hidden.yaml", "{"),
        ]);
        let found = read(directory.path(), &PolicyFiles::default()).unwrap();
        assert_eq!(found.errors, []);
        assert_eq!(found.policies.keys().collect::<Vec<_>>(), ["a", "b", "c", "d"]);
    }

    #[test]
    fn an_error_has_its_file_and_place() {
        let policy = named("a");
        for (text, expected) in [
            ("a: [1\nb: 2\n".to_owned(), "x.yaml: line 2, column 2: this is not YAML: "),
            (format!("{policy}{policy}"), "x.yaml: line 4, column 1: this is not YAML: "),
            (
                "kind: Pod\napiVersion: v1\nmetadata: { name: web }".to_owned(),
                "x.yaml: policy web: kind: \"Pod\" is not a NodeNetworkConfigurationPolicy; put other objects elsewhere",
            ),
            (
                "- 1".to_owned(),
                "x.yaml: document 1: kind: \"\" is not a NodeNetworkConfigurationPolicy; put other objects elsewhere",
            ),
            (
                policy.replace("nmstate.io/v1", "nmstate.io/v7"),
                "x.yaml: policy a: apiVersion: \"nmstate.io/v7\" is not known; write nmstate.io/v1",
            ),
            (
                format!("{policy}spec: {{ desiredstate: {{}} }}"),
                "x.yaml: policy a: spec.desiredstate: there is no such key; see `kubectl explain nncp.spec`, or examples/",
            ),
            (
                format!("{policy}spec: {{ desiredState: [] }}"),
                "x.yaml: policy a: invalid type: sequence, expected a map",
            ),
            (named("A_b"), "x.yaml: policy A_b: metadata.name: \"A_b\" must be made of"),
            (
                format!("{policy}spec: {{ probes: [{{ name: p }}] }}"),
                "x.yaml: policy a: spec.probes[p]: a probe must have exactly one of",
            ),
            (
                format!("{policy}spec: {{ values: {{ a: 1 }} }}"),
                "x.yaml: policy a: spec.values: only the controller of a cluster can fill in values",
            ),
        ] {
            let found = errors(&[("x.yaml", &text)]);
            assert!(found.len() == 1 && found[0].starts_with(expected), "{text}\n{found:#?}");
        }
        assert_eq!(
            errors(&[("1.yaml", &policy), ("2.yaml", &policy)]).len(),
            1,
            "one name in two files is an error of the second"
        );
    }

    #[test]
    fn an_error_does_not_quote_the_file() {
        let text = format!("{}spec:\n  desiredState:\n    password: hush\n   wrong: [", named("a"));
        let found = errors(&[("x.yaml", &text)]);
        assert!(found.len() == 1 && !found[0].contains("hush"), "{found:?}");
    }

    #[test]
    fn a_file_that_became_invalid_keeps_its_policies() {
        let directory = directory(&[("x.yaml", &named("a")), ("y.yaml", &named("b"))]);
        let before = read(directory.path(), &PolicyFiles::default()).unwrap();
        fs::write(directory.path().join("x.yaml"), "{").unwrap();
        fs::remove_file(directory.path().join("y.yaml")).unwrap();
        let after = read(directory.path(), &before).unwrap();
        assert_eq!(after.policies.keys().collect::<Vec<_>>(), ["a"]);
        assert_eq!(after.errors.len(), 1);
    }
}
