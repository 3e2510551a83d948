//! The orders of this node and what became of them, on its own disk.
//!
//! With it a node keeps to its orders when it boots and nobody can be asked for them, and results wait for whoever
//! could not be told. It holds desired states with their secrets, so only the owner may read it.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use knmstate_api::{NodeNetworkConfigurationEnactmentSpec, NodeNetworkConfigurationEnactmentStatus};
use serde::{Deserialize, Serialize};

use crate::durable::{self, Readable};

/// One order, and what the node says of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    pub spec: NodeNetworkConfigurationEnactmentSpec,
    #[serde(default)]
    pub status: NodeNetworkConfigurationEnactmentStatus,
}

/// The ledger, with everything in memory that is on disk.
#[derive(Debug)]
pub struct Ledger {
    folder: PathBuf,
    entries: BTreeMap<String, Entry>,
}

impl Ledger {
    /// Reads what an earlier life has left. A file that cannot be understood is put aside: it stays for a person to
    /// look at, and the order comes again from where it came from.
    pub fn open(folder: impl Into<PathBuf>) -> io::Result<Self> {
        let folder = folder.into();
        let mut entries = BTreeMap::new();
        let files = match fs::read_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            files => Some(files?),
        };
        for file in files.into_iter().flatten() {
            let path = file?.path();
            let Some(policy) = policy_of(&path) else { continue };
            if let Ok(entry) = serde_json::from_slice(&fs::read(&path)?) {
                entries.insert(policy.to_owned(), entry);
            } else {
                // Not the parser's own words: they may quote a secret.
                tracing::warn!(file = %path.display(), "this note of an order cannot be read; it is put aside");
                fs::rename(&path, path.with_extension("unreadable"))?;
            }
        }
        Ok(Self { folder, entries })
    }

    pub fn entries(&self) -> &BTreeMap<String, Entry> {
        &self.entries
    }

    pub fn get(&self, policy: &str) -> Option<&Entry> {
        self.entries.get(policy)
    }

    /// Keeps an entry. Returns when it would survive a loss of power; what is kept already is not written again.
    pub fn keep(&mut self, policy: &str, entry: Entry) -> io::Result<()> {
        if self.entries.get(policy) == Some(&entry) {
            return Ok(());
        }
        durable::replace(&self.path(policy), &serde_json::to_vec(&entry)?, Readable::ByOwner)?;
        self.entries.insert(policy.to_owned(), entry);
        Ok(())
    }

    /// Forgets an order that is no more.
    pub fn forget(&mut self, policy: &str) -> io::Result<()> {
        if self.entries.remove(policy).is_some() {
            durable::remove(&self.path(policy))?;
        }
        Ok(())
    }

    fn path(&self, policy: &str) -> PathBuf {
        self.folder.join(format!("{policy}.json"))
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
    fn what_is_kept_is_there_after_a_restart_and_what_is_forgotten_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::open(folder.path().join("orders")).unwrap();
        ledger.keep("a.b", entry(1)).unwrap();
        ledger.keep("a.b", entry(2)).unwrap();
        ledger.keep("c", entry(1)).unwrap();
        ledger.forget("c").unwrap();
        ledger.forget("never-there").unwrap();
        let again = Ledger::open(folder.path().join("orders")).unwrap();
        assert_eq!(again.entries(), &BTreeMap::from([("a.b".to_owned(), entry(2))]));
        let mode = fs::metadata(folder.path().join("orders/a.b.json")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "it may hold secrets");
    }

    #[test]
    fn a_note_that_cannot_be_read_is_put_aside_and_does_not_stop_the_others() {
        let folder = tempfile::tempdir().unwrap();
        Ledger::open(folder.path()).unwrap().keep("good", entry(1)).unwrap();
        fs::write(folder.path().join("bad.json"), "{\"spec\"").unwrap();
        // What a write leaves that was cut off.
        fs::write(folder.path().join(".good.json.new"), "{").unwrap();
        let ledger = Ledger::open(folder.path()).unwrap();
        assert_eq!(ledger.entries().keys().collect::<Vec<_>>(), ["good"]);
        assert!(folder.path().join("bad.unreadable").exists());
    }
}
