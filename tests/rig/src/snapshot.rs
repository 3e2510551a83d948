//! What a node's network is like, as the kernel and NetworkManager's disk have it, in order to see whether it is as
//! before.

use std::{fmt, time::Duration};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::{NmNode, machine::EXEC_LIMIT, shell::Shell, wait};

const REST_LIMIT: Duration = Duration::from_secs(30);

/// Everything that a change could spoil.
#[derive(Clone, PartialEq)]
pub struct Snapshot(Value);

/// The parts that `ip` tells as JSON, then the others, each followed by a separator. One command for all of it, because
/// each command costs a full-kernel node more than its work.
const LOOK: &str = "
    tell() { \"$@\"; printf '\\036'; }
    tell ip -j addr
    tell ip -j -4 route show table all
    tell ip -j -6 route show table all
    tell ip -j rule
    tell sed /^#/d /etc/resolv.conf
    tell hostname
    tell ls /etc/NetworkManager/system-connections";
const PARTS_OF_IP: usize = 4;

impl Snapshot {
    /// What a node is like now.
    pub async fn of(node: &impl Shell) -> Result<Self> {
        let told = node.lines(LOOK, EXEC_LIMIT).await?.success()?;
        let mut found = Vec::new();
        for (index, text) in told.split_terminator('\u{1e}').enumerate() {
            if index >= PARTS_OF_IP {
                found.push(json!(text));
                continue;
            }
            let mut part = if text.trim().is_empty() { json!([]) } else { serde_json::from_str(text)? };
            for key in ["valid_life_time", "preferred_life_time", "expires"] {
                strip(&mut part, key);
            }
            // The kernel gives a link its multicast route, and NetworkManager takes it when it lets the link go.
            part.as_array_mut()
                .into_iter()
                // The rule for VRFs it makes with the first one, and keeps for ever.
                .for_each(|part| {
                    part.retain(|entry| entry["type"] != "multicast" && entry.get("l3mdev").is_none());
                });
            found.push(part);
        }
        Ok(Self(Value::Array(found)))
    }

    /// Waits until everything on the node is as it was.
    pub async fn is_again_on(&self, node: &impl Shell, limit: Duration) -> Result<()> {
        wait::until(limit, "the node to be as before", async || {
            let now = Self::of(node).await?;
            ensure!(now == *self, "{}", differences(self, &now));
            Ok(())
        })
        .await
    }

    /// Whether a text, such as an address, is anywhere in it.
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
    pub async fn snapshot(&self) -> Result<Snapshot> {
        Snapshot::of(self).await
    }

    /// Waits until everything is as it was.
    pub async fn is_again(&self, before: &Snapshot, limit: Duration) -> Result<()> {
        before.is_again_on(self, limit).await
    }

    /// Gives `eth0` what would otherwise depend on chance, and waits until the node moves no more.
    pub async fn come_to_rest(&self) -> Result<()> {
        // Without a metric of its own, eth0 gets one by the order in which cards come up, and not always the same.
        for arguments in [
            &["connection", "modify", "eth0", "ipv4.route-metric", "100"][..],
            &["device", "reapply", "eth0"],
        ] {
            self.exec(["nmcli"].iter().chain(arguments).copied()).await?.success()?;
        }
        self.end_checks_for_duplicates().await
    }

    /// Waits until `eth0` has the address that the kernel gives by itself, and no check for duplicates is under way.
    pub async fn end_checks_for_duplicates(&self) -> Result<()> {
        wait::until(REST_LIMIT, "the node to be at rest", async || {
            let addresses = self.exec(["ip", "-6", "addr", "show", "dev", "eth0"]).await?.success()?;
            ensure!(addresses.contains("fe80:") && !addresses.contains("tentative"), "{addresses}");
            Ok(())
        })
        .await
    }
}

impl NmNode {
    /// Waits until bridges have nothing more to tell by themselves: that a port forwards they tell once more when the
    /// forward delay is over, though it always did.
    pub async fn bridges_come_to_rest(&self) -> Result<()> {
        wait::until(Duration::from_mins(1), "the timers of bridges to run out", async || {
            let links = self.exec(["ip", "-d", "-j", "link"]).await?.json()?;
            let timer = |link: &Value| link["linkinfo"]["info_slave_data"]["forward_delay_timer"].as_f64();
            let mut timers = links.as_array().into_iter().flatten().filter_map(timer);
            ensure!(timers.all(|left| left == 0.0), "{links}");
            Ok(())
        })
        .await
    }
}

/// The entries that only one of the two has.
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
