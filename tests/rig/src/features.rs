//! The tests record which examples work, on which node and by which method, and this module makes `docs/features.md` of
//! the records.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::Write as _,
};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::parts;

/// The result of one example that worked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeatureRecord {
    /// `topic/name`.
    pub example: String,
    /// What the example does, in one line.
    pub title: String,
    /// The kind of node.
    pub node: String,
    /// Major and minor version of NetworkManager; none for [`Method::Keyfile`].
    pub network_manager: Option<String>,
    pub method: Method,
    /// Why no node of the rig can apply it, for [`Method::Keyfile`].
    pub reason: Option<String>,
    /// Whether it is tested with every version of NetworkManager.
    pub core: bool,
}

/// How an example was tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Method {
    /// By `knmstate standalone --once`.
    Standalone,
    /// By an API server, a controller and a handler.
    Cluster,
    /// Without a node: only the profiles that NetworkManager would get were checked.
    Keyfile,
}

impl Method {
    fn name(self) -> &'static str {
        match self {
            Self::Standalone => "standalone",
            Self::Cluster => "cluster",
            Self::Keyfile => "keyfile",
        }
    }
}

impl FeatureRecord {
    /// Appends this record to the file that `scripts/test` names. Does nothing if it names none.
    pub fn append(&self) -> Result<()> {
        let Some(path) = parts::feature_records() else { return Ok(()) };
        let mut line = serde_json::to_string(self)?;
        line.push('\n');
        // In one write, because other tests append to the file at the same time.
        let mut file = File::options().append(true).create(true).open(path)?;
        file.write_all(line.as_bytes()).context("record that an example works")
    }

    /// Reads records, one per line.
    pub fn parse_lines(text: &str) -> Result<Vec<Self>> {
        text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
    }
}

const INTRODUCTION: &str = "\
# Features

Every example in these tables was applied to a real kernel through NetworkManager, checked in that kernel and in the
node's report, applied again without any effect, and removed, after which the node was as before. A run of the tests
wrote this file (`make features`), and `make test` fails when the results of its run differ.

- **Nodes**: *namespaces*: NetworkManager on the kernel of the machine that runs the tests; *full kernel*: User Mode
  Linux with bonds, VLANs and the rest, alone, with Open vSwitch, or with simulated NICs that have virtual functions
  (netdevsim).
- **Methods**: *standalone*: `knmstate standalone --once`; *cluster*: API server, controller and handler.
";

/// The text of `docs/features.md`.
pub fn document(records: &[FeatureRecord]) -> String {
    let lines = [by_topic(records), by_version(records), not_on_a_kernel(records)].concat();
    format!("{INTRODUCTION}\n{}\n", lines.join("\n"))
}

fn records_by_example(records: &[FeatureRecord]) -> BTreeMap<&str, Vec<&FeatureRecord>> {
    let mut rows: BTreeMap<&str, Vec<&FeatureRecord>> = BTreeMap::new();
    for record in records {
        rows.entry(&record.example).or_default().push(record);
    }
    rows
}

fn row(cells: &[&str]) -> String {
    format!("| {} |", cells.join(" | "))
}

/// The first row of a table and the line below it.
fn header(cells: &[&str]) -> [String; 2] {
    [row(cells), row(&vec!["---"; cells.len()])]
}

fn by_topic(records: &[FeatureRecord]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut topic = "";
    for (example, records) in records_by_example(records) {
        let (its_topic, name) = example.split_once('/').unwrap_or_default();
        if its_topic != topic {
            if !topic.is_empty() {
                lines.push(String::new());
            }
            topic = its_topic;
            lines.extend([format!("## {topic}"), String::new()]);
            lines.extend(header(&["example", "what it does", "node", "methods", "NetworkManager"]));
        }
        let list = |words: BTreeSet<&str>| words.into_iter().collect::<Vec<_>>().join(", ");
        let methods: BTreeSet<Method> = records.iter().map(|record| record.method).collect();
        lines.push(row(&[
            &format!("[{name}](../examples/{example}.yaml)"),
            &records[0].title,
            &list(records.iter().map(|record| &*record.node).collect()),
            &methods.into_iter().map(Method::name).collect::<Vec<_>>().join(", "),
            &list(records.iter().filter_map(|record| record.network_manager.as_deref()).collect()),
        ]));
    }
    lines
}

fn by_version(records: &[FeatureRecord]) -> Vec<String> {
    let versions: BTreeSet<&str> =
        records.iter().filter_map(|record| record.network_manager.as_deref()).collect();
    let mut lines = vec![String::new(), "## Versions of NetworkManager".to_owned(), String::new()];
    let cells: Vec<&str> = ["example"].into_iter().chain(versions.iter().copied()).collect();
    lines.extend(header(&cells));
    for (example, records) in records_by_example(records) {
        if records.iter().any(|record| record.core) {
            let works = |version: &&str| {
                let tested = records.iter().any(|record| record.network_manager.as_deref() == Some(version));
                if tested { "works" } else { "not tried" }
            };
            let cells: Vec<&str> = [example].into_iter().chain(versions.iter().map(works)).collect();
            lines.push(row(&cells));
        }
    }
    lines
}

fn not_on_a_kernel(records: &[FeatureRecord]) -> Vec<String> {
    let mut lines = vec![String::new(), "## Not verified on a kernel".to_owned(), String::new()];
    lines.extend(["Only the profiles that NetworkManager would get were checked.".to_owned(), String::new()]);
    for (example, records) in records_by_example(records) {
        if let Some(why) = records.iter().find_map(|record| record.reason.as_deref()) {
            lines.push(format!("- `{example}`: {why}"));
        }
    }
    lines
}

/// Whether two documents differ in version numbers only, which change with updates of Debian.
pub fn same_but_for_versions(a: &str, b: &str) -> bool {
    let without = |text: &str| -> String {
        let is_version = |character: char| character.is_ascii_digit() || character == '.';
        text.split_inclusive(char::is_whitespace)
            .map(|word| word.trim_end_matches(',').trim_start_matches(is_version))
            .collect()
    };
    without(a) == without(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(example: &str, version: &str, method: Method) -> FeatureRecord {
        FeatureRecord {
            example: example.to_owned(),
            title: "Bonds two NICs".to_owned(),
            node: "full kernel".to_owned(),
            network_manager: Some(version.to_owned()),
            method,
            reason: None,
            core: true,
        }
    }

    #[test]
    fn each_example_is_one_row_with_all_its_records() {
        let all = [
            record("bond/xor", "1.52", Method::Standalone),
            record("bond/xor", "1.42", Method::Standalone),
            record("bond/xor", "1.52", Method::Cluster),
            record("vlan/on-nic", "1.52", Method::Standalone),
            FeatureRecord {
                network_manager: None,
                reason: Some("the node has no such NIC".to_owned()),
                core: false,
                ..record("sr-iov/pci", "", Method::Keyfile)
            },
        ];
        let text = document(&all);
        for line in [
            "## bond",
            "| [xor](../examples/bond/xor.yaml) | Bonds two NICs | full kernel | standalone, cluster | 1.42, 1.52 |",
            "| vlan/on-nic | not tried | works |",
            "- `sr-iov/pci`: the node has no such NIC",
        ] {
            assert!(text.lines().any(|found| found == line), "{line:?} is not in:\n{text}");
        }
        let reversed: Vec<FeatureRecord> = all.iter().rev().cloned().collect();
        assert_eq!(document(&reversed), text, "the order of a run does not matter");
    }

    #[test]
    fn a_new_version_alone_is_no_difference() {
        let text = |version: &str| document(&[record("bond/xor", version, Method::Standalone)]);
        assert!(same_but_for_versions(&text("1.58"), &text("1.60")));
        assert!(!same_but_for_versions(
            &text("1.58"),
            &document(&[record("bond/rr", "1.58", Method::Standalone)])
        ));
    }
}
