//! Addresses that are valid on one link only.

use std::{
    io,
    net::{IpAddr, SocketAddr, SocketAddrV6},
};

use nix::net::if_::if_nametoindex;

/// The address to send to. A link-local address needs the index of its interface, because it is valid on every link.
pub(super) fn on_link(address: IpAddr, port: u16, interface: Option<&str>) -> io::Result<SocketAddr> {
    match (address, interface) {
        (IpAddr::V6(address), Some(interface)) if address.is_unicast_link_local() => {
            let scope = if_nametoindex(interface)?;
            Ok(SocketAddrV6::new(address, port, 0, scope).into())
        }
        _ => Ok(SocketAddr::new(address, port)),
    }
}
