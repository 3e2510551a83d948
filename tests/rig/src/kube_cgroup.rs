//! The cgroup of a kubelet node. It is the only part of a node that the kernel does not remove with its processes.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};

use crate::sweep;

/// Processes of pods may take this long to die. The cgroup can be removed after that.
const REMOVAL_LIMIT: Duration = Duration::from_secs(20);
const REMOVAL_INTERVAL: Duration = Duration::from_millis(20);

/// A cgroup with the same name in each hierarchy. Dropping it removes these cgroups and those that the kubelet created
/// below them.
#[derive(Debug)]
pub struct NodeCgroup {
    directories: Vec<PathBuf>,
}

/// The reason why no kubelet node can run on this machine, or none if one can.
pub fn obstacle() -> Result<Option<&'static str>> {
    let none = hierarchies(&fs::read_to_string("/proc/self/mountinfo")?).is_empty();
    Ok(none.then_some(
        "a kubelet node needs cgroup v1, and this machine mounts no cgroup v1 hierarchy below /sys/fs/cgroup",
    ))
}

impl NodeCgroup {
    /// Creates the cgroup in each hierarchy. The name has to start with that of the lab, because the next lab removes
    /// cgroups by name if this process is killed.
    pub fn create(name: &str) -> Result<Self> {
        if let Some(obstacle) = obstacle()? {
            bail!(obstacle);
        }
        let mut cgroup = Self { directories: Vec::new() };
        for hierarchy in hierarchies(&fs::read_to_string("/proc/self/mountinfo")?) {
            let directory = hierarchy.join(name);
            fs::create_dir(&directory)
                .with_context(|| format!("create the cgroup {}", directory.display()))?;
            cgroup.directories.push(directory.clone());
            // A new cpuset has no processors, and no process can enter it before it has.
            for setting in ["cpuset.cpus", "cpuset.mems"] {
                if hierarchy.join(setting).exists() {
                    let value = fs::read(hierarchy.join(setting))?;
                    fs::write(directory.join(setting), value)
                        .with_context(|| format!("set {setting} of {}", directory.display()))?;
                }
            }
        }
        Ok(cgroup)
    }
}

impl Drop for NodeCgroup {
    fn drop(&mut self) {
        for _ in 0..REMOVAL_LIMIT.as_millis() / REMOVAL_INTERVAL.as_millis() {
            self.directories.retain(|directory| {
                sweep::remove_cgroup(directory);
                directory.exists()
            });
            if self.directories.is_empty() {
                return;
            }
            thread::sleep(REMOVAL_INTERVAL);
        }
        eprintln!(
            "cannot remove these cgroups, because processes in them do not die: {:?}",
            self.directories
        );
    }
}

/// The mount points of cgroup v1 hierarchies below /sys/fs/cgroup, in the format of /proc/self/mountinfo.
fn hierarchies(mountinfo: &str) -> Vec<PathBuf> {
    let mounts = mountinfo.lines().filter_map(|line| {
        let (mount, file_system) = line.split_once(" - ")?;
        let mount_point = Path::new(mount.split(' ').nth(4)?);
        let is_v1 = file_system.split(' ').next() == Some("cgroup");
        (is_v1 && mount_point.starts_with("/sys/fs/cgroup")).then(|| mount_point.to_owned())
    });
    mounts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_v1_hierarchies_count() {
        let mountinfo = "\
            25 20 0:21 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
            26 25 0:22 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
            27 25 0:23 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n\
            28 25 0:24 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
            29 25 0:22 / /elsewhere/cpu rw - cgroup cgroup rw,cpu\n";
        let expected = ["/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/systemd"].map(PathBuf::from);
        assert_eq!(hierarchies(mountinfo), expected);
    }
}
