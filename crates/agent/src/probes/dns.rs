//! One query to one name server.

use std::{
    hash::{BuildHasher, RandomState},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use knmstate_core::probes::NameServer;
use simple_dns::{CLASS, Name, Packet, PacketFlag, Question, RCODE, TYPE, header_buffer, rdata::RData};
use tokio::{net::UdpSocket, time::timeout};

use super::{address::on_link, attempt_error::Unreachable};

/// How long to wait for a response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The largest response to a query without EDNS.
const MAX_RESPONSE: usize = 512;

/// The response to a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DnsAnswer {
    /// The addresses among the records; there may be none.
    Addresses(Vec<IpAddr>),
    /// The name does not exist (NXDOMAIN).
    NoSuchName,
}

/// Sends one query to one server, from a new port. A refusal or a failure of the server is an error.
pub(super) async fn query(
    server: &NameServer,
    port: u16,
    name: &str,
    kind: TYPE,
) -> Result<DnsAnswer, Unreachable> {
    let id = u16::try_from(RandomState::new().hash_one(()) & 0xffff).unwrap_or_default();
    let message =
        encode(id, name, kind).ok_or_else(|| Unreachable::because(format!("{name:?} is not a DNS name")))?;
    let any: IpAddr = match server.address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    let interface = server.interface.as_deref();
    socket.bind_device(interface.map(str::as_bytes))?;
    socket.connect(on_link(server.address, port, interface)?).await?;
    socket.send(&message).await?;
    let mut buffer = [0; MAX_RESPONSE];
    let answer = async {
        loop {
            let length = socket.recv(&mut buffer).await?;
            let message = &buffer[..length];
            if is_response(message, id) {
                return decode(message);
            }
        }
    };
    timeout(RESPONSE_TIMEOUT, answer).await.map_err(|_| Unreachable::because("no answer"))?
}

fn encode(id: u16, name: &str, kind: TYPE) -> Option<Vec<u8>> {
    let mut packet = Packet::new_query(id);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    packet.questions.push(Question::new(Name::new(name).ok()?, kind.into(), CLASS::IN.into(), false));
    packet.build_bytes_vec().ok()
}

/// Whether this is a response to the query with this id.
fn is_response(message: &[u8], id: u16) -> bool {
    header_buffer::id(message) == Ok(id)
        && header_buffer::has_flags(message, PacketFlag::RESPONSE) == Ok(true)
}

fn decode(message: &[u8]) -> Result<DnsAnswer, Unreachable> {
    let unreadable = |_| Unreachable::because("a malformed response");
    match header_buffer::rcode(message).map_err(unreadable)? {
        RCODE::NoError => {}
        RCODE::NameError => return Ok(DnsAnswer::NoSuchName),
        RCODE::ServerFailure => return Err(Unreachable::because("server failure (SERVFAIL)")),
        RCODE::Refused => return Err(Unreachable::because("query refused (REFUSED)")),
        other => return Err(Unreachable::because(format!("error response ({other:?})"))),
    }
    let packet = match Packet::parse(message) {
        Ok(packet) => packet,
        // Truncated in the middle of a record. It proves all the same that the server works.
        Err(_) if header_buffer::has_flags(message, PacketFlag::TRUNCATION) == Ok(true) => {
            return Ok(DnsAnswer::Addresses(Vec::new()));
        }
        Err(error) => return Err(unreadable(error)),
    };
    let address = |record: &RData<'_>| match record {
        RData::A(a) => Some(Ipv4Addr::from(a.address).into()),
        RData::AAAA(aaaa) => Some(Ipv6Addr::from(aaaa.address).into()),
        _ => None,
    };
    Ok(DnsAnswer::Addresses(packet.answers.iter().filter_map(|record| address(&record.rdata)).collect()))
}

#[cfg(test)]
pub(super) mod responder;

#[cfg(test)]
mod tests {
    use super::{responder::Responder, *};

    #[tokio::test]
    async fn a_server_that_resolves_the_name_or_denies_it_has_answered() {
        let server = Responder::start("127.0.0.1").await;
        for (name, kind, expected) in [
            ("a.example", TYPE::A, Ok(DnsAnswer::Addresses(vec!["127.0.0.1".parse().expect("an address")]))),
            ("a.example", TYPE::AAAA, Ok(DnsAnswer::Addresses(Vec::new()))),
            ("root-servers.net", TYPE::NS, Ok(DnsAnswer::Addresses(Vec::new()))),
            ("missing.example", TYPE::A, Ok(DnsAnswer::NoSuchName)),
            ("broken.example", TYPE::A, Err("server failure (SERVFAIL)")),
            ("secret.example", TYPE::A, Err("query refused (REFUSED)")),
        ] {
            let answer = query(&server.server(), server.port(), name, kind).await;
            assert_eq!(answer, expected.map_err(Unreachable::because), "{name}");
        }
        let endless = "a".repeat(64);
        let refusal = query(&server.server(), server.port(), &endless, TYPE::A).await.expect_err("too long");
        assert!(refusal.why.ends_with("is not a DNS name"), "{refusal:?}");
    }

    #[tokio::test]
    async fn queries_go_over_ipv6_and_by_an_interface_as_well() {
        let server = Responder::start("::1").await;
        let known = Ok(DnsAnswer::Addresses(vec!["127.0.0.1".parse().expect("an address")]));
        let on_lo = NameServer { interface: Some("lo".to_owned()), ..server.server() };
        assert_eq!(query(&server.server(), server.port(), "a.example", TYPE::A).await, known);
        assert_eq!(query(&on_lo, server.port(), "a.example", TYPE::A).await, known);
    }

    #[tokio::test]
    async fn a_response_to_another_query_is_ignored() {
        let server = Responder::start("127.0.0.1").await;
        let answer = query(&server.server(), server.port(), "confused.example", TYPE::A).await;
        assert_eq!(answer, Err(Unreachable::because("no answer")));
    }

    #[tokio::test]
    async fn a_closed_port_is_reported_at_once() {
        let gone = Responder::start("127.0.0.1").await;
        let (server, port) = (gone.server(), gone.port());
        gone.stop().await;
        let answer = query(&server, port, "a.example", TYPE::A).await;
        assert_eq!(answer, Err(Unreachable::because("connection refused")));
    }

    #[test]
    fn a_truncated_response_is_accepted_and_a_malformed_one_is_not() {
        let mut reply = Packet::new_reply(7);
        reply.set_flags(PacketFlag::TRUNCATION);
        let mut cut = reply.build_bytes_vec().expect("well-formed");
        cut[7] = 1;
        assert_eq!(decode(&cut), Ok(DnsAnswer::Addresses(Vec::new())), "one record announced, none present");
        cut[2] &= !2;
        assert_eq!(decode(&cut), Err(Unreachable::because("a malformed response")));
        assert!(is_response(&cut, 7));
        assert!(!is_response(&cut, 8));
        assert!(
            !is_response(&encode(7, "a.example", TYPE::A).expect("a query"), 7),
            "a query is no response"
        );
        assert!(!is_response(&[7], 7));
    }
}
