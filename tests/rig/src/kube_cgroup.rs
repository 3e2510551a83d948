//! The cgroup of a kubelet node. It is the one thing of a node that the kernel does not remove with its processes.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};

use crate::sweep;

/// How often removal is tried, every 20 ms: for 20 seconds, because a pod's processes may take a while to die.
const ATTEMPTS: usize = 1000;

/// A cgroup of one name in every hierarchy; removed, with what the kubelet made below it, when dropped.
#[derive(Debug)]
pub struct NodeCgroup {
    folders: Vec<PathBuf>,
}

/// Why no kubelet node can run on this machine, if that is so.
pub fn obstacle() -> Result<Option<&'static str>> {
    let none = hierarchies(&fs::read_to_string("/proc/self/mountinfo")?).is_empty();
    Ok(none.then_some(
        "a kubelet node needs cgroups of the first generation, and this machine mounts none below /sys/fs/cgroup",
    ))
}

impl NodeCgroup {
    /// The name starts with the lab's, so that the next lab can tell whose it was.
    pub fn create(name: &str) -> Result<Self> {
        if let Some(obstacle) = obstacle()? {
            bail!(obstacle);
        }
        let mut cgroup = Self { folders: Vec::new() };
        for hierarchy in hierarchies(&fs::read_to_string("/proc/self/mountinfo")?) {
            let folder = hierarchy.join(name);
            fs::create_dir(&folder).with_context(|| format!("create the cgroup {}", folder.display()))?;
            cgroup.folders.push(folder.clone());
            // A new cpuset has no processors and takes no process until it has.
            for setting in ["cpuset.cpus", "cpuset.mems"] {
                if hierarchy.join(setting).exists() {
                    let value = fs::read(hierarchy.join(setting))?;
                    fs::write(folder.join(setting), value)
                        .with_context(|| format!("set {setting} of {}", folder.display()))?;
                }
            }
        }
        Ok(cgroup)
    }
}

impl Drop for NodeCgroup {
    fn drop(&mut self) {
        for _ in 0..ATTEMPTS {
            self.folders.retain(|folder| {
                sweep::remove_cgroup(folder);
                folder.exists()
            });
            if self.folders.is_empty() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        eprintln!("cgroups are left behind, because processes in them do not die: {:?}", self.folders);
    }
}

/// Where hierarchies of the first generation are mounted, according to a mountinfo file.
fn hierarchies(mountinfo: &str) -> Vec<PathBuf> {
    let mounts = mountinfo.lines().filter_map(|line| {
        let (mount, file_system) = line.split_once(" - ")?;
        let place = Path::new(mount.split(' ').nth(4)?);
        let of_v1 = file_system.split(' ').next() == Some("cgroup");
        (of_v1 && place.starts_with("/sys/fs/cgroup")).then(|| place.to_owned())
    });
    mounts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_generation_counts() {
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
