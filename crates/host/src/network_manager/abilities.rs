//! What this kernel can do. It is tested in a new network namespace, which is removed afterwards. Where that is not
//! allowed, as in a container with few rights, it is read from the names of the kernel's functions.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::thread;
use std::time::Duration;

use futures::TryStreamExt as _;
use netlink_packet_route::link::{InfoBridge, InfoData, InfoKind, LinkAttribute, LinkInfo, LinkMessage};
use nix::sched::{CloneFlags, unshare};
use rtnetlink::Handle;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::worker::runtime;
use crate::host::Abilities;

const LIMIT: Duration = Duration::from_secs(10);

/// It could not be tried: no right to have a network of one's own, no bridges at all, no answer in time.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotTried;

/// Tries what the kernel can do. Takes some milliseconds, and longer when the kernel has to load a module.
pub(super) async fn ask() -> Result<Abilities, NotTried> {
    let (reply, answer) = oneshot::channel();
    // The network belongs to the thread and goes with it. A thread of the runtime would take it along.
    thread::Builder::new()
        .name("network-abilities".to_owned())
        .spawn(move || {
            let tried = try_in_own_network();
            let _ = reply
                .send(tried.or_else(|_| File::open(SYMBOLS).map_err(|_| NotTried).and_then(read_symbols)));
        })
        .map_err(|_| NotTried)?;
    timeout(LIMIT, answer).await.map_err(|_| NotTried)?.map_err(|_| NotTried)?
}

/// Every function of the kernel and of its loaded modules, one in a line: address, type, name, module.
const SYMBOLS: &str = "/proc/kallsyms";
/// One that a kernel with bridges has, and one that it has if its bridges sort VLANs.
const OF_BRIDGES: &str = "br_add_if";
const OF_SORTING: &str = "br_vlan_filter_toggle";

/// Nothing is known as long as the module for bridges is not loaded.
fn read_symbols(symbols: impl io::Read) -> Result<Abilities, NotTried> {
    let (mut has_bridges, mut bridge_vlan_filtering) = (false, false);
    for line in BufReader::new(symbols).lines() {
        let line = line.map_err(|_| NotTried)?;
        let name = line.split_whitespace().nth(2);
        has_bridges |= name == Some(OF_BRIDGES);
        bridge_vlan_filtering |= name == Some(OF_SORTING);
    }
    if has_bridges { Ok(Abilities { bridge_vlan_filtering }) } else { Err(NotTried) }
}

fn try_in_own_network() -> Result<Abilities, NotTried> {
    unshare(CloneFlags::CLONE_NEWNET).map_err(|_| NotTried)?;
    let runtime = runtime().map_err(|_| NotTried)?;
    runtime.block_on(async {
        let (connection, handle, _) = rtnetlink::new_connection().map_err(|_| NotTried)?;
        tokio::spawn(connection);
        timeout(LIMIT, try_with(&handle)).await.map_err(|_| NotTried)?
    })
}

async fn try_with(kernel: &Handle) -> Result<Abilities, NotTried> {
    // Without this a kernel that has no bridges would look like one whose bridges do not sort VLANs.
    make_bridge(kernel, "plain", None).await.map_err(|_| NotTried)?;
    // One kernel refuses what it does not have, another takes it and forgets it.
    let made = make_bridge(kernel, "sorting", Some(InfoBridge::VlanFiltering(true))).await;
    let bridge_vlan_filtering = made.is_ok() && sorts_vlans(kernel, "sorting").await?;
    Ok(Abilities { bridge_vlan_filtering })
}

async fn make_bridge(kernel: &Handle, name: &str, with: Option<InfoBridge>) -> Result<(), rtnetlink::Error> {
    let mut info = vec![LinkInfo::Kind(InfoKind::Bridge)];
    info.extend(with.map(|with| LinkInfo::Data(InfoData::Bridge(vec![with]))));
    let mut message = LinkMessage::default();
    message.attributes = vec![LinkAttribute::IfName(name.to_owned()), LinkAttribute::LinkInfo(info)];
    kernel.link().add(message).execute().await
}

async fn sorts_vlans(kernel: &Handle, name: &str) -> Result<bool, NotTried> {
    let mut found = kernel.link().get().match_name(name.to_owned()).execute();
    let link = found.try_next().await.map_err(|_| NotTried)?.ok_or(NotTried)?;
    let mut infos = link.attributes.iter().flat_map(|attribute| match attribute {
        LinkAttribute::LinkInfo(infos) => infos.as_slice(),
        _ => &[],
    });
    Ok(infos.any(|info| {
        matches!(info, LinkInfo::Data(InfoData::Bridge(data)) if data.contains(&InfoBridge::VlanFiltering(true)))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_not_be_tried_is_read() {
        let plain = "ffffffff82154fb0 T br_add_if\nffffffff81245323 t br_add_if.cold\n";
        let sorting =
            "0000000000000000 T br_add_if\t[bridge]\n0000000000000000 T br_vlan_filter_toggle\t[bridge]\n";
        for (symbols, expected) in [(plain, Ok(false)), (sorting, Ok(true)), ("", Err(NotTried))] {
            let read = read_symbols(symbols.as_bytes()).map(|abilities| abilities.bridge_vlan_filtering);
            assert_eq!(read, expected, "{symbols}");
        }
    }

    #[test]
    fn what_is_read_is_what_is_tried() {
        // A test without the rights has nothing to compare with.
        if let Ok(tried) = try_in_own_network() {
            assert_eq!(File::open(SYMBOLS).map_err(|_| NotTried).and_then(read_symbols), Ok(tried));
        }
    }

    #[tokio::test]
    async fn asking_leaves_no_bridge_behind() {
        let interfaces = || std::fs::read_to_string("/proc/self/net/dev").map(|text| text.lines().count());
        let before = interfaces().expect("a list of interfaces");
        let first = ask().await;
        assert_eq!(first, ask().await);
        assert_eq!(interfaces().expect("a list of interfaces"), before);
    }
}
