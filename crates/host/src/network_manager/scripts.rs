//! Scripts that NetworkManager's dispatcher runs as root, and that nmstate writes for the key `dispatch`.
//!
//! No checkpoint covers them. So the journal has them as they were before the change, and whatever rolls the change back
//! restores them. nmstate also removes those of an interface that becomes absent, whether scripts are allowed or not.

use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use knmstate_document::{Document, NetworkState, Place, is_absent, programs};
use nix::unistd::{AccessFlags, access};
use serde::{Deserialize, Serialize};

use super::journal::{Entry, sync};
use crate::error::HostError;

/// Where nmstate writes them, and NetworkManager finds them.
pub(super) const DIRECTORY: &str = "/etc/NetworkManager/dispatcher.d";

/// One script as it was before the change.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Script {
    /// Its file in [`DIRECTORY`].
    pub(super) name: String,
    /// `None` when there was none.
    pub(super) before: Option<Content>,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Content {
    text: String,
    mode: u32,
}

/// Refuses new scripts where they are not allowed, and programs that no setting allows. `desired` in nmstate's own
/// spelling.
pub(super) fn check(desired: &NetworkState, current: &NetworkState, allowed: bool) -> Result<(), HostError> {
    if let Some(place) = programs::first_libreswan_line_break(desired.sections()) {
        let why = "a line break would add options to the connection, such as a program that runs as root";
        return Err(HostError::invalid(place, why));
    }
    let new = programs::first_new_dispatch_script(desired.sections(), current.sections());
    let Some(place) = new else { return Ok(()) };
    if !allowed {
        return Err(HostError::NotAllowed { place, why: programs::DISPATCH_NOT_ALLOWED.to_owned() });
    }
    writable(Path::new(DIRECTORY)).map_err(|error| HostError::Unsupported {
        place,
        what: "dispatch scripts".to_owned(),
        why: format!("{DIRECTORY} cannot be written: {error}"),
    })
}

fn writable(directory: &Path) -> nix::Result<()> {
    access(directory, AccessFlags::W_OK | AccessFlags::X_OK)
}

/// The scripts that a change may touch, as they are now.
pub(super) fn before(
    directory: &Path,
    desired: &NetworkState,
    touched: &[String],
) -> Result<Vec<Script>, HostError> {
    let has_scripts = |interface: &Document| {
        is_absent(interface) || interface.get("dispatch").is_some_and(|dispatch| !dispatch.is_null())
    };
    // An interface may be named by its hardware; `touched` has its name, too.
    if !desired.interfaces().any(has_scripts) {
        return Ok(Vec::new());
    }
    let names = touched.iter().flat_map(|interface| names(interface).map(move |name| (interface, name)));
    names
        .map(|(interface, name)| match content(&directory.join(&name)) {
            Ok(before) => Ok(Script { name, before }),
            Err(error) => Err(HostError::Failed {
                place: Place::interface(interface).below("dispatch"),
                why: format!(
                    "{} could not be restored, because it cannot be read: {error}",
                    directory.join(&name).display()
                ),
            }),
        })
        .collect()
}

/// The names that nmstate gives to the scripts of an interface. A name with a slash would be one of another directory.
fn names(interface: &str) -> impl Iterator<Item = String> {
    let is_file_name = !interface.contains('/');
    ["up", "down"].into_iter().filter(move |_| is_file_name).map({
        let interface = interface.to_owned();
        move |action| format!("nmstate-{interface}-{action}.sh")
    })
}

fn content(path: &Path) -> io::Result<Option<Content>> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(Some(Content { text, mode: fs::metadata(path)?.permissions().mode() & 0o7777 }))
}

/// Restores the scripts of a change. What is as before is not touched.
pub(super) fn restore(entry: &Entry) -> Result<(), HostError> {
    restore_in(Path::new(DIRECTORY), &entry.scripts)
}

fn restore_in(directory: &Path, scripts: &[Script]) -> Result<(), HostError> {
    for script in scripts {
        restore_one(directory, script).map_err(|error| HostError::Failed {
            place: Place::document(),
            why: format!("the script {} cannot be restored: {error}", directory.join(&script.name).display()),
        })?;
    }
    Ok(())
}

fn restore_one(directory: &Path, Script { name, before }: &Script) -> io::Result<()> {
    let path = directory.join(name);
    // One that cannot be read is replaced.
    if content(&path).is_ok_and(|now| now == *before) {
        return Ok(());
    }
    let Some(Content { text, mode }) = before else {
        fs::remove_file(&path)?;
        return sync(directory);
    };
    // NetworkManager runs no file whose name begins with a dot.
    let unfinished = directory.join(format!(".{name}.new"));
    let _ = fs::remove_file(&unfinished);
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&unfinished)?;
    file.write_all(text.as_bytes())?;
    file.set_permissions(Permissions::from_mode(*mode))?;
    file.sync_all()?;
    fs::rename(&unfinished, &path)?;
    sync(directory)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn state(interface: &serde_json::Value) -> NetworkState {
        NetworkState::parse(json!({ "interfaces": [interface] })).expect("a state")
    }

    fn write(path: &Path, text: &str, mode: u32) {
        fs::write(path, text).expect("written");
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("the mode is set");
    }

    #[test]
    fn scripts_are_refused_unless_they_are_allowed() {
        let script = state(&json!({ "name": "eth1", "dispatch": { "post-activation": "touch /x" } }));
        let none = state(&json!({ "name": "eth1" }));
        let refused = check(&script, &none, false).expect_err("it is refused");
        assert!(matches!(refused, HostError::NotAllowed { .. }) && !refused.is_retryable(), "{refused:?}");
        let text = refused.to_string();
        for word in ["interfaces[eth1].dispatch", "root", "allowDispatchScripts", "--allow-dispatch-scripts"]
        {
            assert!(text.contains(word), "{text}");
        }
        assert!(!text.contains("/x"), "{text}");
        assert!(!matches!(check(&script, &none, true), Err(HostError::NotAllowed { .. })));
        let removal = state(&json!({ "name": "eth1", "dispatch": { "post-activation": "" } }));
        assert_eq!(check(&removal, &script, false), Ok(()));
        assert_eq!(check(&script, &script, false), Ok(()), "it is there already");
        let libreswan = state(&json!({ "name": "a", "libreswan": { "leftid": "x\nleftupdown=/x" } }));
        assert!(matches!(check(&libreswan, &none, true), Err(HostError::Invalid { .. })));
    }

    #[test]
    fn the_directory_has_to_be_writable() {
        let directory = tempfile::tempdir().expect("a directory");
        assert_eq!(writable(directory.path()), Ok(()));
        assert!(writable(&directory.path().join("missing")).is_err());
    }

    #[test]
    fn every_script_that_a_change_may_touch_is_restored_with_its_mode() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name);
        write(&path("nmstate-eth1-down.sh"), "before", 0o744);
        write(&path("nmstate-eth9-up.sh"), "of another interface", 0o700);
        let desired = state(&json!({ "name": "eth1", "dispatch": { "post-activation": "touch /x" } }));
        let touched = ["eth1".to_owned(), "br0".to_owned(), "../x".to_owned()];
        let scripts = before(directory.path(), &desired, &touched).expect("they can be read");
        let names: Vec<&str> = scripts.iter().map(|script| &*script.name).collect();
        let expected =
            ["nmstate-eth1-up.sh", "nmstate-eth1-down.sh", "nmstate-br0-up.sh", "nmstate-br0-down.sh"];
        assert_eq!(names, expected);

        write(&path("nmstate-eth1-up.sh"), "new", 0o744);
        write(&path("nmstate-eth1-down.sh"), "replaced", 0o700);
        for _ in 0..2 {
            restore_in(directory.path(), &scripts).expect("restored");
            assert!(!path("nmstate-eth1-up.sh").exists());
            let restored = content(&path("nmstate-eth1-down.sh")).expect("it is there");
            assert!(restored == Some(Content { text: "before".to_owned(), mode: 0o744 }));
        }
        fs::remove_file(path("nmstate-eth1-down.sh")).expect("removed");
        restore_in(directory.path(), &scripts).expect("restored");
        assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 2, "nothing else is left");

        let read_back: Vec<Script> =
            serde_json::from_value(serde_json::to_value(&scripts).expect("JSON")).expect("scripts");
        assert!(read_back == scripts);
    }

    #[test]
    fn only_changes_of_scripts_and_removals_of_interfaces_have_scripts() {
        let directory = Path::new("/no/such/directory");
        let touched = ["eth1".to_owned()];
        for (interface, expected) in [
            (json!({ "name": "eth1", "mtu": 1400 }), 0),
            (json!({ "name": "eth1", "state": "absent" }), 2),
            (json!({ "name": "eth1", "dispatch": { "post-activation": "" } }), 2),
        ] {
            let scripts = before(directory, &state(&interface), &touched).expect("they can be read");
            assert_eq!(scripts.len(), expected, "{interface}");
            restore_in(directory, &scripts).expect("there is nothing to restore");
        }
    }
}
