//! The orders of this node and their results, on its own disk.
//!
//! With it a node applies its orders when it boots and the API server does not respond, and results that could not be
//! delivered are kept. It holds desired states with their secrets, so only the owner may read it.
//!
//! A disk can fail, or be full, for a while. What the agent learns meanwhile is kept in memory until
//! [`Ledger::save`] can write it ([`Ledger::keep`]). What has to be on disk before the next step, such as the beginning
//! of an attempt, fails instead ([`Ledger::record`]).

use std::{
    collections::{BTreeMap, BTreeSet},
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
    /// An attempt has begun and has not ended. A process that starts with this knows that the one before died in it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub attempting: bool,
}

/// The ledger. All entries are in memory, too.
#[derive(Debug)]
pub struct Ledger {
    directory: PathBuf,
    entries: BTreeMap<String, Entry>,
    /// The policies whose file is not as the entry in memory, because the disk did not take it.
    unsaved: BTreeSet<String>,
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
        Ok(Self { directory, entries, unsaved: BTreeSet::new() })
    }

    pub(crate) fn entries(&self) -> &BTreeMap<String, Entry> {
        &self.entries
    }

    pub(crate) fn get(&self, policy: &str) -> Option<&Entry> {
        self.entries.get(policy)
    }

    /// Keeps an entry: in memory, and on disk as soon as the disk takes it. An unchanged entry is not written again.
    pub(crate) fn keep(&mut self, policy: &str, entry: Entry) {
        if self.entries.get(policy) != Some(&entry) {
            self.entries.insert(policy.to_owned(), entry);
            self.try_to_write(policy);
        }
    }

    /// Writes an entry. Returns when it would survive a power loss. If this fails, the entry is as before.
    pub(crate) fn record(&mut self, policy: &str, entry: Entry) -> io::Result<()> {
        if self.entries.get(policy) == Some(&entry) && !self.unsaved.contains(policy) {
            return Ok(());
        }
        // A write that fails may have replaced the file all the same.
        self.unsaved.insert(policy.to_owned());
        self.write(policy, Some(&entry))?;
        self.unsaved.remove(policy);
        self.entries.insert(policy.to_owned(), entry);
        Ok(())
    }

    /// Removes the entry of an order that no longer exists.
    pub(crate) fn forget(&mut self, policy: &str) {
        if self.entries.remove(policy).is_some() {
            self.try_to_write(policy);
        }
    }

    /// Writes what the disk has not taken before. Returns when everything would survive a power loss.
    pub(crate) fn save(&mut self) -> io::Result<()> {
        while let Some(policy) = self.unsaved.first() {
            self.write(policy, self.entries.get(policy))?;
            self.unsaved.pop_first();
        }
        Ok(())
    }

    fn try_to_write(&mut self, policy: &str) {
        match self.write(policy, self.entries.get(policy)) {
            Ok(()) => self.unsaved.remove(policy),
            // `save` tries again, and fails with the reason.
            Err(_) => self.unsaved.insert(policy.to_owned()),
        };
    }

    /// Makes the file of a policy that of this entry, or removes it.
    fn write(&self, policy: &str, entry: Option<&Entry>) -> io::Result<()> {
        let path = self.path(policy);
        let written = match entry {
            Some(entry) => serde_json::to_vec(entry)
                .map_err(io::Error::from)
                .and_then(|text| durable::replace(&path, &text, Readers::Owner)),
            None => durable::remove(&path),
        };
        written.map_err(|error| {
            io::Error::new(error.kind(), format!("cannot write {}: {error}", path.display()))
        })
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
        ledger.keep("a.b", entry(1));
        ledger.record("a.b", entry(2)).unwrap();
        ledger.keep("c", entry(1));
        ledger.forget("c");
        ledger.forget("never-there");
        ledger.save().unwrap();
        let again = Ledger::open(directory.path().join("orders")).unwrap();
        assert_eq!(again.entries(), &BTreeMap::from([("a.b".to_owned(), entry(2))]));
        let mode = fs::metadata(directory.path().join("orders/a.b.json")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "it may hold secrets");
    }

    #[test]
    fn while_the_disk_fails_memory_has_what_was_kept_and_nothing_that_had_to_be_recorded() {
        let directory = tempfile::tempdir().unwrap();
        let orders = directory.path().join("orders");
        let mut ledger = Ledger::open(&orders).unwrap();
        ledger.record("known", entry(1)).unwrap();
        ledger.record("gone", entry(1)).unwrap();
        // Not even root can create a file where no directory is.
        let aside = directory.path().join("aside");
        fs::rename(&orders, &aside).unwrap();
        fs::write(&orders, "").unwrap();
        ledger.keep("known", entry(2));
        ledger.keep("new", entry(1));
        ledger.forget("gone");
        let error = ledger.record("new", Entry { attempting: true, ..entry(1) }).unwrap_err();
        assert!(error.to_string().starts_with(&format!("cannot write {}/new.json: ", orders.display())));
        ledger.save().unwrap_err();
        let expected = BTreeMap::from([("known".to_owned(), entry(2)), ("new".to_owned(), entry(1))]);
        assert_eq!(ledger.entries(), &expected);

        fs::remove_file(&orders).unwrap();
        fs::rename(&aside, &orders).unwrap();
        ledger.save().unwrap();
        assert_eq!(Ledger::open(&orders).unwrap().entries(), &expected);
    }

    #[test]
    fn a_malformed_entry_is_renamed_and_does_not_affect_the_others() {
        let directory = tempfile::tempdir().unwrap();
        Ledger::open(directory.path()).unwrap().record("good", entry(1)).unwrap();
        fs::write(directory.path().join("bad.json"), "{\"spec\"").unwrap();
        // The rest of an interrupted write.
        fs::write(directory.path().join(".good.json.new"), "{").unwrap();
        let ledger = Ledger::open(directory.path()).unwrap();
        assert_eq!(ledger.entries().keys().collect::<Vec<_>>(), ["good"]);
        assert!(directory.path().join("bad.unreadable").exists());
    }
}
