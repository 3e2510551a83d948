//! Simulates a reboot of a node: for its network, the effect is the same.

use anyhow::Result;

use crate::NmNode;

/// Removes what a reboot removes: files in memory and all interfaces that are no hardware. Resets the other interfaces,
/// and changes the boot ID of the kernel.
const RESET: &str = r#"
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
    /// Ends NetworkManager, resets what a reboot resets, and starts NetworkManager. The test has to end its own
    /// processes in the node before.
    pub async fn reboot(&self) -> Result<()> {
        self.stop_network_manager().await?;
        self.exec(["sh", "-c", RESET]).await?.success()?;
        self.start_network_manager().await?;
        self.wait_for_duplicate_address_detection().await
    }
}
