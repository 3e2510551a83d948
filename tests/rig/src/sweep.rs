//! What a killed test process could not remove itself: scratch folders and cgroups carry the pid of their owner, and
//! the next lab removes those whose owner is gone.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::parts;

/// Folders and cgroups of labs start with this, followed by the owner's pid and a dash.
pub const PREFIX: &str = "knmstate-rig-";

pub fn leftovers_of_dead_processes() -> Result<()> {
    for folder in owned_by_the_dead(&parts::scratch_root()) {
        remove_tolerating_races(&folder)?;
    }
    for hierarchy in std::fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten() {
        for cgroup in owned_by_the_dead(&hierarchy.path()) {
            remove_cgroup(&cgroup);
        }
    }
    Ok(())
}

fn owned_by_the_dead(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| owner(path).is_some_and(is_dead)).collect()
}

fn owner(path: &Path) -> Option<u32> {
    path.file_name()?.to_str()?.strip_prefix(PREFIX)?.split('-').next()?.parse().ok()
}

fn is_dead(pid: u32) -> bool {
    !Path::new(&format!("/proc/{pid}")).exists()
}

/// Two test processes may sweep the same folder at once.
fn remove_tolerating_races(folder: &Path) -> Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if folder.exists() => Err(error).with_context(|| format!("remove {}", folder.display())),
        _ => Ok(()),
    }
}

/// Removes a cgroup and those below it; the kernel refuses as long as a process is inside.
pub fn remove_cgroup(cgroup: &Path) {
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
    fn the_living_keep_theirs() {
        assert!(!is_dead(std::process::id()));
    }
}
