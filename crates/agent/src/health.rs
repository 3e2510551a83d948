//! Whether the process is well, for whoever watches over it.
//!
//! `/healthz` is bad when a loop has not shown itself for longer than it may take: starting anew is the cure then.
//! `/readyz` is good once the node is looked after. Neither asks anybody anything, so an API server that is gone makes
//! no handler restart.

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

/// The facts. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Health(Arc<Facts>);

#[derive(Debug, Default)]
struct Facts {
    ready: AtomicBool,
    loops: Mutex<BTreeMap<&'static str, Pulse>>,
}

#[derive(Clone, Copy, Debug)]
struct Pulse {
    last: Instant,
    limit: Duration,
}

/// One loop's way to show that it is alive. A loop that has ended on purpose drops it.
#[derive(Debug)]
pub struct Heartbeat {
    health: Health,
    name: &'static str,
}

impl Health {
    pub fn set_ready(&self, ready: bool) {
        self.0.ready.store(ready, Ordering::Relaxed);
    }

    pub fn is_ready(&self) -> bool {
        self.0.ready.load(Ordering::Relaxed)
    }

    /// Expects a sign of life of this loop at least every `limit`, from now on.
    pub fn expect(&self, name: &'static str, limit: Duration) -> Heartbeat {
        self.loops(|loops| loops.insert(name, Pulse { last: Instant::now(), limit }));
        Heartbeat { health: self.clone(), name }
    }

    /// The loops that have not shown themselves in time.
    pub fn hung(&self) -> Vec<&'static str> {
        let is_hung = |pulse: &Pulse| pulse.last.elapsed() > pulse.limit;
        self.loops(|loops| loops.iter().filter(|(_, pulse)| is_hung(pulse)).map(|(name, _)| *name).collect())
    }

    fn loops<T>(&self, use_them: impl FnOnce(&mut BTreeMap<&'static str, Pulse>) -> T) -> T {
        use_them(&mut self.0.loops.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Heartbeat {
    pub fn beat(&self) {
        self.health.loops(|loops| {
            if let Some(pulse) = loops.get_mut(self.name) {
                pulse.last = Instant::now();
            }
        });
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.health.loops(|loops| loops.remove(self.name));
    }
}

/// Answers `/healthz` and `/readyz` until it is dropped; the address is told once it can be asked.
pub async fn serve(address: SocketAddr, health: Health) -> io::Result<Server> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    let routes =
        Router::new().route("/healthz", get(healthz)).route("/readyz", get(readyz)).with_state(health);
    let task = tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, routes).await {
            tracing::error!("the health endpoint has ended: {error}");
        }
    });
    Ok(Server { address, task })
}

/// A running endpoint.
#[derive(Debug)]
pub struct Server {
    pub address: SocketAddr,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn healthz(State(health): State<Health>) -> (StatusCode, String) {
    let hung = health.hung();
    if hung.is_empty() {
        (StatusCode::OK, "ok\n".to_owned())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, format!("no sign of life from: {}\n", hung.join(", ")))
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

    async fn ask(server: &Server, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    async fn server(health: &Health) -> Server {
        serve("127.0.0.1:0".parse().unwrap(), health.clone()).await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_hangs_is_named() {
        let health = Health::default();
        let server = server(&health).await;
        let quick = health.expect("quick", Duration::from_secs(10));
        let slow = health.expect("slow", Duration::from_mins(1));
        assert_eq!(ask(&server, "/healthz").await, (200, "ok\n".to_owned()));

        advance(Duration::from_secs(11)).await;
        assert_eq!(ask(&server, "/healthz").await, (503, "no sign of life from: quick\n".to_owned()));
        quick.beat();
        assert_eq!(ask(&server, "/healthz").await.0, 200);

        advance(Duration::from_secs(61)).await;
        assert_eq!(ask(&server, "/healthz").await.1, "no sign of life from: quick, slow\n");
        drop((quick, slow));
        assert_eq!(ask(&server, "/healthz").await.0, 200, "who has ended is not expected any more");
    }

    #[tokio::test]
    async fn it_is_ready_when_it_is_said_to_be() {
        let health = Health::default();
        let server = server(&health).await;
        assert_eq!(ask(&server, "/readyz").await.0, 503);
        health.set_ready(true);
        assert_eq!(ask(&server, "/readyz").await.0, 200);
        assert_eq!(ask(&server, "/other").await.0, 404);
    }
}
