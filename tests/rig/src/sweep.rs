//! Removes scratch directories and cgroups of test processes that were killed. They have the pid of their test process
//! in their names, and each new lab removes those whose process has ended.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::parts;

/// The names of directories and cgroups of labs start with this, the pid of the test process and a dash.
const PREFIX: &str = "knmstate-rig-";

/// Removes the directories and cgroups of test processes that have ended.
pub(crate) fn remove_leftovers_of_dead_processes() -> Result<()> {
    for directory in owned_by_dead_processes(&parts::scratch_root()) {
        remove_tolerating_races(&directory)?;
    }
    for hierarchy in std::fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten() {
        for cgroup in owned_by_dead_processes(&hierarchy.path()) {
            remove_cgroup(&cgroup);
        }
    }
    Ok(())
}

fn owned_by_dead_processes(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| owner(path).is_some_and(is_dead)).collect()
}

fn owner(path: &Path) -> Option<u32> {
    path.file_name()?.to_str()?.strip_prefix(PREFIX)?.split('-').next()?.parse().ok()
}

fn is_dead(pid: u32) -> bool {
    !Path::new(&format!("/proc/{pid}")).exists()
}

/// Succeeds as well if another test process removes the directory at the same time.
fn remove_tolerating_races(directory: &Path) -> Result<()> {
    match std::fs::remove_dir_all(directory) {
        Err(error) if directory.exists() => {
            Err(error).with_context(|| format!("remove {}", directory.display()))
        }
        _ => Ok(()),
    }
}

/// Removes a cgroup and those below it, if no process is in them.
pub(crate) fn remove_cgroup(cgroup: &Path) {
    for below in std::fs::read_dir(cgroup).into_iter().flatten().flatten() {
        if below.path().is_dir() {
            remove_cgroup(&below.path());
        }
    }
    let _ = std::fs::remove_dir(cgroup);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_is_read_from_the_name() {
        for (name, expected) in [
            ("/tmp/knmstate-rig-42-0", Some(42)),
            ("/tmp/knmstate-rig-42-7-node1", Some(42)),
            ("/tmp/knmstate-rig-", None),
            ("/tmp/something-42-0", None),
        ] {
            assert_eq!(owner(Path::new(name)), expected, "{name}");
        }
    }

    #[test]
    fn a_running_process_is_not_dead() {
        assert!(!is_dead(std::process::id()));
    }
}
