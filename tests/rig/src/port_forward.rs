//! Forwards TCP connections to a server in a lab: from the machine's loopback, for the test and kubectl, or from
//! another address of the lab.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Result;
use tokio::{net::TcpListener, task::JoinSet};

use crate::netns::Sockets;

/// Forwards connections until it is dropped.
#[derive(Debug)]
pub struct PortForward {
    pub(crate) local: SocketAddr,
    _accepting: JoinSet<()>,
}

impl PortForward {
    /// Listens on a free port of the machine's loopback.
    pub(crate) async fn from_loopback(sockets: Sockets, target: SocketAddr) -> Result<Self> {
        Self::from_listener(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?, sockets, target)
    }

    /// Accepts connections of this listener.
    pub(crate) fn from_listener(listener: TcpListener, sockets: Sockets, target: SocketAddr) -> Result<Self> {
        let local = listener.local_addr()?;
        let mut accepting = JoinSet::new();
        accepting.spawn(async move {
            // Dropping the task drops the set, which ends its connections.
            let mut connections = JoinSet::new();
            while let Ok((mut outside, _)) = listener.accept().await {
                let sockets = sockets.clone();
                connections.spawn(async move {
                    // If the target refuses, the client sees a closed connection.
                    if let Ok(mut inside) = sockets.connect(target).await {
                        let _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
                    }
                });
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self { local, _accepting: accepting })
    }
}
