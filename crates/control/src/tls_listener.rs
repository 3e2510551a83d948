//! TLS under HTTP: handshakes happen beside each other, within a time, and never hold up whoever comes next.

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

/// Connections that may be open at once; whoever comes after them waits in the kernel's queue.
const CONNECTIONS: usize = 256;
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// Longer than the API server keeps a connection that it does not use, so that it is always the one to close it.
const IDLE_LIMIT: Duration = Duration::from_mins(3);
/// Errors of accept are those of the machine, such as too many open files; they pass, or not, by themselves.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(500);

/// Accepts connections and speaks TLS on them. It stops when it is dropped.
#[derive(Debug)]
pub struct TlsListener {
    ready: mpsc::Receiver<(Connection, SocketAddr)>,
    local: SocketAddr,
    _accepting: JoinSet<()>,
}

impl TlsListener {
    pub fn start(listener: TcpListener, tls: Tls) -> io::Result<Self> {
        let local = listener.local_addr()?;
        let (send, ready) = mpsc::channel(CONNECTIONS);
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, tls, send));
        Ok(Self { ready, local, _accepting: accepting })
    }
}

async fn accept(listener: TcpListener, tls: Tls, ready: mpsc::Sender<(Connection, SocketAddr)>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
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
    match timeout(HANDSHAKE_LIMIT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => {
            let idle = Box::pin(sleep(IDLE_LIMIT));
            let _ = ready.send((Connection { stream, idle, _place: place }, address)).await;
        }
        Ok(Err(error)) => tracing::debug!("no TLS with {address}: {error}"),
        Err(_) => tracing::debug!("no TLS with {address} within {} s", HANDSHAKE_LIMIT.as_secs()),
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
pub struct Connection {
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
                this.idle.as_mut().reset(Instant::now() + IDLE_LIMIT);
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
