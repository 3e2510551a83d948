//! The journal on disk, from which a change can be rolled back when NetworkManager has lost its checkpoint.
//!
//! There is at most one change at a time, so the journal has at most one entry. It holds the revert with its secrets,
//! and only root can read it.

use knmstate_document::Place;
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::scripts::Script;
use super::{service, unchanged};
use crate::error::HostError;
use crate::host::Checkpoint;

pub(super) const NAME: &str = "open-change.json";
const UNFINISHED: &str = "open-change.json.new";

#[derive(Debug)]
pub(super) struct Journal {
    pub(super) directory: PathBuf,
}

/// What the journal has.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    Entry(Box<Entry>),
    /// A file that is damaged, or was written by a version that writes something else.
    Unreadable,
}

/// One attempt to roll a change back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Attempt {
    /// When it began, in UTC.
    pub(super) at: String,
    /// Why it failed.
    pub(super) why: String,
    /// Its error says that another attempt cannot help.
    #[serde(default)]
    pub(super) is_final: bool,
}

/// One change that is not settled.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Entry {
    /// NetworkManager's name for its checkpoint, once it is known.
    pub(super) checkpoint: Option<String>,
    /// Which NetworkManager holds it; see `Service::identity`.
    pub(super) service: String,
    /// When this was noted, on the clock that NetworkManager dates its checkpoints by.
    pub(super) noted_at_ms: i64,
    /// The agent decided to keep the change. If NetworkManager is gone when this is read, it was kept.
    pub(super) committing: bool,
    /// The state before, secrets hidden.
    pub(super) before: Value,
    /// What to apply in order to get back there.
    pub(super) revert: Value,
    /// The interfaces that the change may touch.
    pub(super) touched: Vec<String>,
    /// The connection profiles that were there before, by their UUIDs.
    pub(super) profiles: Vec<String>,
    /// The change is in NetworkManager's memory alone, and so has to be the way back.
    #[serde(default)]
    pub(super) memory_only: bool,
    /// The start of the machine in which it was made; see `service::boot_id`.
    #[serde(default)]
    pub(super) boot: String,
    /// The process that made the change has left it to another program. No other process may settle it before this
    /// time. Without it the change belongs to the process that makes it, and is abandoned once that process is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) left_open_until_ms: Option<i64>,
    /// The scripts that the change may create, replace or remove, as they were before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) scripts: Vec<Script>,
    /// The attempts to roll it back, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) attempts: Vec<Attempt>,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { checkpoint, service, committing, touched, .. } = self;
        write!(f, "Entry({checkpoint:?} of {service}, committing: {committing}, touching {touched:?})")
    }
}

impl Entry {
    /// The name by which callers know the change.
    pub(super) fn name(&self) -> Checkpoint {
        // Without a name, the process ended before it could learn it.
        Checkpoint::new(self.checkpoint.as_deref().unwrap_or("unnamed"))
    }

    /// The note of a change that changes nothing and was left open all the same.
    pub(super) fn unchanged(checkpoint: &Checkpoint, left_open_until_ms: Option<i64>) -> Self {
        let (checkpoint, boot) = (Some(checkpoint.as_str().to_owned()), service::boot_id());
        Self { checkpoint, boot, left_open_until_ms, ..Self::default() }
    }

    /// Whether there is nothing behind it.
    pub(super) fn changes_nothing(&self) -> bool {
        self.checkpoint.as_deref().is_some_and(|name| name.starts_with(unchanged::PREFIX))
    }

    /// Whether an interface was up before the change.
    pub(super) fn was_up(&self, name: &str) -> bool {
        let mut interfaces = self.before["interfaces"].as_array().into_iter().flatten();
        interfaces.any(|interface| interface["name"] == name && interface["state"] == "up")
    }
}

impl Journal {
    pub(super) fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    pub(super) fn read(&self) -> Result<Found, HostError> {
        let path = self.directory.join(NAME);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Found::Nothing),
            Err(error) => return Err(unusable(&path, &error)),
        };
        // The parser's own words may quote a secret.
        Ok(serde_json::from_slice(&bytes).map_or(Found::Unreadable, Found::Entry))
    }

    /// Returns when the entry would survive a loss of power.
    pub(super) fn write(&self, entry: &Entry) -> Result<(), HostError> {
        self.try_write(entry).map_err(|error| unusable(&self.directory, &error))
    }

    fn try_write(&self, entry: &Entry) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
        let unfinished = self.directory.join(UNFINISHED);
        let _ = fs::remove_file(&unfinished);
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(&unfinished)?;
        file.write_all(&serde_json::to_vec(entry)?)?;
        file.sync_all()?;
        fs::rename(&unfinished, self.directory.join(NAME))?;
        sync(&self.directory)
    }

    pub(super) fn remove(&self) -> Result<(), HostError> {
        let path = self.directory.join(NAME);
        match fs::remove_file(&path) {
            Ok(()) => sync(&self.directory).map_err(|error| unusable(&path, &error)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(unusable(&path, &error)),
        }
    }
}

pub(super) fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

pub(super) fn unusable(path: &Path, why: &dyn std::fmt::Display) -> HostError {
    HostError::Failed {
        place: Place::document(),
        why: format!("the note of the way back, {}, cannot be used: {why}", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::os::unix::fs::PermissionsExt as _;

    fn entry() -> Entry {
        Entry {
            checkpoint: None,
            service: "bus :1.7".to_owned(),
            noted_at_ms: 5,
            committing: false,
            before: json!({ "interfaces": [] }),
            revert: json!({ "interfaces": [{ "name": "eth1", "802.1x": { "password": "hush" } }] }),
            touched: vec!["eth1".to_owned()],
            ..Entry::default()
        }
    }

    #[test]
    fn what_is_written_is_read_back_and_only_by_root() {
        let directory = tempfile::tempdir().expect("a directory");
        let journal = Journal::new(directory.path().join("a/b"));
        assert_eq!(journal.read(), Ok(Found::Nothing));
        journal.write(&entry()).expect("written");
        let named = Entry { checkpoint: Some("/Checkpoint/1".to_owned()), ..entry() };
        journal.write(&named).expect("replaced");
        assert_eq!(journal.read(), Ok(Found::Entry(named.clone().into())));
        assert!(!format!("{named:?}").contains("hush"));

        let mode = |path: &str| {
            fs::metadata(directory.path().join(path)).expect("it is there").permissions().mode() & 0o777
        };
        assert_eq!((mode("a/b"), mode("a/b/open-change.json")), (0o700, 0o600));
        journal.remove().expect("removed");
        journal.remove().expect("removing nothing is fine");
        assert_eq!(fs::read_dir(directory.path().join("a/b")).expect("a directory").count(), 0);
    }

    #[test]
    fn a_note_that_was_torn_before_its_name_counts_as_not_written() {
        let directory = tempfile::tempdir().expect("a directory");
        let journal = Journal::new(directory.path().to_owned());
        fs::write(directory.path().join(UNFINISHED), "{\"checkp").expect("written");
        assert_eq!(journal.read(), Ok(Found::Nothing));
        journal.write(&entry()).expect("the leftover is no obstacle");
        assert_eq!(journal.read(), Ok(Found::Entry(entry().into())));
    }

    #[test]
    fn attempts_survive_the_process_and_entries_of_earlier_versions_have_none() {
        let directory = tempfile::tempdir().expect("a directory");
        let journal = Journal::new(directory.path().to_owned());
        let attempt = Attempt { at: "now".to_owned(), why: "no such bond".to_owned(), is_final: true };
        let attempted = Entry { attempts: vec![attempt.clone(), attempt], ..entry() };
        journal.write(&attempted).expect("written");
        assert_eq!(journal.read(), Ok(Found::Entry(attempted.into())));

        let mut earlier = serde_json::to_value(entry()).expect("JSON");
        let keys = earlier.as_object_mut().expect("a map");
        assert!(!keys.contains_key("attempts") && !keys.contains_key("scripts"), "{keys:?}");
        keys.remove("boot");
        fs::write(directory.path().join(NAME), earlier.to_string()).expect("written");
        assert_eq!(journal.read(), Ok(Found::Entry(entry().into())));
    }
}
