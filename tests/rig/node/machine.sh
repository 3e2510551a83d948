# shellcheck shell=bash
# Functions for the first process of a node that is made of namespaces. Sourced, never run.
# The caller is pid 1 of new net, mount, uts and pid namespaces; DIR is the directory of the node.

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")

# private_machine NAME DIR: after it, no file of the machine changes when a process of the node writes.
private_machine() {
  local name=$1 dir=$2
  mount --make-rprivate /
  mount -t proc proc /proc
  private_sys "$dir"
  hostname "$name"
  # The test reads it, too: it has the D-Bus socket and the files with which the test and this process synchronise.
  mkdir -p "$dir/run"
  mount --bind "$dir/run" /run
  mkdir -p /run/dbus /run/NetworkManager /run/lock
  mkdir -p "$dir/overlay"
  mount -t tmpfs -o mode=755 tmpfs "$dir/overlay"
  local path layer
  for path in /etc /var/lib; do
    layer=$dir/overlay/${path//\//-}
    mkdir "$layer" "$layer/upper" "$layer/work"
    mount -t overlay -o "lowerdir=$path,upperdir=$layer/upper,workdir=$layer/work" overlay "$path"
  done
  mount -t tmpfs -o mode=755 tmpfs /var/lib/NetworkManager
  rm -f /etc/resolv.conf
  : >/etc/resolv.conf
  echo "$name" >/etc/hostname
  ip link set lo up
}

# private_sys DIR: if /sys is writable, NetworkManager expects udev and waits for it for ever. If all of /sys is
# read-only, options of bridge ports cannot be set. So /sys becomes a read-only directory with writable subdirectories.
private_sys() {
  local dir=$1 name
  mkdir -p "$dir/sys"
  mount -t sysfs sysfs "$dir/sys"
  mount -t tmpfs -o mode=755,size=64k tmpfs /sys
  for name in "$dir"/sys/*/; do
    name=$(basename "$name")
    mkdir "/sys/$name"
    mount --bind "$dir/sys/$name" "/sys/$name"
  done
  mount -o remount,ro,bind /sys
  mount -o remount,ro /sys
}

# await SECONDS COMMAND...: repeats the command until it succeeds.
await() {
  local deadline=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    if ((SECONDS >= deadline)); then
      echo "gave up waiting for: $*" >&2
      return 1
    fi
    sleep 0.02
  done
}

# start_network_manager DIR: with the profiles (*.nmconnection) in DIR, and none of the machine.
start_network_manager() {
  local dir=$1
  rm -rf /etc/NetworkManager/conf.d /etc/NetworkManager/system-connections
  install -d -m 700 /etc/NetworkManager/system-connections
  find "$dir" -maxdepth 1 -name '*.nmconnection' -exec install -m 600 -t /etc/NetworkManager/system-connections {} +
  cp "$here/NetworkManager.conf" /etc/NetworkManager/NetworkManager.conf
  dbus-daemon --config-file="$here/dbus.conf" --nofork --nopidfile >>"$dir/dbus.log" 2>&1 </dev/null &
  await 10 test -S /run/dbus/system_bus_socket
  "$here/network-manager" start "$dir"
}

# reap_orphans: waits for ever, as process 1, which has to reap the orphans of its namespace.
reap_orphans() {
  while :; do
    sleep infinity &
    wait $! || true
  done
}
