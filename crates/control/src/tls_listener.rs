//! TLS below HTTP: concurrent handshakes, each with a deadline, so that a slow client does not delay others.

use std::{io, net::SocketAddr, time::Duration};

use axum::serve::Listener;
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use crate::{
    connection::{Connection, TimeLimits, admit},
    connections::{Connections, Place},
    tls::Tls,
};

/// How many connections may be open at the same time.
const MAX_CONNECTIONS: usize = 256;
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
const LIMITS: TimeLimits = TimeLimits {
    // Longer than the API server keeps an idle connection, so that it is normally the one to close it.
    idle: Duration::from_mins(3),
    // Longer than the API server waits for a response.
    request: Duration::from_secs(20),
};

/// Accepts connections and does their TLS handshakes.
#[derive(Debug)]
pub(crate) struct TlsListener {
    listener: TcpListener,
    tls: Tls,
    connections: Connections,
    waiting: Option<(TcpStream, SocketAddr)>,
    handshakes: JoinSet<Option<(Connection<TlsStream<TcpStream>>, SocketAddr)>>,
}

impl TlsListener {
    pub(crate) fn new(listener: TcpListener, tls: Tls) -> Self {
        Self {
            listener,
            tls,
            connections: Connections::at_most(MAX_CONNECTIONS),
            waiting: None,
            handshakes: JoinSet::new(),
        }
    }
}

async fn handshake(
    stream: TcpStream,
    address: SocketAddr,
    mut place: Place,
    acceptor: TlsAcceptor,
) -> Option<(Connection<TlsStream<TcpStream>>, SocketAddr)> {
    let accepted = tokio::select! {
        accepted = timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)) => accepted,
        () = std::future::poll_fn(|context| place.poll_taken(context)) => return None,
    };
    match accepted {
        Ok(Ok(stream)) => return Some((Connection::new(stream, place, LIMITS), address)),
        Ok(Err(error)) => tracing::debug!("TLS handshake with {address} failed: {error}"),
        Err(_) => tracing::debug!("no TLS handshake with {address} within {} s", HANDSHAKE_TIMEOUT.as_secs()),
    }
    None
}

impl Listener for TlsListener {
    type Io = Connection<TlsStream<TcpStream>>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        loop {
            tokio::select! {
                Some(ended) = self.handshakes.join_next() => {
                    // One that has panicked was the only one of its connection.
                    if let Ok(Some(ready)) = ended {
                        return ready;
                    }
                }
                (stream, address, place) = admit(&self.listener, &mut self.waiting, &self.connections) => {
                    let acceptor = TlsAcceptor::from(self.tls.configuration());
                    self.handshakes.spawn(handshake(stream, address, place, acceptor));
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}
