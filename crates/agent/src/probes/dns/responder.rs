//! A name server for tests: one socket on this machine that resolves some names under `example`.

use std::net::{IpAddr, Ipv4Addr};

use knmstate_core::probes::NameServer;
use simple_dns::{
    CLASS, Packet, QTYPE, RCODE, ResourceRecord, TYPE,
    rdata::{A, RData},
};
use tokio::{net::UdpSocket, task::JoinHandle};

#[derive(Debug)]
pub(in super::super) struct Responder {
    address: std::net::SocketAddr,
    task: JoinHandle<()>,
}

impl Responder {
    pub(in super::super) async fn start(address: &str) -> Self {
        let address: IpAddr = address.parse().expect("an address");
        let socket = UdpSocket::bind((address, 0)).await.expect("a port of this machine");
        let address = socket.local_addr().expect("bound");
        Self { address, task: tokio::spawn(serve(socket)) }
    }

    pub(in super::super) fn server(&self) -> NameServer {
        NameServer { address: self.address.ip(), interface: None }
    }

    pub(in super::super) fn port(&self) -> u16 {
        self.address.port()
    }

    /// Closes the port.
    pub(in super::super) async fn stop(self) {
        self.task.abort();
        self.task.await.expect_err("it was stopped");
    }
}

async fn serve(socket: UdpSocket) {
    let mut buffer = [0; 512];
    while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
        if let Some(reply) = reply(&buffer[..length]) {
            socket.send_to(&reply, from).await.ok();
        }
    }
}

fn reply(query: &[u8]) -> Option<Vec<u8>> {
    let query = Packet::parse(query).ok()?;
    let question = query.questions.first()?;
    let name = question.qname.to_string();
    let wants_a = question.qtype == QTYPE::TYPE(TYPE::A);
    let id = if name == "confused.example" { !query.id() } else { query.id() };
    let mut reply = Packet::new_reply(id);
    *reply.rcode_mut() = match name.as_str() {
        "missing.example" => RCODE::NameError,
        "broken.example" => RCODE::ServerFailure,
        "secret.example" => RCODE::Refused,
        _ => RCODE::NoError,
    };
    reply.questions.push(question.clone());
    if *reply.rcode_mut() == RCODE::NoError && wants_a && name.ends_with(".example") {
        let a = A { address: Ipv4Addr::LOCALHOST.into() };
        reply.answers.push(ResourceRecord::new(question.qname.clone(), CLASS::IN, 60, RData::A(a)));
    }
    reply.build_bytes_vec().ok()
}
