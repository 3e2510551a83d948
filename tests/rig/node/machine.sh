# shellcheck shell=bash
# Functions for the first process of a node that is made of namespaces. Sourced, never run.
# The caller is pid 1 of fresh net, mount, uts and pid namespaces; DIR is the node's scratch folder.

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")

# private_machine NAME DIR: from here on, nothing that is written reaches the machine.
private_machine() {
  local name=$1 dir=$2
  mount --make-rprivate /
  mount -t proc proc /proc
  private_sys "$dir"
  hostname "$name"
  # A folder that the test can see too: it finds the bus socket and the marks that say "ready" there.
  mkdir -p "$dir/run"
  mount --bind "$dir/run" /run
  mkdir -p /run/dbus /run/NetworkManager /run/lock
  mkdir -p "$dir/overlay"
  mount -t tmpfs -o mode=755 tmpfs "$dir/overlay"
  local folder layer
  for folder in /etc /var/lib; do
    layer=$dir/overlay/${folder//\//-}
    mkdir "$layer" "$layer/upper" "$layer/work"
    mount -t overlay -o "lowerdir=$folder,upperdir=$layer/upper,workdir=$layer/work" overlay "$folder"
  done
  mount -t tmpfs -o mode=755 tmpfs /var/lib/NetworkManager
  rm -f /etc/resolv.conf
  : >/etc/resolv.conf
  echo "$name" >/etc/hostname
  ip link set lo up
}

# NetworkManager takes a writable /sys as the sign of a running udev, and then waits for it for ever. A read-only one,
# on the other hand, breaks options of bridge ports. So: a read-only folder with the writable subfolders bound inside.
private_sys() {
  local dir=$1 folder
  mkdir -p "$dir/sys"
  mount -t sysfs sysfs "$dir/sys"
  mount -t tmpfs -o mode=755,size=64k tmpfs /sys
  for folder in "$dir"/sys/*/; do
    folder=$(basename "$folder")
    mkdir "/sys/$folder"
    mount --bind "$dir/sys/$folder" "/sys/$folder"
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

# start_network_manager DIR: with the profiles (*.nmconnection) found in DIR, and nothing of the machine's own.
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

# Process 1 has one more duty: to collect the dead.
reap_for_ever() {
  while :; do
    sleep infinity &
    wait $! || true
  done
}
