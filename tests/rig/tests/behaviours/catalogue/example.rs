//! The examples of `examples/`, and the expectation of each: `expectations/<topic>/<name>.yaml`.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use rig::machine::rig_file;
use serde::Deserialize;
use serde_json::Value;

use super::check::Check;

/// The cheapest kind of node that can run an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum NodeKind {
    /// NetworkManager in namespaces, on the machine's kernel.
    Namespaces,
    /// A kernel of its own.
    FullKernel,
    /// A kernel of its own with Open vSwitch, and a NetworkManager that supports it.
    OpenVswitch,
    /// A kernel of its own with simulated NICs that have virtual functions.
    SrIov,
    /// None: only the keyfiles for NetworkManager are checked.
    Keyfile,
}

impl NodeKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Namespaces => "namespaces",
            Self::FullKernel => "full kernel",
            Self::OpenVswitch => "full kernel, Open vSwitch",
            Self::SrIov => "full kernel, netdevsim",
            Self::Keyfile => "none",
        }
    }
}

/// How an example is tested, and what is expected of it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Expectation {
    pub(super) node: NodeKind,
    /// Why no node can run it.
    #[serde(default)]
    pub(super) reason: Option<String>,
    /// It is also tested through API server, controller and handler.
    #[serde(default)]
    pub(super) cluster: bool,
    /// It is also tested with the other versions of NetworkManager.
    #[serde(default)]
    pub(super) core: bool,
    /// Shell commands that create what the example needs, and those that remove it again.
    #[serde(default)]
    pub(super) setup: Vec<String>,
    #[serde(default)]
    pub(super) cleanup: Vec<String>,
    /// What the node must show afterwards.
    pub(super) kernel: Vec<Check>,
    /// Texts of the error, for an example that is rolled back.
    #[serde(default)]
    pub(super) fails: Vec<String>,
    #[serde(default = "usual_removal")]
    removed_by: String,
    /// Keys of the desired state that the node's report does not have, and why.
    #[serde(default)]
    pub(super) unreported: BTreeMap<String, String>,
}

fn usual_removal() -> String {
    "remove.yaml".to_owned()
}

#[derive(Clone, Debug)]
pub(super) struct Example {
    /// `topic/name`.
    pub(super) id: String,
    pub(super) path: PathBuf,
    /// The first sentence of its comment.
    pub(super) title: String,
    pub(super) policy: String,
}

impl Example {
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let manifest: Value = serde_saphyr::from_str(&text).with_context(|| path.display().to_string())?;
        let policy = manifest["metadata"]["name"].as_str().context("a policy without a name")?.to_owned();
        let id = path.strip_prefix(examples())?.with_extension("").display().to_string();
        let title =
            first_sentence(&text).with_context(|| format!("{id}: no comment that ends with a dot"))?;
        Ok(Self { id, path: path.to_owned(), title, policy })
    }
}

/// An example, its expectation, and the example that removes it again.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) example: Example,
    /// None for one that is rolled back, or never applied.
    pub(super) removal: Option<Example>,
    pub(super) expectation: Expectation,
}

pub(super) fn examples() -> PathBuf {
    rig_file("../../examples")
}

/// Every example that has an expectation.
pub(super) fn cases() -> Result<Vec<Case>> {
    let directory = rig_file("expectations");
    let mut cases = Vec::new();
    for topic in entries(&directory)? {
        for path in entries(&topic)? {
            let text = fs::read_to_string(&path)?;
            let expectation: Expectation =
                serde_saphyr::from_str(&text).with_context(|| path.display().to_string())?;
            let example = Example::read(&examples().join(path.strip_prefix(&directory)?))?;
            let removal = example.path.with_file_name(&expectation.removed_by);
            let is_applied = expectation.fails.is_empty() && expectation.node != NodeKind::Keyfile;
            let removal = if is_applied { Some(Example::read(&removal)?) } else { None };
            ensure!(!expectation.kernel.is_empty(), "{} expects nothing", path.display());
            cases.push(Case { example, removal, expectation });
        }
    }
    Ok(cases)
}

/// The entries of a directory, sorted by name.
fn entries(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut found = fs::read_dir(directory)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()
        .with_context(|| directory.display().to_string())?;
    found.sort();
    Ok(found)
}

/// The first sentence of the comment that a file begins with.
fn first_sentence(text: &str) -> Option<String> {
    let comment = text.lines().map_while(|line| line.strip_prefix('#')).map(str::trim);
    let comment = comment.collect::<Vec<_>>().join(" ");
    // A dot within a word, as in an address or `eth1.102`, does not end a sentence.
    let end = comment.find(". ").or_else(|| comment.ends_with('.').then(|| comment.len() - 1))?;
    Some(comment[..end].to_owned())
}

#[test]
fn a_sentence_ends_with_a_dot_and_a_blank() {
    let text = "# VLAN 102 as eth1.102,\n# tagged. For storage.\nkind: x\n";
    assert_eq!(first_sentence(text).as_deref(), Some("VLAN 102 as eth1.102, tagged"));
    assert_eq!(first_sentence("# No dot\nkind: x\n"), None);
}
