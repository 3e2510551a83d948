//! Finds what a lab has left on the machine, for tests that prove that nothing is left.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::Result;

use crate::{parts, process::LAB_VARIABLE};

/// Everything on this machine that has the name of a lab: processes, directories, mounts and cgroups, one line each.
pub fn of_lab(id: &str) -> Result<BTreeSet<String>> {
    let mut found = processes(id)?;
    if parts::scratch_root().join(id).exists() {
        found.insert(format!("directory {id}"));
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    found.extend(mounts.lines().filter(|line| line.contains(id)).map(|line| format!("mount {line}")));
    for hierarchy in fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten() {
        for cgroup in fs::read_dir(hierarchy.path()).into_iter().flatten().flatten() {
            if cgroup.file_name().to_string_lossy().contains(id) {
                found.insert(format!("cgroup {}", cgroup.path().display()));
                // A process that is ending shows neither its environment nor its cgroup, and still keeps the cgroup.
                found.extend(processes_in(&cgroup.path()));
            }
        }
    }
    Ok(found)
}

/// The processes in a cgroup and those below it, as the kernel lists them.
fn processes_in(cgroup: &Path) -> Vec<String> {
    let listed = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
    let own = listed.lines().map(|pid| format!("process {pid} in {}", cgroup.display()));
    let below = fs::read_dir(cgroup).into_iter().flatten().flatten().map(|entry| entry.path());
    own.chain(below.filter(|path| path.is_dir()).flat_map(|path| processes_in(&path))).collect()
}

/// The names of the machine's own network namespaces and interfaces, which a lab never changes.
pub fn machine_wide_names() -> BTreeSet<String> {
    ["/run/netns", "/sys/class/net"].iter().flat_map(|directory| names_in(Path::new(directory))).collect()
}

fn names_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path().display().to_string()).collect()
}

/// The namespaces of the processes of a lab, such as `net:[4026532281]`, without those of the caller.
pub fn namespaces_of_lab(id: &str) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for (directory, _) in processes_of_lab(id)? {
        found.extend(links_in(&directory.join("ns")));
    }
    let own = links_in(Path::new("/proc/self/ns"));
    Ok(found.into_iter().filter(|namespace| !own.contains(namespace)).collect())
}

/// Those of the namespaces that still exist, because a process, an open file of the caller or a mount holds them.
pub fn alive(namespaces: &BTreeSet<String>) -> Result<BTreeSet<String>> {
    let mut held = links_in(Path::new("/proc/self/fd"));
    for entry in fs::read_dir("/proc")?.flatten() {
        held.extend(links_in(&entry.path().join("ns")));
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let is_alive = |namespace: &&String| held.contains(*namespace) || mounts.contains(*namespace);
    Ok(namespaces.iter().filter(is_alive).cloned().collect())
}

/// The targets of the links in a directory of /proc; none if the process has ended.
fn links_in(directory: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some(fs::read_link(entry.path()).ok()?.display().to_string())).collect()
}

/// The processes of a lab, one line each.
pub fn processes(id: &str) -> Result<BTreeSet<String>> {
    let found = processes_of_lab(id)?.into_iter();
    Ok(found.map(|(directory, command)| format!("process {} {command}", directory.display())).collect())
}

/// Processes that the lab has started have its name in their environment. Those of pods do not, and are in a cgroup
/// with that name.
fn processes_of_lab(id: &str) -> Result<Vec<(PathBuf, String)>> {
    let mark = format!("{LAB_VARIABLE}={id}");
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let directory = entry.path();
        // A process may end meanwhile: its files count as empty.
        let environment = fs::read(directory.join("environ")).unwrap_or_default();
        let marked = environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes());
        let cgroups = fs::read_to_string(directory.join("cgroup")).unwrap_or_default();
        if marked || cgroups.contains(id) {
            let command = fs::read(directory.join("cmdline")).unwrap_or_default();
            found.push((directory, String::from_utf8_lossy(&command).replace('\0', " ")));
        }
    }
    Ok(found)
}
