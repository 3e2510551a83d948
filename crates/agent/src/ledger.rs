//! The orders of this node and their results, on its own disk.
//!
//! With it a node applies its orders when it boots and the API server does not respond, and results that could not be
//! delivered are kept. It holds desired states with their secrets, so only the owner may read it.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use knmstate_api::{NodeNetworkConfigurationEnactmentSpec, NodeNetworkConfigurationEnactmentStatus};
use serde::{Deserialize, Serialize};

use knmstate_files::durable::{self, Readers};

/// One order, and its status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Entry {
    pub spec: NodeNetworkConfigurationEnactmentSpec,
    #[serde(default)]
    pub status: NodeNetworkConfigurationEnactmentStatus,
}

/// The ledger. All entries are in memory, too.
#[derive(Debug)]
pub struct Ledger {
    directory: PathBuf,
    entries: BTreeMap<String, Entry>,
}

impl Ledger {
    /// Reads the entries on disk. A file that cannot be parsed is renamed, so that an admin can examine it; the store
    /// supplies the order again. Fails when the directory cannot be read.
    pub fn open(directory: impl Into<PathBuf>) -> io::Result<Self> {
        let directory = directory.into();
        let mut entries = BTreeMap::new();
        let files = match fs::read_dir(&directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            files => Some(files?),
        };
        for file in files.into_iter().flatten() {
            let path = file?.path();
            let Some(policy) = policy_of(&path) else { continue };
            if let Ok(entry) = serde_json::from_slice(&fs::read(&path)?) {
                entries.insert(policy.to_owned(), entry);
            } else {
                let renamed = path.with_extension("unreadable");
                // Without the message of the parser, which may quote a secret.
                tracing::warn!(file = %path.display(), renamed = %renamed.display(), "malformed entry of the ledger");
                fs::rename(&path, renamed)?;
            }
        }
        Ok(Self { directory, entries })
    }

    pub(crate) fn entries(&self) -> &BTreeMap<String, Entry> {
        &self.entries
    }

    pub(crate) fn get(&self, policy: &str) -> Option<&Entry> {
        self.entries.get(policy)
    }

    /// Writes an entry. Returns when it would survive a power loss. An unchanged entry is not written again.
    pub(crate) fn keep(&mut self, policy: &str, entry: Entry) -> io::Result<()> {
        if self.entries.get(policy) == Some(&entry) {
            return Ok(());
        }
        durable::replace(&self.path(policy), &serde_json::to_vec(&entry)?, Readers::Owner)?;
        self.entries.insert(policy.to_owned(), entry);
        Ok(())
    }

    /// Removes the entry of an order that no longer exists.
    pub(crate) fn forget(&mut self, policy: &str) -> io::Result<()> {
        if self.entries.remove(policy).is_some() {
            durable::remove(&self.path(policy))?;
        }
        Ok(())
    }

    fn path(&self, policy: &str) -> PathBuf {
        self.directory.join(format!("{policy}.json"))
    }
}

fn policy_of(path: &Path) -> Option<&str> {
    let name = path.file_name()?.to_str()?;
    let policy = name.strip_suffix(".json")?;
    (!policy.is_empty() && !policy.starts_with('.')).then_some(policy)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn entry(generation: i64) -> Entry {
        let spec = NodeNetworkConfigurationEnactmentSpec {
            policy_generation: generation,
            ..NodeNetworkConfigurationEnactmentSpec::default()
        };
        Entry { spec, ..Entry::default() }
    }

    #[test]
    fn entries_survive_a_restart_and_removed_ones_do_not() {
        let directory = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::open(directory.path().join("orders")).unwrap();
        ledger.keep("a.b", entry(1)).unwrap();
        ledger.keep("a.b", entry(2)).unwrap();
        ledger.keep("c", entry(1)).unwrap();
        ledger.forget("c").unwrap();
        ledger.forget("never-there").unwrap();
        let again = Ledger::open(directory.path().join("orders")).unwrap();
        assert_eq!(again.entries(), &BTreeMap::from([("a.b".to_owned(), entry(2))]));
        let mode = fs::metadata(directory.path().join("orders/a.b.json")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "it may hold secrets");
    }

    #[test]
    fn a_malformed_entry_is_renamed_and_does_not_affect_the_others() {
        let directory = tempfile::tempdir().unwrap();
        Ledger::open(directory.path()).unwrap().keep("good", entry(1)).unwrap();
        fs::write(directory.path().join("bad.json"), "{\"spec\"").unwrap();
        // The rest of an interrupted write.
        fs::write(directory.path().join(".good.json.new"), "{").unwrap();
        let ledger = Ledger::open(directory.path()).unwrap();
        assert_eq!(ledger.entries().keys().collect::<Vec<_>>(), ["good"]);
        assert!(directory.path().join("bad.unreadable").exists());
    }
}
