//! A connection that is opened, and closed again.

use std::{net::SocketAddr, time::Duration};

use tokio::{net::TcpStream, time::timeout};

use super::trouble::Unreached;

/// How long one try may take.
const CONNECT: Duration = Duration::from_secs(2);

pub(super) async fn connect(to: SocketAddr) -> Result<TcpStream, Unreached> {
    match timeout(CONNECT, TcpStream::connect(to)).await {
        Ok(connected) => Ok(connected?),
        Err(_) => Err(Unreached::because("no answer")),
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_port_is_open_while_somebody_listens() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        assert!(connect(address).await.is_ok());
        drop(listener);
        let refused = connect(address).await.expect_err("nobody listens");
        assert_eq!(refused, Unreached::because("connection refused"));
    }
}
