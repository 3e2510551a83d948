//! One ICMP echo request, and its reply.

use std::{
    hash::{BuildHasher, RandomState},
    io,
    net::{IpAddr, UdpSocket},
    time::Duration,
};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use tokio::time::timeout;

use super::{address::on_link, attempt_error::Unreachable};

/// How long to wait for the reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(1);

/// Sends one echo request, by `interface` if there is one, and waits for the reply to it.
pub(super) async fn echo(host: IpAddr, interface: Option<&str>) -> Result<(), Unreachable> {
    let (socket, framing) = connected(host, interface)?;
    let socket = tokio::net::UdpSocket::from_std(socket)?;
    let nonce = nonce();
    socket.send(&request(host, nonce)).await?;
    let mut buffer = [0; 256];
    let reply = async {
        loop {
            let length = socket.recv(&mut buffer).await?;
            if is_reply(framing.message(&buffer[..length]), host, nonce) {
                return Ok(());
            }
        }
    };
    let no_answer = || Unreachable::because("no answer to ping");
    timeout(REPLY_TIMEOUT, reply).await.map_err(|_| no_answer())?
}

/// The header in front of a received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Nothing,
    Ipv4Header,
}

impl Framing {
    fn message(self, packet: &[u8]) -> &[u8] {
        match (self, packet) {
            (Self::Nothing, _) => packet,
            (Self::Ipv4Header, [first, ..]) => packet.get(usize::from(first & 0xf) * 4..).unwrap_or_default(),
            (Self::Ipv4Header, []) => &[],
        }
    }
}

/// A new socket that receives from `host` only.
fn connected(host: IpAddr, interface: Option<&str>) -> io::Result<(UdpSocket, Framing)> {
    let (domain, protocol, framing) = match host {
        IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4, Framing::Ipv4Header),
        IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6, Framing::Nothing),
    };
    let (socket, framing) = match Socket::new(domain, Type::RAW, Some(protocol)) {
        // Without privileges the kernel may still allow ping sockets.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            (Socket::new(domain, Type::DGRAM, Some(protocol))?, Framing::Nothing)
        }
        raw => (raw?, framing),
    };
    socket.bind_device(interface.map(str::as_bytes))?;
    socket.connect(&SockAddr::from(on_link(host, 0, interface)?))?;
    socket.set_nonblocking(true)?;
    Ok((socket.into(), framing))
}

/// A number that no other request has: a late reply to an earlier request proves nothing. The identifier of the header
/// does not serve, because the kernel replaces it for ping sockets.
fn nonce() -> u128 {
    let random = || u128::from(RandomState::new().hash_one(()));
    random() << 64 | random()
}

fn request(host: IpAddr, nonce: u128) -> Vec<u8> {
    let kind = if host.is_ipv4() { 8 } else { 128 };
    let mut message = vec![kind, 0, 0, 0, 0, 1, 0, 1];
    message.extend(nonce.to_be_bytes());
    // For IPv6 the kernel fills in the checksum, which covers the addresses.
    if host.is_ipv4() {
        let sum = checksum(&message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    message
}

fn is_reply(message: &[u8], host: IpAddr, nonce: u128) -> bool {
    let kind = if host.is_ipv4() { 0 } else { 129 };
    message.first() == Some(&kind) && message.get(8..) == Some(&nonce.to_be_bytes())
}

fn checksum(message: &[u8]) -> u16 {
    let mut sum: u32 =
        message.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn this_machine_replies_to_itself_in_both_families() {
        for host in ["127.0.0.1", "::1"] {
            let host = host.parse().expect("an address");
            assert_eq!(echo(host, None).await, Ok(()), "{host}");
            assert_eq!(echo(host, Some("lo")).await, Ok(()), "{host} by lo");
        }
    }

    #[tokio::test]
    async fn a_missing_interface_is_an_error() {
        let host = "127.0.0.1".parse().expect("an address");
        let unreached = echo(host, Some("no-such-link")).await.expect_err("no interface to send by");
        assert!(unreached.why.contains("No such device"), "{unreached:?}");
        let host = "fe80::1".parse().expect("an address");
        assert!(echo(host, Some("no-such-link")).await.is_err());
    }

    #[test]
    fn only_the_reply_to_this_request_counts() {
        let (v4, v6) = ("127.0.0.1".parse().expect("an address"), "::1".parse().expect("an address"));
        for (host, kind) in [(v4, 0), (v6, 129)] {
            let mut reply = request(host, 42);
            assert!(!is_reply(&reply, host, 42), "the request itself, as loopback shows it");
            reply[0] = kind;
            assert!(is_reply(&reply, host, 42));
            assert!(!is_reply(&reply, host, 43));
            assert!(!is_reply(&reply[..20], host, 42));
            assert!(!is_reply(&[], host, 42));
        }
        assert_ne!(nonce(), nonce());
    }

    #[test]
    fn a_message_and_its_checksum_add_up() {
        let message =
            request("10.0.0.1".parse().expect("an address"), 0x0123_4567_89ab_cdef_ffff_0000_1234_5678);
        assert_ne!(message[2..4], [0, 0]);
        assert_eq!(checksum(&message), 0);
    }

    #[test]
    fn a_header_of_any_length_is_skipped() {
        let mut packet = vec![0x46; 24];
        packet.push(7);
        assert_eq!(Framing::Ipv4Header.message(&packet), [7]);
        assert_eq!(Framing::Nothing.message(&packet), packet);
        assert!(Framing::Ipv4Header.message(&[0x4f, 0]).is_empty());
        assert!(Framing::Ipv4Header.message(&[]).is_empty());
    }
}
