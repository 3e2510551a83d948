//! A door to a server in a lab: from the machine's loopback, so that a test, or kubectl, reaches it, or from another
//! address of the lab.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Result;
use tokio::{net::TcpListener, task::JoinSet};

use crate::netns::Sockets;

/// Forwards connections for as long as it lives.
#[derive(Debug)]
pub struct Forward {
    pub local: SocketAddr,
    _accepting: JoinSet<()>,
}

impl Forward {
    pub async fn to(sockets: Sockets, target: SocketAddr) -> Result<Self> {
        Self::from(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?, sockets, target)
    }

    pub fn from(listener: TcpListener, sockets: Sockets, target: SocketAddr) -> Result<Self> {
        let local = listener.local_addr()?;
        let mut accepting = JoinSet::new();
        accepting.spawn(async move {
            // The set dies with this task, and the connections with the set.
            let mut connections = JoinSet::new();
            while let Ok((mut outside, _)) = listener.accept().await {
                let sockets = sockets.clone();
                connections.spawn(async move {
                    // A target that refuses shows itself as a closed connection, as it would without the door.
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
