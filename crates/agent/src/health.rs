//! Whether the process is healthy, for kubelet.
//!
//! `/healthz` fails when a loop has run for longer than it may: a restart is the remedy then. `/readyz` passes once the
//! network of the node is reported, and fails while the process is well but cannot do its work, as with a full disk.
//! Neither depends on the API server, so an outage of the API server restarts no handler.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
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
    details: Mutex<Details>,
}

#[derive(Debug, Default)]
struct Details {
    /// Why the work cannot be done, although the process is well.
    problem: Option<String>,
    /// The work in progress, by a number of its own.
    work: BTreeMap<u64, Work>,
    last: u64,
    monitors: Vec<Monitor>,
}

#[derive(Clone, Copy, Debug)]
struct Work {
    name: &'static str,
    start: Instant,
    limit: Duration,
}

/// Names the threads of another part that hang.
struct Monitor(Box<dyn Fn() -> Vec<&'static str> + Send + Sync>);

impl fmt::Debug for Monitor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Monitor")
    }
}

/// Work that has to end within its limit. Dropping this ends it.
#[derive(Debug)]
pub(crate) struct WorkInProgress {
    health: Health,
    number: u64,
}

impl Health {
    /// Sets the result of `/readyz`.
    pub fn set_ready(&self, ready: bool) {
        self.0.ready.store(ready, Ordering::Relaxed);
    }

    /// Asks a part with threads of its own, at each request for `/healthz`, which of them hang.
    pub fn monitor(&self, hung: impl Fn() -> Vec<&'static str> + Send + Sync + 'static) {
        self.details().monitors.push(Monitor(Box::new(hung)));
    }

    /// Sets why the work cannot be done; `None` when it can. `/readyz` fails with it.
    pub(crate) fn set_problem(&self, problem: Option<String>) {
        self.details().problem = problem;
    }

    /// Why `/readyz` fails; `None` if it passes.
    pub(crate) fn not_ready(&self) -> Option<String> {
        if !self.0.ready.load(Ordering::Relaxed) {
            return Some("not ready yet".to_owned());
        }
        self.details().problem.clone()
    }

    /// Begins work that has to end within `limit`. Until then `/healthz` passes.
    pub(crate) fn expect(&self, name: &'static str, limit: Duration) -> WorkInProgress {
        let mut details = self.details();
        details.last += 1;
        let number = details.last;
        details.work.insert(number, Work { name, start: Instant::now(), limit });
        WorkInProgress { health: self.clone(), number }
    }

    /// The loops whose work takes longer than its limit.
    pub(crate) fn hung(&self) -> Vec<&'static str> {
        let details = self.details();
        let late = details.work.values().filter(|work| work.start.elapsed() > work.limit);
        let elsewhere = details.monitors.iter().flat_map(|monitor| (monitor.0)());
        let hung: BTreeSet<&'static str> = late.map(|work| work.name).chain(elsewhere).collect();
        hung.into_iter().collect()
    }

    fn details(&self) -> MutexGuard<'_, Details> {
        self.0.details.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WorkInProgress {
    fn drop(&mut self) {
        self.health.details().work.remove(&self.number);
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

impl HealthServer {
    /// Waits until it no longer answers, which only a bug can cause.
    pub async fn ended(&mut self) {
        let _ = (&mut self.task).await;
    }
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

async fn readyz(State(health): State<Health>) -> (StatusCode, String) {
    match health.not_ready() {
        None => (StatusCode::OK, "ok\n".to_owned()),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
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
        // Begun again before the end of the time before: that one does not end this one.
        let again = health.expect("slow", Duration::from_mins(1));
        drop((quick, slow));
        assert_eq!(ask(&server, "/healthz").await.0, 200, "work that has ended does not count");
        advance(Duration::from_secs(61)).await;
        assert_eq!(ask(&server, "/healthz").await.1, "not responding: slow\n");
        drop(again);
    }

    #[tokio::test]
    async fn threads_of_other_parts_count() {
        let health = Health::default();
        let server = server(&health).await;
        let hangs = Arc::new(AtomicBool::new(false));
        let thread = hangs.clone();
        health.monitor(move || if thread.load(Ordering::Relaxed) { vec!["thread"] } else { Vec::new() });
        assert_eq!(ask(&server, "/healthz").await.0, 200);
        hangs.store(true, Ordering::Relaxed);
        assert_eq!(ask(&server, "/healthz").await, (503, "not responding: thread\n".to_owned()));
    }

    #[tokio::test]
    async fn it_is_ready_when_it_is_set_ready() {
        let health = Health::default();
        let server = server(&health).await;
        assert_eq!(ask(&server, "/readyz").await.0, 503);
        health.set_ready(true);
        assert_eq!(ask(&server, "/readyz").await.0, 200);
        health.set_problem(Some("the disk is full".to_owned()));
        assert_eq!(ask(&server, "/readyz").await, (503, "the disk is full\n".to_owned()));
        assert_eq!(ask(&server, "/healthz").await.0, 200, "a restart would not help");
        health.set_problem(None);
        assert_eq!(ask(&server, "/readyz").await.0, 200);
        assert_eq!(ask(&server, "/other").await.0, 404);
    }
}
