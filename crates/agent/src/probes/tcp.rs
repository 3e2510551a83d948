//! Opens a TCP connection, and closes it again.

use std::{net::SocketAddr, time::Duration};

use tokio::{net::TcpStream, time::timeout};

use super::attempt_error::Unreachable;

/// How long the connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Opens a new connection.
pub(super) async fn connect(to: SocketAddr) -> Result<TcpStream, Unreachable> {
    match timeout(CONNECT_TIMEOUT, TcpStream::connect(to)).await {
        Ok(connected) => Ok(connected?),
        Err(_) => Err(Unreachable::because("no answer")),
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_port_is_open_while_a_server_listens() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        assert!(connect(address).await.is_ok());
        drop(listener);
        let refused = connect(address).await.expect_err("no server listens");
        assert_eq!(refused, Unreachable::because("connection refused"));
    }
}
