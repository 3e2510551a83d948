# shellcheck shell=bash
# Functions for the first process of a KubeNode. Sourced, never run.
# containerd, kubelet and pods write to the host's file system, so the node gets its own view of it.

# private_root DIR READ_ONLY_DIR...: replaces / by a copy-on-write view of it. DIR and the READ_ONLY_DIRs stay themselves.
private_root() {
  local dir=$1 path root
  shift
  # A tmpfs, because the upper layer cannot be inside the lower one.
  mkdir "$dir/layers"
  mount -t tmpfs -o mode=755 tmpfs "$dir/layers"
  mkdir "$dir/layers/upper" "$dir/layers/work" "$dir/layers/view"
  root=$dir/layers/view
  mount -t overlay -o "lowerdir=/,upperdir=$dir/layers/upper,workdir=$dir/layers/work" overlay "$root"
  mkdir -p "$root$dir"
  mount --bind "$dir" "$root$dir"
  # The view does not have them if they are on another file system.
  for path in "$@"; do
    mkdir -p "$root$path"
    mount --bind "$path" "$root$path"
    mount -o remount,bind,ro "$root$path"
  done
  mount --rbind /dev "$root/dev"
  mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
  mount -t proc proc "$root/proc"
  cd "$root" || return
  pivot_root . mnt
  umount --lazy /mnt
}

# private_dirs DIR PATH...: directories that cannot be on an overlay, or that the test reads. They are below DIR.
private_dirs() {
  local dir=$1 path
  shift
  for path in "$@"; do
    mkdir -p "$dir$path" "$path"
    mount --bind "$dir$path" "$path"
  done
}

# private_sysctls DIR: kubelet does not start unless the kernel has certain settings, and these belong to the machine. So
# files with the expected values cover them. Everything becomes read-only except net, which belongs to the node.
private_sysctls() {
  local dir=$1 setting name
  mkdir "$dir/sysctl"
  mount --bind /proc/sys/net "$dir/sysctl" && mount --bind /proc/sys /proc/sys
  mount -o remount,bind,ro /proc/sys
  mount --move "$dir/sysctl" /proc/sys/net
  for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
    kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
    name=${setting%=*}
    mkdir -p "$dir/sysctl/$(dirname "$name")"
    echo "${setting#*=}" >"$dir/sysctl/$name"
    mount --bind "$dir/sysctl/$name" "/proc/sys/$name"
  done
}

# private_cgroups HIERARCHIES: mounts the hierarchies ("PATH OPTIONS", one per line) with the node's cgroup as their root.
private_cgroups() {
  local name options
  mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup
  while read -r name options; do
    name=$(basename "$name") options=${options#rw,}
    [[ $options != *name=* ]] || options=none,$options
    mkdir "/sys/fs/cgroup/$name"
    mount -t cgroup -o "$options" cgroup "/sys/fs/cgroup/$name"
  done <<<"$1"
}
