//! A connection with limits: of the time without a request, and of the time of a whole request.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    time::{Instant, Sleep, sleep},
};

use crate::connections::{Connections, Place};

/// `accept` fails for reasons of the machine, such as too many open files, which a retry at once does not change.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(500);

/// The limits of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeLimits {
    /// How long no request may begin.
    pub idle: Duration,
    /// How long one request may take, from its first byte to the first byte of the response.
    pub request: Duration,
}

/// Waits for the next connection and a place for it. `waiting` keeps a connection that has no place yet, so that none is
/// lost when this is dropped.
pub(crate) async fn admit(
    listener: &TcpListener,
    waiting: &mut Option<(TcpStream, SocketAddr)>,
    connections: &Connections,
) -> (TcpStream, SocketAddr, Place) {
    loop {
        if let Some((stream, address)) = waiting.take() {
            if let Some(place) = connections.enter(address.ip()) {
                return (stream, address, place);
            }
            *waiting = Some((stream, address));
            connections.changed().await;
            continue;
        }
        match listener.accept().await {
            Ok(accepted) => *waiting = Some(accepted),
            Err(error) => {
                tracing::warn!("cannot accept a connection: {error}");
                sleep(PAUSE_AFTER_ERROR).await;
            }
        }
    }
}

/// A connection that ends when it reaches a limit, or when its place is taken away.
#[derive(Debug)]
pub(crate) struct Connection<S> {
    stream: S,
    place: Place,
    limits: TimeLimits,
    /// Whether something was read since the last response.
    in_request: bool,
    end: Pin<Box<Sleep>>,
}

impl<S> Connection<S> {
    pub(crate) fn new(stream: S, place: Place, limits: TimeLimits) -> Self {
        Self { stream, place, limits, in_request: false, end: Box::pin(sleep(limits.idle)) }
    }

    fn set_in_request(&mut self, in_request: bool) {
        if self.in_request != in_request {
            self.in_request = in_request;
            self.place.set_busy(in_request);
            let limit = if in_request { self.limits.request } else { self.limits.idle };
            self.end.as_mut().reset(Instant::now() + limit);
        }
    }

    /// Pending unless the connection has to end.
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        if self.place.poll_taken(context).is_ready() {
            return Poll::Ready(io::ErrorKind::ConnectionAborted.into());
        }
        self.end.as_mut().poll(context).map(|()| io::ErrorKind::TimedOut.into())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Connection<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if let Poll::Ready(error) = this.poll_end(context) {
            return Poll::Ready(Err(error));
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            this.set_in_request(true);
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Connection<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        if let Poll::Ready(error) = this.poll_end(context) {
            return Poll::Ready(Err(error));
        }
        let written = Pin::new(&mut this.stream).poll_write(context, bytes);
        if matches!(written, Poll::Ready(Ok(count)) if count > 0) {
            this.set_in_request(false);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if let Poll::Ready(error) = this.poll_end(context) {
            return Poll::Ready(Err(error));
        }
        Pin::new(&mut this.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
        time::advance,
    };

    use super::*;

    const LIMITS: TimeLimits =
        TimeLimits { idle: Duration::from_secs(100), request: Duration::from_secs(20) };

    fn connection() -> (DuplexStream, Connection<DuplexStream>) {
        let (client, server) = duplex(64);
        let place = Connections::at_most(1).enter([10, 0, 0, 1].into()).expect("there is room");
        (client, Connection::new(server, place, LIMITS))
    }

    /// How long the connection lasts while the client sends a byte every so many seconds.
    async fn lasts(every: u64) -> u64 {
        let (mut client, mut connection) = connection();
        let began = Instant::now();
        loop {
            tokio::select! {
                biased;
                read = connection.read_u8() => if let Err(error) = read {
                    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
                    return began.elapsed().as_secs();
                },
                () = sleep(Duration::from_secs(every)) => client.write_all(b"x").await.expect("sent"),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_has_to_be_complete_in_time_however_many_bytes_come() {
        assert_eq!(lasts(1000).await, 100, "nothing is sent");
        assert_eq!(lasts(5).await, 25, "from the first byte on");
        assert_eq!(lasts(60).await, 80);
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_ends_a_request() {
        let (mut client, mut connection) = connection();
        for _ in 0..10 {
            client.write_all(b"x").await.expect("sent");
            connection.read_u8().await.expect("a request");
            advance(Duration::from_secs(19)).await;
            connection.write_all(b"y").await.expect("in time");
            advance(Duration::from_secs(99)).await;
        }
        client.write_all(b"x").await.expect("sent");
        connection.read_u8().await.expect("a request");
        advance(Duration::from_secs(21)).await;
        let error = connection.write_all(b"y").await.expect_err("too late");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_ends_when_its_place_is_taken_away() {
        let connections = Connections::at_most(1);
        let (_client, server) = duplex(64);
        let place = connections.enter([10, 0, 0, 1].into()).expect("there is room");
        let mut connection = Connection::new(server, place, LIMITS);
        let reading = tokio::spawn(async move { connection.read_u8().await.map_err(|error| error.kind()) });
        tokio::task::yield_now().await;
        let _new = connections.enter([10, 0, 0, 2].into()).expect("its place");
        assert_eq!(reading.await.expect("no panic"), Err(io::ErrorKind::ConnectionAborted));
    }
}
