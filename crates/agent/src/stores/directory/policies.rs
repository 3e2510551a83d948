//! Policies out of the files of a folder, as an admin would hand them to a cluster.

use std::{
    collections::BTreeMap,
    fmt, fs, io,
    path::{Path, PathBuf},
};

use knmstate_api::{NodeNetworkConfigurationPolicy, names, probe::Probe};
use serde_json::Value;

/// What is wrong with a file, in the words of whoever has to mend it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    pub file: PathBuf,
    /// The policy, or the place in the file.
    pub place: String,
    pub what: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.file.display())?;
        if !self.place.is_empty() {
            write!(f, "{}: ", self.place)?;
        }
        f.write_str(&self.what)
    }
}

/// The policies of a folder by name, each with its file; and what could not be read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    pub policies: BTreeMap<String, (PathBuf, NodeNetworkConfigurationPolicy)>,
    pub mistakes: Vec<Mistake>,
}

/// Reads all files of a folder that end in `.yaml`, `.yml` or `.json`, by name. A file that cannot be understood
/// keeps what it said in `before`: a slip of the pen is no reason to let go of what was ordered.
pub fn read(folder: &Path, before: &Found) -> io::Result<Found> {
    let mut found = Found::default();
    for file in files(folder)? {
        match fs::read_to_string(&file) {
            // It was there a moment ago: a file that is being replaced. The next look finds the new one.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => found.mistake(&file, "", format!("cannot be read: {error}"), before),
            Ok(text) => match documents(&text) {
                Err((place, what)) => found.mistake(&file, &place, what, before),
                Ok(documents) => found.add(&file, documents, before),
            },
        }
    }
    Ok(found)
}

fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let is_for_us = |path: &Path| {
        let hidden = path.file_name().is_none_or(|name| name.to_string_lossy().starts_with('.'));
        let known =
            path.extension().is_some_and(|ending| ending == "yaml" || ending == "yml" || ending == "json");
        known && !hidden
    };
    let entries = fs::read_dir(folder)?;
    let mut files: Vec<PathBuf> =
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    files.retain(|path| is_for_us(path));
    files.sort();
    Ok(files)
}

impl Found {
    fn mistake(&mut self, file: &Path, place: &str, what: impl Into<String>, before: &Self) {
        let mistake = Mistake { file: file.to_owned(), place: place.to_owned(), what: what.into() };
        self.mistakes.push(mistake);
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
                Err(what) => self.mistake(file, &place, what, before),
                Ok(policy) => {
                    let name = name.unwrap_or_default();
                    if let Some((other, _)) = self.policies.get(&name).filter(|(other, _)| other != file) {
                        let what = format!("there is another policy of this name in {}", other.display());
                        self.mistake(file, &place, what, before);
                    } else {
                        self.policies.insert(name, (file.to_owned(), policy));
                    }
                }
            }
        }
    }
}

/// The documents of a file. What is said about a mistake does not quote the file: it may hold secrets.
pub(crate) fn documents(text: &str) -> Result<Vec<Value>, (String, String)> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).map_err(|error| {
        let place = error.location().map(|at| format!("line {}, column {}", at.line(), at.column()));
        let shown = error.without_snippet().to_string();
        // The place is said already, and parsers end their sentences with it.
        let what = shown.split(" at line ").next().unwrap_or_default().to_owned();
        (place.unwrap_or_default(), format!("this is not YAML: {what}"))
    })?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

/// A policy, if it is one, and one that a machine can carry out by itself.
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
    // What others have put there is not for us: kubectl's annotations, fields of a live object.
    if let Some(path) = unknown.iter().find(|path| path.starts_with("spec.")) {
        return Err(format!("{path}: there is no such key; see `kubectl explain nncp.spec`, or examples/"));
    }
    check(&policy)?;
    Ok(policy)
}

/// What the API server would refuse, and what only a controller can do.
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
            "spec.values: values are filled in by the controller of a cluster, which there is none of here; \
             write the values into desiredState"
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

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(folder.path().join(name), text).unwrap();
        }
        folder
    }

    fn named(name: &str) -> String {
        format!(
            "apiVersion: nmstate.io/v1\nkind: NodeNetworkConfigurationPolicy\nmetadata: {{ name: {name} }}\n"
        )
    }

    fn mistakes(files: &[(&str, &str)]) -> Vec<String> {
        let folder = folder(files);
        let found = read(folder.path(), &Found::default()).unwrap();
        let here = format!("{}/", folder.path().display());
        found.mistakes.iter().map(|mistake| mistake.to_string().replace(&here, "")).collect()
    }

    #[test]
    fn all_documents_of_all_files_are_read() {
        let two = format!("# two\n---\n{}---\n{}---\n", named("a"), named("b"));
        let json = r#"{ "apiVersion": "nmstate.io/v1beta1", "kind": "NodeNetworkConfigurationPolicy", "metadata": { "name": "c" } }"#;
        let folder = folder(&[
            ("10.yaml", &two),
            ("20.json", json),
            ("30.yml", &named("d")),
            ("notes.txt", "not for us"),
            (".hidden.yaml", "{"),
        ]);
        let found = read(folder.path(), &Found::default()).unwrap();
        assert_eq!(found.mistakes, []);
        assert_eq!(found.policies.keys().collect::<Vec<_>>(), ["a", "b", "c", "d"]);
    }

    #[test]
    fn what_is_wrong_is_said_with_file_and_place() {
        let policy = named("a");
        for (text, said) in [
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
                "x.yaml: policy a: spec.values: values are filled in by",
            ),
        ] {
            let found = mistakes(&[("x.yaml", &text)]);
            assert!(found.len() == 1 && found[0].starts_with(said), "{text}\n{found:#?}");
        }
        assert_eq!(
            mistakes(&[("1.yaml", &policy), ("2.yaml", &policy)]).len(),
            1,
            "one name in two files is a mistake of the second"
        );
    }

    #[test]
    fn a_mistake_does_not_quote_the_file() {
        let text = format!("{}spec:\n  desiredState:\n    password: hush\n   wrong: [", named("a"));
        let found = mistakes(&[("x.yaml", &text)]);
        assert!(found.len() == 1 && !found[0].contains("hush"), "{found:?}");
    }

    #[test]
    fn a_file_that_got_spoilt_keeps_what_it_said() {
        let folder = folder(&[("x.yaml", &named("a")), ("y.yaml", &named("b"))]);
        let before = read(folder.path(), &Found::default()).unwrap();
        fs::write(folder.path().join("x.yaml"), "{").unwrap();
        fs::remove_file(folder.path().join("y.yaml")).unwrap();
        let after = read(folder.path(), &before).unwrap();
        assert_eq!(after.policies.keys().collect::<Vec<_>>(), ["a"]);
        assert_eq!(after.mistakes.len(), 1);
    }
}
