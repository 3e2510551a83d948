//! The journal's files of changes that were given up.
//!
//! Each is the entry of the journal under another name: with the attempts and why they failed, the state before and
//! what to apply to get there, secrets included. It stays until the admin has removed it, or several newer ones exist.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, civil::DateTime};
use serde::Deserialize;

use super::journal::{Attempt, Journal, NAME, sync, unusable};
use crate::error::HostError;
use crate::set_aside::SetAside;

const PREFIX: &str = "set-aside-";
const FORMAT: &str = "%Y-%m-%dT%H-%M-%SZ";
const SUFFIX: &str = ".json";
/// More are removed, oldest first.
const KEPT: usize = 4;

/// The parts of an entry that are reported.
#[derive(Deserialize)]
struct Summary {
    touched: Vec<String>,
    #[serde(default)]
    attempts: Vec<Attempt>,
}

impl Journal {
    /// Moves the entry out of the way, so that the journal is empty. Returns when that would survive a loss of power.
    pub(super) fn set_aside(&self, now: Timestamp) -> Result<SetAside, HostError> {
        let path = self.directory.join(NAME);
        let mut time = now;
        while self.directory.join(name(time)).exists() {
            time += SignedDuration::from_secs(1);
        }
        let aside = name(time);
        let rename = || {
            fs::set_permissions(&path, Permissions::from_mode(0o600))?;
            fs::rename(&path, self.directory.join(&aside))?;
            sync(&self.directory)
        };
        rename().map_err(|error| unusable(&path, &error))?;
        let names = names(&self.directory);
        let others = names.iter().filter(|(_, name)| *name != aside);
        for (_, name) in others.take(names.len().saturating_sub(KEPT)) {
            // One too many does no harm.
            let _ = fs::remove_file(self.directory.join(name));
        }
        Ok(summary(&self.directory, time, &aside))
    }
}

/// The changes that were given up, oldest first.
pub(super) fn list(directory: &Path) -> Vec<SetAside> {
    names(directory).into_iter().map(|(time, name)| summary(directory, time, &name)).collect()
}

fn name(time: Timestamp) -> String {
    format!("{PREFIX}{}{SUFFIX}", time.strftime(FORMAT))
}

/// The files that are named like those of this program, oldest first.
fn names(directory: &Path) -> Vec<(Timestamp, String)> {
    let time_in = |name: &str| {
        let time = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
        let time = DateTime::strptime(FORMAT, time).ok()?;
        Some(time.to_zoned(TimeZone::UTC).ok()?.timestamp())
    };
    let files = fs::read_dir(directory).into_iter().flatten().flatten();
    let names = files.filter_map(|file| file.file_name().into_string().ok());
    let mut names: Vec<_> = names.filter_map(|name| Some((time_in(&name)?, name))).collect();
    names.sort();
    names
}

fn summary(directory: &Path, time: Timestamp, name: &str) -> SetAside {
    let path = directory.join(name);
    let entry = fs::read(&path).ok().and_then(|bytes| serde_json::from_slice::<Summary>(&bytes).ok());
    let (interfaces, why) = if let Some(Summary { touched, attempts }) = entry {
        (touched, attempts.last().map(|attempt| attempt.why.clone()).unwrap_or_default())
    } else {
        let why = "the journal is damaged, or was written by a version that writes something else";
        (Vec::new(), why.to_owned())
    };
    SetAside { time, interfaces, why, file: path.display().to_string() }.clamped()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::journal::{Entry, Found};
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).expect("a time")
    }

    fn entry() -> Entry {
        Entry {
            service: "bus :1.7".to_owned(),
            revert: json!({ "interfaces": [{ "name": "eth1", "802.1x": { "password": "hush" } }] }),
            touched: vec!["eth1".to_owned()],
            attempts: ["first", "last"]
                .map(|why| Attempt { why: why.to_owned(), ..Attempt::default() })
                .into(),
            ..Entry::default()
        }
    }

    #[test]
    fn an_entry_is_set_aside_with_all_that_it_has_and_only_for_root() {
        let directory = tempfile::tempdir().expect("a directory");
        let journal = Journal::new(directory.path().to_owned());
        journal.write(&entry()).expect("written");
        let aside = journal.set_aside(at(7)).expect("set aside");
        assert_eq!(journal.read(), Ok(Found::Nothing));
        let path = directory.path().join("set-aside-1970-01-01T00-00-07Z.json");
        assert_eq!(aside.file, path.display().to_string());
        assert_eq!((&aside.interfaces, &*aside.why), (&vec!["eth1".to_owned()], "last"));
        assert!(!format!("{aside} {aside:?}").contains("hush"));
        let kept: Entry = serde_json::from_slice(&fs::read(&path).expect("a file")).expect("an entry");
        assert_eq!(kept, entry());
        assert_eq!(fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o600);
        assert_eq!(list(directory.path()), [aside]);
        fs::remove_file(path).expect("removed by an admin");
        assert_eq!(list(directory.path()), []);
    }

    #[test]
    fn a_file_that_is_no_entry_is_set_aside_and_not_quoted() {
        for text in ["{\"checkpoint\": 7, \"revert\": \"hush\"}", "{\"checkp", "", "\u{0}"] {
            let directory = tempfile::tempdir().expect("a directory");
            let journal = Journal::new(directory.path().to_owned());
            fs::write(directory.path().join(NAME), text).expect("written");
            assert_eq!(journal.read(), Ok(Found::Unreadable), "{text:?}");
            let aside = journal.set_aside(at(7)).expect("set aside");
            assert_eq!(journal.read(), Ok(Found::Nothing));
            assert_eq!(fs::read_to_string(&aside.file).expect("a file"), text);
            let mode = fs::metadata(&aside.file).expect("a file").permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
            assert!(aside.why.contains("damaged") && !aside.why.contains("hush"), "{aside}");
        }
    }

    #[test]
    fn only_some_are_kept_and_never_is_one_replaced_or_the_newest_removed() {
        let directory = tempfile::tempdir().expect("a directory");
        let journal = Journal::new(directory.path().to_owned());
        fs::write(directory.path().join("set-aside-by-hand.json"), "").expect("written");
        let set_aside = |seconds| {
            journal.write(&entry()).expect("written");
            journal.set_aside(at(seconds)).expect("set aside").time
        };
        assert_eq!([set_aside(100), set_aside(100), set_aside(200)], [at(100), at(101), at(200)]);
        // The clock was set back.
        let times = [set_aside(300), set_aside(7), set_aside(400)];
        assert_eq!(times, [at(300), at(7), at(400)]);
        let kept: Vec<Timestamp> = list(directory.path()).into_iter().map(|aside| aside.time).collect();
        assert_eq!(kept, [101, 200, 300, 400].map(at));
        assert!(directory.path().join("set-aside-by-hand.json").exists());
    }
}
