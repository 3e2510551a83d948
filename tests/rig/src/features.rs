//! What of `examples/` was seen to work, on which node and in which way: `docs/features.md`, written from a run of the
//! tests.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::Write as _,
};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::parts;

/// One example that has gone its way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// `topic/name`.
    pub example: String,
    /// What it does.
    pub title: String,
    pub node: String,
    /// Major and minor number of the NetworkManager that did it; none where nobody did.
    pub network_manager: Option<String>,
    pub way: Way,
    /// Why no node can carry it.
    pub because: Option<String>,
    /// It is tried with every version of NetworkManager.
    pub core: bool,
}

/// How an example was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Way {
    Standalone,
    Cluster,
    /// Only what NetworkManager would be told was looked at.
    Keyfile,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Standalone => "standalone",
            Self::Cluster => "cluster",
            Self::Keyfile => "keyfile",
        }
    }
}

impl Seen {
    /// Notes it where `scripts/test` wants it, if anywhere.
    pub fn note(&self) -> Result<()> {
        let Some(path) = parts::seen_features() else { return Ok(()) };
        let mut line = serde_json::to_string(self)?;
        line.push('\n');
        // One write: other tests note theirs at the same time.
        let mut file = File::options().append(true).create(true).open(path)?;
        file.write_all(line.as_bytes()).context("note what was seen to work")
    }

    /// What was noted, one in a line.
    pub fn read(text: &str) -> Result<Vec<Self>> {
        text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
    }
}

const INTRODUCTION: &str = "\
# Features

Every example in this table was applied to a real kernel through NetworkManager, looked at there, found in the node's
report, applied once more without any effect, and taken away again until the node was as before. A run of the tests wrote
this file (`make features`), and `make test` fails when another run would write another one.

- **Nodes**: *namespaces*: NetworkManager on the kernel of the machine that runs the tests; *full kernel*: User Mode Linux
  with bonds, VLANs and the rest, on its own or with Open vSwitch or simulated cards that have virtual functions (netdevsim).
- **Ways**: *standalone*: `knmstate standalone --once`; *cluster*: API server, controller and handler.
";

/// The whole document.
pub fn document(seen: &[Seen]) -> String {
    let lines = [by_topic(seen), by_version(seen), not_on_a_kernel(seen)].concat();
    format!("{INTRODUCTION}\n{}\n", lines.join("\n"))
}

fn rows(seen: &[Seen]) -> BTreeMap<&str, Vec<&Seen>> {
    let mut rows: BTreeMap<&str, Vec<&Seen>> = BTreeMap::new();
    for one in seen {
        rows.entry(&one.example).or_default().push(one);
    }
    rows
}

fn row(cells: &[&str]) -> String {
    format!("| {} |", cells.join(" | "))
}

/// The head of a table and the line below it.
fn head(cells: &[&str]) -> [String; 2] {
    [row(cells), row(&vec!["---"; cells.len()])]
}

fn by_topic(seen: &[Seen]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut topic = "";
    for (example, ways) in rows(seen) {
        let (its_topic, name) = example.split_once('/').unwrap_or_default();
        if its_topic != topic {
            if !topic.is_empty() {
                lines.push(String::new());
            }
            topic = its_topic;
            lines.extend([format!("## {topic}"), String::new()]);
            lines.extend(head(&["example", "what it does", "node", "ways", "NetworkManager"]));
        }
        let list = |words: BTreeSet<&str>| words.into_iter().collect::<Vec<_>>().join(", ");
        let of_ways: BTreeSet<Way> = ways.iter().map(|one| one.way).collect();
        lines.push(row(&[
            &format!("[{name}](../examples/{example}.yaml)"),
            &ways[0].title,
            &list(ways.iter().map(|one| &*one.node).collect()),
            &of_ways.into_iter().map(Way::name).collect::<Vec<_>>().join(", "),
            &list(ways.iter().filter_map(|one| one.network_manager.as_deref()).collect()),
        ]));
    }
    lines
}

fn by_version(seen: &[Seen]) -> Vec<String> {
    let versions: BTreeSet<&str> = seen.iter().filter_map(|one| one.network_manager.as_deref()).collect();
    let mut lines = vec![String::new(), "## Versions of NetworkManager".to_owned(), String::new()];
    let cells: Vec<&str> = ["example"].into_iter().chain(versions.iter().copied()).collect();
    lines.extend(head(&cells));
    for (example, ways) in rows(seen) {
        if ways.iter().any(|one| one.core) {
            let works = |version: &&str| {
                let is_so = ways.iter().any(|one| one.network_manager.as_deref() == Some(version));
                if is_so { "works" } else { "not tried" }
            };
            let cells: Vec<&str> = [example].into_iter().chain(versions.iter().map(works)).collect();
            lines.push(row(&cells));
        }
    }
    lines
}

fn not_on_a_kernel(seen: &[Seen]) -> Vec<String> {
    let mut lines = vec![String::new(), "## Not verified on a kernel".to_owned(), String::new()];
    lines.extend(["What NetworkManager would be told was looked at instead.".to_owned(), String::new()]);
    for (example, ways) in rows(seen) {
        if let Some(why) = ways.iter().find_map(|one| one.because.as_deref()) {
            lines.push(format!("- `{example}`: {why}"));
        }
    }
    lines
}

/// Whether two documents say the same but for the versions, which a new Debian changes.
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

    fn seen(example: &str, version: &str, way: Way) -> Seen {
        Seen {
            example: example.to_owned(),
            title: "Two cards as one".to_owned(),
            node: "full kernel".to_owned(),
            network_manager: Some(version.to_owned()),
            way,
            because: None,
            core: true,
        }
    }

    #[test]
    fn each_example_is_a_line_with_all_that_was_seen_of_it() {
        let all = [
            seen("bond/xor", "1.52", Way::Standalone),
            seen("bond/xor", "1.42", Way::Standalone),
            seen("bond/xor", "1.52", Way::Cluster),
            seen("vlan/card", "1.52", Way::Standalone),
            Seen {
                network_manager: None,
                because: Some("there is no such card".to_owned()),
                core: false,
                ..seen("sr-iov/pci", "", Way::Keyfile)
            },
        ];
        let text = document(&all);
        for line in [
            "## bond",
            "| [xor](../examples/bond/xor.yaml) | Two cards as one | full kernel | standalone, cluster | 1.42, 1.52 |",
            "| vlan/card | not tried | works |",
            "- `sr-iov/pci`: there is no such card",
        ] {
            assert!(text.lines().any(|found| found == line), "{line:?} is not in:\n{text}");
        }
        let reversed: Vec<Seen> = all.iter().rev().cloned().collect();
        assert_eq!(document(&reversed), text, "the order of a run does not matter");
    }

    #[test]
    fn a_new_version_alone_is_no_difference() {
        let text = |version: &str| document(&[seen("bond/xor", version, Way::Standalone)]);
        assert!(same_but_for_versions(&text("1.58"), &text("1.60")));
        assert!(!same_but_for_versions(
            &text("1.58"),
            &document(&[seen("bond/rr", "1.58", Way::Standalone)])
        ));
    }
}
