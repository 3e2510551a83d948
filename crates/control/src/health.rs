//! `/healthz` and `/readyz` for kubelet, on a port of their own, without TLS: clients of the webhook cannot occupy it, and
//! it responds before there is a certificate.
//!
//! `/healthz` fails when a loop hangs, which a restart cures; an outage of the API server is no reason. `/readyz` passes
//! once there is a certificate to serve.

use std::{io, net::SocketAddr, time::Duration};

use axum::{Router, http::StatusCode, routing::get, serve::Listener};
use knmstate_client::progress::Progress;
use tokio::net::{TcpListener, TcpStream};

use crate::{
    certificates::ServedCertificate,
    connection::{Connection, TimeLimits, admit},
    connections::Connections,
};

/// Kubelet opens a connection for each check.
const MAX_CONNECTIONS: usize = 64;
const LIMITS: TimeLimits = TimeLimits { idle: Duration::from_secs(10), request: Duration::from_secs(10) };

/// What the health of a controller depends on.
#[derive(Clone, Debug)]
pub(crate) struct Health {
    pub progress: Progress,
    /// The certificate without which nothing can be served; `None` if nothing is to be.
    pub certificate: Option<ServedCertificate>,
}

impl Health {
    pub(crate) fn router(&self) -> Router {
        let (live, ready) = (self.clone(), self.clone());
        Router::new()
            .route("/healthz", get(async move || live.healthz()))
            .route("/readyz", get(async move || ready.readyz()))
    }

    fn healthz(&self) -> (StatusCode, String) {
        let hung = self.progress.hung();
        if hung.is_empty() {
            return (StatusCode::OK, "ok\n".to_owned());
        }
        (StatusCode::SERVICE_UNAVAILABLE, format!("not responding: {}\n", hung.join(", ")))
    }

    fn readyz(&self) -> (StatusCode, &'static str) {
        if self.certificate.as_ref().is_none_or(ServedCertificate::is_ready) {
            (StatusCode::OK, "ok\n")
        } else {
            (StatusCode::SERVICE_UNAVAILABLE, "there is no certificate yet\n")
        }
    }
}

/// Accepts connections without TLS.
#[derive(Debug)]
pub(crate) struct PlainListener {
    listener: TcpListener,
    connections: Connections,
    waiting: Option<(TcpStream, SocketAddr)>,
}

impl PlainListener {
    pub(crate) fn new(listener: TcpListener) -> Self {
        Self { listener, connections: Connections::at_most(MAX_CONNECTIONS), waiting: None }
    }
}

impl Listener for PlainListener {
    type Io = Connection<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        let (stream, address, place) = admit(&self.listener, &mut self.waiting, &self.connections).await;
        (Connection::new(stream, place, LIMITS), address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn health(certificate: Option<ServedCertificate>) -> Health {
        Health { progress: Progress::default(), certificate }
    }

    #[tokio::test(start_paused = true)]
    async fn a_hung_loop_is_named() {
        let health = health(None);
        let _turn = health.progress.begin("leader", Duration::from_mins(1));
        assert_eq!(health.healthz().0, StatusCode::OK);
        advance(Duration::from_secs(61)).await;
        assert_eq!(
            health.healthz(),
            (StatusCode::SERVICE_UNAVAILABLE, "not responding: leader\n".to_owned())
        );
    }

    #[test]
    fn it_is_ready_when_what_it_serves_has_a_certificate() {
        assert_eq!(health(None).readyz().0, StatusCode::OK);
        let without = health(Some(ServedCertificate::new()));
        assert_eq!(without.readyz().0, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(without.healthz().0, StatusCode::OK, "a restart would not help");
    }
}
