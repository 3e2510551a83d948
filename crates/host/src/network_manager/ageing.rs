//! How long a bridge remembers a silent neighbour, as it was set.
//!
//! While its spanning tree changes, a bridge is to forget sooner: the kernel puts twice the forward delay in the place
//! of what was set, from half a minute after a port has come until another half a minute later. It announces the
//! beginning, and the end not at all. A reader that takes the passing value for a setting shows it until something else
//! happens, finds an order unmet that is met, and writes it into the revert.
//!
//! The kernel does not report then what was set. NetworkManager does, for the bridges that it manages; on others the
//! passing value stays.

use std::collections::HashMap;
use std::time::Duration;

use futures::TryStreamExt as _;
use netlink_packet_route::link::{InfoBridge, InfoData, LinkAttribute, LinkInfo};
use nmstate::{Interface, LinuxBridgeOptions, NetworkState as Document};
use tokio::time::timeout;
use zbus::proxy::CacheProperties;
use zbus::zvariant::OwnedValue;

use super::service::{ManagerProxy, NAME};

/// Who does not answer at once is not waited for: a reading with a passing value is better than none.
const LIMIT: Duration = Duration::from_secs(2);

/// The default of NetworkManager, which it leaves out of a profile.
const DEFAULT: u32 = 300;

type Profile = HashMap<String, HashMap<String, OwnedValue>>;

#[zbus::proxy(interface = "org.freedesktop.NetworkManager.Device")]
trait Device {
    fn get_applied_connection(&self, flags: u32) -> zbus::Result<(Profile, u64)>;
}

/// Puts what was set in the place of passing values.
pub(super) async fn as_set(state: &mut Document) {
    for (name, options) in state.interfaces.iter_mut().filter_map(bridge) {
        if may_be_passing(options)
            && let Ok(Some(set)) = timeout(LIMIT, set_before_the_change(&name)).await
        {
            options.mac_ageing_time = Some(set);
        }
    }
}

fn bridge(interface: &mut Interface) -> Option<(String, &mut LinuxBridgeOptions)> {
    let Interface::LinuxBridge(bridge) = interface else { return None };
    let name = bridge.base.name.clone();
    Some((name, bridge.bridge.as_mut()?.options.as_mut()?))
}

/// Whether it looks as it does while the spanning tree changes. NetworkManager is queried for these bridges only.
fn may_be_passing(options: &LinuxBridgeOptions) -> bool {
    let Some(tree) = &options.stp else { return false };
    let passing = tree.forward_delay.map(|delay| 2 * u32::from(delay));
    tree.enabled == Some(true) && passing.is_some() && options.mac_ageing_time == passing
}

/// `None` if the spanning tree does not change, or what was set is not known.
async fn set_before_the_change(name: &str) -> Option<u32> {
    if !tree_changes(name).await? {
        return None;
    }
    let profile = applied_profile(name).await.ok()?;
    let Some(set) = profile.get("bridge")?.get("ageing-time") else { return Some(DEFAULT) };
    u32::try_from(set).ok()
}

async fn tree_changes(name: &str) -> Option<bool> {
    let (connection, handle, _) = rtnetlink::new_connection().ok()?;
    let served = tokio::spawn(connection);
    let link = handle.link().get().match_name(name.to_owned()).execute().try_next().await;
    served.abort();
    let attributes = link.ok()??.attributes;
    let mut infos = attributes.iter().flat_map(|attribute| match attribute {
        LinkAttribute::LinkInfo(infos) => infos.as_slice(),
        _ => &[],
    });
    Some(infos.any(|info| {
        matches!(info, LinkInfo::Data(InfoData::Bridge(data)) if data.contains(&InfoBridge::TopologyChange(1)))
    }))
}

async fn applied_profile(name: &str) -> zbus::Result<Profile> {
    let connection = zbus::Connection::system().await?;
    let manager = ManagerProxy::builder(&connection)
        .destination(NAME)?
        .cache_properties(CacheProperties::No)
        .build()
        .await?;
    let path = manager.get_device_by_ip_iface(name).await?;
    let device = DeviceProxy::builder(&connection)
        .destination(NAME)?
        .path(&path)?
        .cache_properties(CacheProperties::No)
        .build()
        .await?;
    let (profile, _version) = device.get_applied_connection(0).await?;
    Ok(profile)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_twice_the_forward_delay_of_a_spanning_tree_may_be_passing() {
        for (options, expected) in [
            (json!({"mac-ageing-time": 30, "stp": {"enabled": true, "forward-delay": 15}}), true),
            (json!({"mac-ageing-time": 300, "stp": {"enabled": true, "forward-delay": 15}}), false),
            (json!({"mac-ageing-time": 30, "stp": {"enabled": false, "forward-delay": 15}}), false),
            (json!({"mac-ageing-time": 30, "stp": {"enabled": true}}), false),
            (json!({"mac-ageing-time": 30}), false),
            (json!({"stp": {"enabled": true}}), false),
        ] {
            let parsed = serde_json::from_value(options.clone()).expect("options of a bridge");
            assert_eq!(may_be_passing(&parsed), expected, "{options}");
        }
    }
}
