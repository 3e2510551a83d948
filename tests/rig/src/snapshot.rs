//! The network of a node, from the kernel and from NetworkManager's profiles, to check whether a change was reverted.

use std::{fmt, time::Duration};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::{NmNode, machine::EXEC_LIMIT, shell::Shell, wait};

const SETTLE_LIMIT: Duration = Duration::from_secs(30);

/// Addresses, routes, rules, name servers, host name and profiles of a node, without what changes by itself.
#[derive(Clone, PartialEq)]
pub struct Snapshot(Value);

/// Prints the parts of a snapshot, each followed by a separator: first those of `ip`, as JSON, then the others. It is
/// one script, because a full-kernel node needs more time to start a command than to run it.
const READ_NETWORK: &str = "
    part() { \"$@\"; printf '\\036'; }
    part ip -j addr
    part ip -j -4 route show table all
    part ip -j -6 route show table all
    part ip -j rule
    part sed /^#/d /etc/resolv.conf
    part hostname
    part ls /etc/NetworkManager/system-connections";
const JSON_PARTS: usize = 4;

impl Snapshot {
    /// Reads the network of a node.
    pub async fn of(node: &impl Shell) -> Result<Self> {
        let output = node.run_script(READ_NETWORK, EXEC_LIMIT).await?.success()?;
        let mut parts = Vec::new();
        for (index, text) in output.split_terminator('\u{1e}').enumerate() {
            if index >= JSON_PARTS {
                parts.push(json!(text));
                continue;
            }
            let mut part = if text.trim().is_empty() { json!([]) } else { serde_json::from_str(text)? };
            for key in ["valid_life_time", "preferred_life_time", "expires"] {
                strip(&mut part, key);
            }
            // The kernel adds a multicast route to each link, and NetworkManager removes it when it stops to manage the
            // link. The kernel adds the l3mdev rule with the first VRF, and never removes it.
            part.as_array_mut().into_iter().for_each(|part| {
                part.retain(|entry| entry["type"] != "multicast" && entry.get("l3mdev").is_none());
            });
            parts.push(part);
        }
        Ok(Self(Value::Array(parts)))
    }

    /// Waits until the network of the node equals this snapshot. Fails with the differences when `limit` has passed.
    pub async fn wait_until_restored_on(&self, node: &impl Shell, limit: Duration) -> Result<()> {
        wait::until(limit, "the network to be as before", async || {
            let now = Self::of(node).await?;
            ensure!(now == *self, "{}", differences(self, &now));
            Ok(())
        })
        .await
    }

    /// Whether the snapshot has this text, such as an address.
    pub fn mentions(&self, text: &str) -> bool {
        self.0.to_string().contains(text)
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", self.0)
    }
}

impl NmNode {
    /// Reads the network of this node.
    pub async fn snapshot(&self) -> Result<Snapshot> {
        Snapshot::of(self).await
    }

    /// Waits until the network of this node equals a snapshot. Fails with the differences when `limit` has passed.
    pub async fn wait_until_restored(&self, before: &Snapshot, limit: Duration) -> Result<()> {
        before.wait_until_restored_on(self, limit).await
    }

    /// Makes the network of the node reproducible: sets the route metric of `eth0`, and waits for duplicate address
    /// detection.
    pub async fn settle(&self) -> Result<()> {
        // Without a metric in its profile, eth0 gets one that depends on the order in which NICs come up.
        for arguments in [
            &["connection", "modify", "eth0", "ipv4.route-metric", "100"][..],
            &["device", "reapply", "eth0"],
        ] {
            self.exec(["nmcli"].iter().chain(arguments).copied()).await?.success()?;
        }
        self.wait_for_duplicate_address_detection().await
    }

    /// Waits until `eth0` has its link-local IPv6 address, and duplicate address detection has ended.
    pub async fn wait_for_duplicate_address_detection(&self) -> Result<()> {
        wait::until(SETTLE_LIMIT, "duplicate address detection of eth0 to end", async || {
            let addresses = self.exec(["ip", "-6", "addr", "show", "dev", "eth0"]).await?.success()?;
            ensure!(addresses.contains("fe80:") && !addresses.contains("tentative"), "{addresses}");
            Ok(())
        })
        .await
    }
}

impl NmNode {
    /// Waits until the timers of bridges have expired. When the forward delay ends, a bridge sends a notification for
    /// each port, even for a port that forwarded before.
    pub async fn wait_for_bridges(&self) -> Result<()> {
        wait::until(Duration::from_mins(1), "the timers of bridges to expire", async || {
            let links = self.exec(["ip", "-d", "-j", "link"]).await?.json()?;
            let timer = |link: &Value| link["linkinfo"]["info_slave_data"]["forward_delay_timer"].as_f64();
            let mut timers = links.as_array().into_iter().flatten().filter_map(timer);
            ensure!(timers.all(|left| left == 0.0), "{links}");
            Ok(())
        })
        .await
    }
}

/// One line for each entry that only one of the two snapshots has.
fn differences(before: &Snapshot, now: &Snapshot) -> String {
    let entries = |state: &Snapshot| -> Vec<String> {
        let parts = state.0.as_array().into_iter().flatten();
        parts
            .flat_map(|part| part.as_array().cloned().unwrap_or_else(|| vec![part.clone()]))
            .map(|entry| entry.to_string())
            .collect()
    };
    let (before, now) = (entries(before), entries(now));
    let gone = before.iter().filter(|entry| !now.contains(entry)).map(|entry| format!("gone: {entry}"));
    let new = now.iter().filter(|entry| !before.contains(entry)).map(|entry| format!("new: {entry}"));
    gone.chain(new).collect::<Vec<_>>().join("\n")
}

fn strip(value: &mut Value, key: &str) {
    match value {
        Value::Object(map) => {
            map.remove(key);
            map.values_mut().for_each(|below| strip(below, key));
        }
        Value::Array(entries) => entries.iter_mut().for_each(|below| strip(below, key)),
        _ => {}
    }
}
