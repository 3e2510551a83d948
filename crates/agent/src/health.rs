//! Whether the process is healthy, for kubelet.
//!
//! `/healthz` fails when a loop has run for longer than it may: a restart is the remedy then. `/readyz` passes once the
//! network of the node is reported. Neither depends on the API server, so an outage of the API server restarts no
//! handler.

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{Router, extract::State, http::StatusCode, routing::get};
use tokio::{net::TcpListener, time::Instant};

/// The health of the process. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Health(Arc<SharedHealth>);

#[derive(Debug, Default)]
struct SharedHealth {
    ready: AtomicBool,
    loops: Mutex<BTreeMap<&'static str, Deadline>>,
}

#[derive(Clone, Copy, Debug)]
struct Deadline {
    start: Instant,
    limit: Duration,
}

/// Work that has to end within its limit. Dropping this ends it.
#[derive(Debug)]
pub(crate) struct WorkInProgress {
    health: Health,
    name: &'static str,
}

impl Health {
    /// Sets the result of `/readyz`.
    pub fn set_ready(&self, ready: bool) {
        self.0.ready.store(ready, Ordering::Relaxed);
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.0.ready.load(Ordering::Relaxed)
    }

    /// Begins work that has to end within `limit`. Until then `/healthz` passes.
    pub(crate) fn expect(&self, name: &'static str, limit: Duration) -> WorkInProgress {
        self.with_loops(|loops| loops.insert(name, Deadline { start: Instant::now(), limit }));
        WorkInProgress { health: self.clone(), name }
    }

    /// The loops whose work takes longer than its limit.
    pub(crate) fn hung(&self) -> Vec<&'static str> {
        let is_hung = |work: &Deadline| work.start.elapsed() > work.limit;
        self.with_loops(|loops| {
            loops.iter().filter(|(_, work)| is_hung(work)).map(|(name, _)| *name).collect()
        })
    }

    fn with_loops<T>(&self, f: impl FnOnce(&mut BTreeMap<&'static str, Deadline>) -> T) -> T {
        f(&mut self.0.loops.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for WorkInProgress {
    fn drop(&mut self) {
        self.health.with_loops(|loops| loops.remove(self.name));
    }
}

/// Serves `/healthz` and `/readyz` until the result is dropped. Returns when the server listens; fails when it cannot.
pub async fn serve_health(address: SocketAddr, health: Health) -> io::Result<HealthServer> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    let routes =
        Router::new().route("/healthz", get(healthz)).route("/readyz", get(readyz)).with_state(health);
    let task = tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, routes).await {
            tracing::error!("the health endpoint has ended: {error}");
        }
    });
    Ok(HealthServer { address, task })
}

/// A running health endpoint; dropping it stops it.
#[derive(Debug)]
pub struct HealthServer {
    /// The address that it listens on.
    pub address: SocketAddr,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for HealthServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn healthz(State(health): State<Health>) -> (StatusCode, String) {
    let hung = health.hung();
    if hung.is_empty() {
        (StatusCode::OK, "ok\n".to_owned())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, format!("not responding: {}\n", hung.join(", ")))
    }
}

async fn readyz(State(health): State<Health>) -> (StatusCode, &'static str) {
    if health.is_ready() {
        (StatusCode::OK, "ok\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready yet\n")
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpStream,
        time::advance,
    };

    use super::*;

    async fn ask(server: &HealthServer, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    async fn server(health: &Health) -> HealthServer {
        serve_health("127.0.0.1:0".parse().unwrap(), health.clone()).await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_hangs_is_named() {
        let health = Health::default();
        let server = server(&health).await;
        let quick = health.expect("quick", Duration::from_secs(10));
        let slow = health.expect("slow", Duration::from_mins(1));
        assert_eq!(ask(&server, "/healthz").await, (200, "ok\n".to_owned()));

        advance(Duration::from_secs(11)).await;
        assert_eq!(ask(&server, "/healthz").await, (503, "not responding: quick\n".to_owned()));
        drop(quick);
        let quick = health.expect("quick", Duration::from_secs(10));
        assert_eq!(ask(&server, "/healthz").await.0, 200);

        advance(Duration::from_secs(61)).await;
        assert_eq!(ask(&server, "/healthz").await.1, "not responding: quick, slow\n");
        drop((quick, slow));
        assert_eq!(ask(&server, "/healthz").await.0, 200, "work that has ended does not count");
    }

    #[tokio::test]
    async fn it_is_ready_when_it_is_set_ready() {
        let health = Health::default();
        let server = server(&health).await;
        assert_eq!(ask(&server, "/readyz").await.0, 503);
        health.set_ready(true);
        assert_eq!(ask(&server, "/readyz").await.0, 200);
        assert_eq!(ask(&server, "/other").await.0, 404);
    }
}
