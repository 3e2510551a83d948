# shellcheck shell=bash
# Functions for the first process of a KubeNode. Sourced, never run.
# containerd, kubelet and above all pods write wherever they are told to, so the node gets a root of its own.

# private_root DIR FOLDER...: replaces / by a copy-on-write view of it. DIR stays what it is, the FOLDERs too, read-only.
private_root() {
  local dir=$1 folder root
  shift
  # A tmpfs, because the layer for changes cannot lie inside the tree that it covers.
  mkdir "$dir/layers"
  mount -t tmpfs -o mode=755 tmpfs "$dir/layers"
  mkdir "$dir/layers/upper" "$dir/layers/work" "$dir/layers/view"
  root=$dir/layers/view
  mount -t overlay -o "lowerdir=/,upperdir=$dir/layers/upper,workdir=$dir/layers/work" overlay "$root"
  mkdir -p "$root$dir"
  mount --bind "$dir" "$root$dir"
  # They are in the view already, unless they lie on another file system.
  for folder in "$@"; do
    mkdir -p "$root$folder"
    mount --bind "$folder" "$root$folder"
    mount -o remount,bind,ro "$root$folder"
  done
  mount --rbind /dev "$root/dev"
  mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
  mount -t proc proc "$root/proc"
  cd "$root" || return
  pivot_root . mnt
  umount --lazy /mnt
}

# private_folder DIR FOLDER...: folders that need a real file system below them, or that the test wants to see.
private_folder() {
  local dir=$1 folder
  shift
  for folder in "$@"; do
    mkdir -p "$dir$folder" "$folder"
    mount --bind "$dir$folder" "$folder"
  done
}

# kubelet refuses to start unless the kernel has certain settings, which belong to the machine. It is shown the values
# that it wants, and everything but the network's settings, which are the node's own, becomes read-only.
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

# private_cgroups HIERARCHIES: mounts the hierarchies ("folder options" per line) as seen from the node's own cgroup.
private_cgroups() {
  local folder options
  mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup
  while read -r folder options; do
    folder=$(basename "$folder") options=${options#rw,}
    [[ $options != *name=* ]] || options=none,$options
    mkdir "/sys/fs/cgroup/$folder"
    mount -t cgroup -o "$options" cgroup "/sys/fs/cgroup/$folder"
  done <<<"$1"
}
