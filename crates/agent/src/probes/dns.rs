//! One question to one name server.

use std::{
    hash::{BuildHasher, RandomState},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use knmstate_core::probes::Server;
use simple_dns::{CLASS, Name, Packet, PacketFlag, Question, RCODE, TYPE, header_buffer, rdata::RData};
use tokio::{net::UdpSocket, time::timeout};

use super::{address::on_link, trouble::Unreached};

/// How long an answer is waited for.
const ANSWER: Duration = Duration::from_secs(2);

/// The most that a server sends to somebody who did not ask for more.
const LONGEST: usize = 512;

/// What a server says to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The addresses among the records; there may be none.
    Addresses(Vec<IpAddr>),
    NoSuchName,
}

/// Asks one server, on a port of our own. What it has to refuse, or cannot find out, is no answer.
pub(super) async fn ask(server: &Server, port: u16, name: &str, kind: TYPE) -> Result<Answer, Unreached> {
    let id = u16::try_from(RandomState::new().hash_one(()) & 0xffff).unwrap_or_default();
    let query =
        query(id, name, kind).ok_or_else(|| Unreached::because(format!("{name:?} is not a DNS name")))?;
    let any: IpAddr = match server.address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    let interface = server.interface.as_deref();
    socket.bind_device(interface.map(str::as_bytes))?;
    socket.connect(on_link(server.address, port, interface)?).await?;
    socket.send(&query).await?;
    let mut buffer = [0; LONGEST];
    let answer = async {
        loop {
            let length = socket.recv(&mut buffer).await?;
            let message = &buffer[..length];
            if answers(message, id) {
                return read(message);
            }
        }
    };
    timeout(ANSWER, answer).await.map_err(|_| Unreached::because("no answer"))?
}

fn query(id: u16, name: &str, kind: TYPE) -> Option<Vec<u8>> {
    let mut packet = Packet::new_query(id);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    packet.questions.push(Question::new(Name::new(name).ok()?, kind.into(), CLASS::IN.into(), false));
    packet.build_bytes_vec().ok()
}

fn answers(message: &[u8], id: u16) -> bool {
    header_buffer::id(message) == Ok(id)
        && header_buffer::has_flags(message, PacketFlag::RESPONSE) == Ok(true)
}

fn read(message: &[u8]) -> Result<Answer, Unreached> {
    let unreadable = |_| Unreached::because("an answer that cannot be read");
    match header_buffer::rcode(message).map_err(unreadable)? {
        RCODE::NoError => {}
        RCODE::NameError => return Ok(Answer::NoSuchName),
        RCODE::ServerFailure => return Err(Unreached::because("it cannot find out (SERVFAIL)")),
        RCODE::Refused => return Err(Unreached::because("it does not answer to this node (REFUSED)")),
        other => return Err(Unreached::because(format!("an answer with an error ({other:?})"))),
    }
    let packet = match Packet::parse(message) {
        Ok(packet) => packet,
        // Cut off in the middle of a record. It is an answer all the same.
        Err(_) if header_buffer::has_flags(message, PacketFlag::TRUNCATION) == Ok(true) => {
            return Ok(Answer::Addresses(Vec::new()));
        }
        Err(error) => return Err(unreadable(error)),
    };
    let address = |record: &RData<'_>| match record {
        RData::A(a) => Some(Ipv4Addr::from(a.address).into()),
        RData::AAAA(aaaa) => Some(Ipv6Addr::from(aaaa.address).into()),
        _ => None,
    };
    Ok(Answer::Addresses(packet.answers.iter().filter_map(|record| address(&record.rdata)).collect()))
}

#[cfg(test)]
pub(super) mod responder;

#[cfg(test)]
mod tests {
    use super::{responder::Responder, *};

    #[tokio::test]
    async fn a_server_answers_if_it_knows_the_name_or_knows_that_there_is_none() {
        let server = Responder::start("127.0.0.1").await;
        for (name, kind, expected) in [
            ("a.example", TYPE::A, Ok(Answer::Addresses(vec!["127.0.0.1".parse().expect("an address")]))),
            ("a.example", TYPE::AAAA, Ok(Answer::Addresses(Vec::new()))),
            ("root-servers.net", TYPE::NS, Ok(Answer::Addresses(Vec::new()))),
            ("missing.example", TYPE::A, Ok(Answer::NoSuchName)),
            ("broken.example", TYPE::A, Err("it cannot find out (SERVFAIL)")),
            ("secret.example", TYPE::A, Err("it does not answer to this node (REFUSED)")),
        ] {
            let answer = ask(&server.server(), server.port(), name, kind).await;
            assert_eq!(answer, expected.map_err(Unreached::because), "{name}");
        }
        let endless = "a".repeat(64);
        let refusal = ask(&server.server(), server.port(), &endless, TYPE::A).await.expect_err("too long");
        assert!(refusal.why.ends_with("is not a DNS name"), "{refusal:?}");
    }

    #[tokio::test]
    async fn servers_are_asked_over_ipv6_and_by_a_link_as_well() {
        let server = Responder::start("::1").await;
        let known = Ok(Answer::Addresses(vec!["127.0.0.1".parse().expect("an address")]));
        let on_lo = Server { interface: Some("lo".to_owned()), ..server.server() };
        assert_eq!(ask(&server.server(), server.port(), "a.example", TYPE::A).await, known);
        assert_eq!(ask(&on_lo, server.port(), "a.example", TYPE::A).await, known);
    }

    #[tokio::test]
    async fn an_answer_to_another_question_is_not_taken() {
        let server = Responder::start("127.0.0.1").await;
        let answer = ask(&server.server(), server.port(), "confused.example", TYPE::A).await;
        assert_eq!(answer, Err(Unreached::because("no answer")));
    }

    #[tokio::test]
    async fn a_port_that_nobody_listens_on_is_told_at_once() {
        let gone = Responder::start("127.0.0.1").await;
        let (server, port) = (gone.server(), gone.port());
        gone.stop().await;
        let answer = ask(&server, port, "a.example", TYPE::A).await;
        assert_eq!(answer, Err(Unreached::because("connection refused")));
    }

    #[test]
    fn an_answer_that_was_cut_off_is_one_and_nonsense_is_none() {
        let mut reply = Packet::new_reply(7);
        reply.set_flags(PacketFlag::TRUNCATION);
        let mut cut = reply.build_bytes_vec().expect("well-formed");
        cut[7] = 1;
        assert_eq!(read(&cut), Ok(Answer::Addresses(Vec::new())), "one record announced, none there");
        cut[2] &= !2;
        assert_eq!(read(&cut), Err(Unreached::because("an answer that cannot be read")));
        assert!(answers(&cut, 7));
        assert!(!answers(&cut, 8));
        assert!(!answers(&query(7, "a.example", TYPE::A).expect("a question"), 7), "a question is no answer");
        assert!(!answers(&[7], 7));
    }
}
