//! A node that starts again, as far as its network can tell.

use anyhow::Result;

use crate::NmNode;

/// Nothing is left of what was in memory, and no interface but hardware, which is as the kernel finds it; and the
/// kernel says that this is another start of the machine.
const FORGET: &str = r#"
set -e
rm -rf /run/NetworkManager/*
ip -o link | sed -n 's/^[0-9]*: \([^:@]*\)[:@].*/\1/p' | while read -r link; do
  case $link in
    lo) ;;
    eth*) ip addr flush dev "$link"; ip link set "$link" down mtu 1500 ;;
    *) ip link del "$link" 2>/dev/null || true ;;
  esac
done
cat /proc/sys/kernel/random/uuid >/run/boot-id
mount --bind /run/boot-id /proc/sys/kernel/random/boot_id
"#;

impl NmNode {
    /// Ends NetworkManager, lets the machine forget what a reboot makes it forget, and starts NetworkManager. Processes
    /// that a test has started in the node are its own to end before.
    pub async fn reboot(&self) -> Result<()> {
        self.stop_network_manager().await?;
        self.exec(["sh", "-c", FORGET]).await?.success()?;
        self.start_network_manager().await?;
        self.end_checks_for_duplicates().await
    }
}
