//! What is left of a lab, as the machine sees it: the proof that a test cleaned up.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::Result;

use crate::{parts, process::LAB_VARIABLE};

/// Everything on this machine that carries the name of a lab, in words: processes, folders, mounts, cgroups.
pub fn of_lab(id: &str) -> Result<BTreeSet<String>> {
    let mut found = processes(id)?;
    if parts::scratch_root().join(id).exists() {
        found.insert(format!("folder {id}"));
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    found.extend(mounts.lines().filter(|line| line.contains(id)).map(|line| format!("mount {line}")));
    for hierarchy in fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten() {
        for cgroup in fs::read_dir(hierarchy.path()).into_iter().flatten().flatten() {
            if cgroup.file_name().to_string_lossy().contains(id) {
                found.insert(format!("cgroup {}", cgroup.path().display()));
            }
        }
    }
    Ok(found)
}

/// The names that namespaces and network cards of the machine itself have: a lab changes neither.
pub fn machine_wide_names() -> BTreeSet<String> {
    ["/run/netns", "/sys/class/net"].iter().flat_map(|folder| names_in(Path::new(folder))).collect()
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path().display().to_string()).collect()
}

/// The namespaces that the processes of a lab live in and the caller does not, such as `net:[4026532281]`.
pub fn namespaces_of_lab(id: &str) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for (folder, _) in processes_of_lab(id)? {
        found.extend(links_in(&folder.join("ns")));
    }
    let own = links_in(Path::new("/proc/self/ns"));
    Ok(found.into_iter().filter(|namespace| !own.contains(namespace)).collect())
}

/// Those of the namespaces that something still holds: a process, an open file of the caller, a mount.
pub fn alive(namespaces: &BTreeSet<String>) -> Result<BTreeSet<String>> {
    let mut held = links_in(Path::new("/proc/self/fd"));
    for entry in fs::read_dir("/proc")?.flatten() {
        held.extend(links_in(&entry.path().join("ns")));
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let is_alive = |namespace: &&String| held.contains(*namespace) || mounts.contains(*namespace);
    Ok(namespaces.iter().filter(is_alive).cloned().collect())
}

/// What the links in a folder of /proc point to; nothing, if the process ended meanwhile.
fn links_in(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some(fs::read_link(entry.path()).ok()?.display().to_string())).collect()
}

pub fn processes(id: &str) -> Result<BTreeSet<String>> {
    let found = processes_of_lab(id)?.into_iter();
    Ok(found.map(|(folder, command)| format!("process {} {command}", folder.display())).collect())
}

/// Its own carry its name in their environment; those of pods do not, but are in a cgroup with that name.
fn processes_of_lab(id: &str) -> Result<Vec<(PathBuf, String)>> {
    let mark = format!("{LAB_VARIABLE}={id}");
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let folder = entry.path();
        // A process may end while it is looked at; what cannot be read then is as good as empty.
        let environment = fs::read(folder.join("environ")).unwrap_or_default();
        let marked = environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes());
        let cgroups = fs::read_to_string(folder.join("cgroup")).unwrap_or_default();
        if marked || cgroups.contains(id) {
            let command = fs::read(folder.join("cmdline")).unwrap_or_default();
            found.push((folder, String::from_utf8_lossy(&command).replace('\0', " ")));
        }
    }
    Ok(found)
}
