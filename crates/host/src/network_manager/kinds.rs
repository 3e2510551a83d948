//! Which kinds of interface this kernel can create.
//!
//! nmstate finds out by trying for more than two minutes. The kernel says it at once: it is asked for an interface of
//! the kind with a number of queues that no interface can have. A kernel that knows the kind refuses the number, one
//! that does not refuses the kind, and nothing is made in either case.

use knmstate_document::{NetworkState, Place, interface_name};
use std::io;
use std::time::Duration;

use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkInfo, LinkMessage};
use netlink_sys::protocols::NETLINK_GENERIC;
use netlink_sys::{Socket, SocketAddr};
use nix::errno::Errno;
use serde_json::{Map, Value};
use tokio::time::timeout;

use crate::error::HostError;

const LIMIT: Duration = Duration::from_secs(5);
/// The kernel's own maximum is 4096.
const IMPOSSIBLE_QUEUES: u32 = 1 << 20;

/// Refuses a document that asks for an interface of a kind that the kernel does not have.
pub(super) async fn check(desired: &NetworkState, current: &NetworkState) -> Result<(), HostError> {
    for interface in desired.interfaces() {
        let Some((named, kind)) = kind_to_make(interface, current) else { continue };
        if !kernel_knows(kind).await {
            return Err(HostError::Unsupported {
                place: Place::interface(interface_name(interface)).below("type"),
                what: format!("interfaces of type {named}"),
                why: "its kernel does not have them, and has no module for them".to_owned(),
            });
        }
    }
    Ok(())
}

/// The kind that has to be made for a desired interface, in nmstate's word and in the kernel's.
fn kind_to_make<'a>(desired: &'a Map<String, Value>, current: &NetworkState) -> Option<(&'a str, InfoKind)> {
    let is_wanted = desired.get("state").and_then(Value::as_str).is_none_or(|state| state == "up");
    let named = desired.get("type").and_then(Value::as_str)?;
    let kind = match named {
        "bond" => InfoKind::Bond,
        "dummy" => InfoKind::Dummy,
        "hsr" => InfoKind::Hsr,
        "ipvlan" => InfoKind::IpVlan,
        "linux-bridge" => InfoKind::Bridge,
        "mac-vlan" => InfoKind::MacVlan,
        "mac-vtap" => InfoKind::MacVtap,
        "macsec" => InfoKind::MacSec,
        "veth" => InfoKind::Veth,
        "vlan" => InfoKind::Vlan,
        "vrf" => InfoKind::Vrf,
        "vxlan" => InfoKind::Vxlan,
        _ => return None,
    };
    let is_there = current
        .interface(interface_name(desired))
        .is_some_and(|found| found.get("type").and_then(Value::as_str) == Some(named));
    (is_wanted && !is_there).then_some((named, kind))
}

/// Anything but a plain "no" counts as yes: nmstate has the last word then.
async fn kernel_knows(kind: InfoKind) -> bool {
    let Ok((connection, handle, _)) = rtnetlink::new_connection() else { return true };
    let served = tokio::spawn(connection);
    let mut message = LinkMessage::default();
    message.attributes = vec![
        LinkAttribute::IfName("knmstate-kind".to_owned()),
        LinkAttribute::NumTxQueues(IMPOSSIBLE_QUEUES),
        LinkAttribute::LinkInfo(vec![LinkInfo::Kind(kind)]),
    ];
    let answer = timeout(LIMIT, handle.link().add(message).execute()).await;
    served.abort();
    !matches!(
        answer,
        Ok(Err(rtnetlink::Error::NetlinkError(error)))
            if error.raw_code() == -(Errno::EOPNOTSUPP as i32)
    )
}

/// What the kernel answers to for Open vSwitch.
const OPEN_VSWITCH: &[u8] = b"ovs_datapath\0";

/// Whether the kernel can move the packets of Open vSwitch. The kernel loads the module on the first request.
pub(super) fn kernel_has_open_vswitch() -> bool {
    // Anything but a plain "no" counts as yes, as above.
    !matches!(ask_for_family(OPEN_VSWITCH), Ok(Some(errno)) if errno == -(Errno::ENOENT as i32))
}

/// Asks for a family of generic netlink by its name. The kernel's error, if that is its answer.
fn ask_for_family(name: &[u8]) -> io::Result<Option<i32>> {
    const CONTROL: u16 = 16;
    const REQUEST: u16 = 1;
    const GET_FAMILY: u8 = 3;
    const FAMILY_NAME: u16 = 2;
    const ERROR: u16 = 2;
    const HEADERS: usize = 16 + 4 + 4;
    let attribute = u16::try_from(4 + name.len()).map_err(io::Error::other)?;
    let whole = (HEADERS + name.len()).next_multiple_of(4);
    let mut request = Vec::with_capacity(whole);
    request.extend(u32::try_from(whole).map_err(io::Error::other)?.to_ne_bytes());
    request.extend(CONTROL.to_ne_bytes());
    request.extend(REQUEST.to_ne_bytes());
    // The socket has one user, so neither a number nor an address is needed.
    request.extend([0; 8]);
    request.extend([GET_FAMILY, 1, 0, 0]);
    request.extend(attribute.to_ne_bytes());
    request.extend(FAMILY_NAME.to_ne_bytes());
    request.extend(name);
    request.resize(whole, 0);

    let socket = Socket::new(NETLINK_GENERIC)?;
    // The answer is there when the question has been put.
    socket.set_non_blocking(true)?;
    socket.send_to(&request, &SocketAddr::new(0, 0), 0)?;
    let mut answer = Vec::with_capacity(4096);
    socket.recv_from(&mut answer, 0)?;
    let kind = answer.get(4..6).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
    let error = answer.get(16..20).and_then(|bytes| bytes.try_into().ok()).map(i32::from_ne_bytes);
    Ok(error.filter(|_| kind == Some(ERROR)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_kernel_says_which_families_it_has() {
        let ask = |name: &[u8]| ask_for_family(name).expect("an answer");
        assert_eq!(ask(b"nlctrl\0"), None, "the one that is asked");
        assert_eq!(ask(b"no-such-thing\0"), Some(-(Errno::ENOENT as i32)));
        assert_eq!(kernel_has_open_vswitch(), ask(OPEN_VSWITCH).is_none());
    }

    #[test]
    fn only_what_has_to_be_made_is_asked_for() {
        let current = NetworkState::parse(json!({ "interfaces": [
            { "name": "eth1", "type": "ethernet" }, { "name": "bond0", "type": "bond" }
        ] }))
        .expect("a state");
        for (interface, expected) in [
            (json!({ "name": "bond1", "type": "bond" }), Some(InfoKind::Bond)),
            (json!({ "name": "bond1", "type": "bond", "state": "up" }), Some(InfoKind::Bond)),
            (json!({ "name": "bond0", "type": "bond", "state": "up" }), None),
            (json!({ "name": "bond1", "type": "bond", "state": "absent" }), None),
            (json!({ "name": "eth1", "type": "ethernet" }), None),
            (json!({ "name": "br0", "type": "ovs-bridge" }), None),
            (json!({ "name": "bond1" }), None),
        ] {
            let found = kind_to_make(interface.as_object().expect("a map"), &current).map(|(_, kind)| kind);
            assert_eq!(found, expected, "{interface}");
        }
    }
}
