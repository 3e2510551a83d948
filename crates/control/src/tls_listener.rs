//! TLS below HTTP: concurrent handshakes, each with a deadline, so that a slow client does not delay others.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::serve::Listener;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    task::JoinSet,
    time::{Instant, Sleep, sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use crate::tls::Tls;

/// How many connections may be open at the same time; further ones wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 256;
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Longer than the API server keeps an idle connection, so that it is always the one to close it.
const IDLE_TIMEOUT: Duration = Duration::from_mins(3);
/// `accept` fails for reasons of the machine, such as too many open files, which a retry at once does not change.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(500);

/// Accepts connections and does their TLS handshakes. It stops when it is dropped.
#[derive(Debug)]
pub(crate) struct TlsListener {
    ready: mpsc::Receiver<(Connection, SocketAddr)>,
    local: SocketAddr,
    _accepting: JoinSet<()>,
}

impl TlsListener {
    pub(crate) fn start(listener: TcpListener, tls: Tls) -> io::Result<Self> {
        let local = listener.local_addr()?;
        let (send, ready) = mpsc::channel(MAX_CONNECTIONS);
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, tls, send));
        Ok(Self { ready, local, _accepting: accepting })
    }
}

async fn accept(listener: TcpListener, tls: Tls, ready: mpsc::Sender<(Connection, SocketAddr)>) {
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    // The handshakes end with this task.
    let mut handshakes = JoinSet::new();
    loop {
        let Ok(place) = room.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, address)) => {
                let acceptor = TlsAcceptor::from(tls.configuration());
                handshakes.spawn(handshake(stream, address, acceptor, place, ready.clone()));
            }
            Err(error) => {
                tracing::warn!("cannot accept a connection: {error}");
                sleep(PAUSE_AFTER_ERROR).await;
            }
        }
        while handshakes.try_join_next().is_some() {}
    }
}

async fn handshake(
    stream: TcpStream,
    address: SocketAddr,
    acceptor: TlsAcceptor,
    place: OwnedSemaphorePermit,
    ready: mpsc::Sender<(Connection, SocketAddr)>,
) {
    match timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => {
            let idle = Box::pin(sleep(IDLE_TIMEOUT));
            let _ = ready.send((Connection { stream, idle, _place: place }, address)).await;
        }
        Ok(Err(error)) => tracing::debug!("TLS handshake with {address} failed: {error}"),
        Err(_) => tracing::debug!("no TLS handshake with {address} within {} s", HANDSHAKE_TIMEOUT.as_secs()),
    }
}

impl Listener for TlsListener {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        match self.ready.recv().await {
            Some(connection) => connection,
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.local)
    }
}

/// A connection that ends when nothing was read from it for too long.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TlsStream<TcpStream>,
    idle: Pin<Box<Sleep>>,
    _place: OwnedSemaphorePermit,
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        match Pin::new(&mut this.stream).poll_read(context, buffer) {
            Poll::Ready(read) => {
                this.idle.as_mut().reset(Instant::now() + IDLE_TIMEOUT);
                Poll::Ready(read)
            }
            Poll::Pending => match this.idle.as_mut().poll(context) {
                Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
                Poll::Pending => Poll::Pending,
            },
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
