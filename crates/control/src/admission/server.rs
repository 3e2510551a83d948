//! The HTTPS server of the webhooks.

use std::{future::IntoFuture as _, io, sync::Arc, time::Duration};

use axum::{
    Router,
    body::to_bytes,
    extract::Request,
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use jiff::Timestamp;
use tokio::{
    net::TcpListener,
    sync::{Semaphore, oneshot},
    time::{sleep, timeout},
};

use super::review::{Endpoint, respond};
use crate::{admission::policy_index::Latest, tls::Tls, tls_listener::TlsListener};

/// The largest request body. etcd stores objects of up to 1.5 MiB, and an update sends two.
const MAX_BODY: usize = 4 * 1024 * 1024;
/// How many reviews are worked on at the same time; further ones wait.
const MAX_CONCURRENT: usize = 16;
/// The API server gives up after ten seconds by default, so a later response is of no use.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(9);
/// How long open requests may take once the server has been asked to stop.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(10);

/// Answers admission reviews.
#[derive(Clone, Debug)]
pub struct AdmissionServer {
    index: Latest,
    now: fn() -> Timestamp,
    room: Arc<Semaphore>,
}

impl AdmissionServer {
    /// Policies are compared with those in `index`. Until there is one, responses have a warning instead.
    pub fn new(index: Latest, now: fn() -> Timestamp) -> Self {
        Self { index, now, room: Arc::new(Semaphore::new(MAX_CONCURRENT)) }
    }

    /// The paths of the webhooks, and `/readyz` and `/healthz`.
    fn router(&self) -> Router {
        let mut router =
            Router::new().route("/readyz", get(async || "ok")).route("/healthz", get(async || "ok"));
        for endpoint in Endpoint::ALL {
            let server = self.clone();
            let handler = async move |request: Request| server.respond(endpoint, request).await;
            router = router.route(endpoint.path(), post(handler));
        }
        router
    }

    async fn respond(&self, endpoint: Endpoint, request: Request) -> Response {
        match timeout(REVIEW_TIMEOUT, self.respond_in_time(endpoint, request)).await {
            Ok(response) => response,
            Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "too many admission reviews at once").into_response(),
        }
    }

    async fn respond_in_time(&self, endpoint: Endpoint, request: Request) -> Response {
        let Ok(body) = to_bytes(request.into_body(), MAX_BODY).await else {
            return (StatusCode::PAYLOAD_TOO_LARGE, "the request is too large or incomplete").into_response();
        };
        let Ok(_room) = self.room.acquire().await else {
            return StatusCode::SERVICE_UNAVAILABLE.into_response();
        };
        let index = self.index.borrow().clone();
        let now = (self.now)();
        // Comparing policies for a thousand nodes takes CPU time, which must not delay other connections.
        let work = move || respond(endpoint, &body, index.as_deref(), now);
        match tokio::task::spawn_blocking(work).await {
            Ok(Ok(review)) => match serde_json::to_vec(&review) {
                Ok(body) => ([(CONTENT_TYPE, "application/json")], body).into_response(),
                Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
            },
            Ok(Err(error)) => (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
            Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        }
    }
}

/// Serves until `stop` completes, then ends open requests within a grace period. `others` has further paths for the same
/// port, which must not overlap with those of the webhooks. Fails if the listener cannot be used.
pub async fn serve(
    listener: TcpListener,
    tls: Tls,
    admission: AdmissionServer,
    others: Router,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let listener = TlsListener::start(listener, tls)?;
    let (stop_begins, stopped) = oneshot::channel();
    let stop = async move {
        stop.await;
        let _ = stop_begins.send(());
    };
    let server = axum::serve(listener, admission.router().merge(others)).with_graceful_shutdown(stop);
    let grace_is_over = async {
        if stopped.await.is_err() {
            std::future::pending::<()>().await;
        }
        sleep(SHUTDOWN_GRACE).await;
    };
    tokio::select! {
        ended = server.into_future() => ended,
        () = grace_is_over => Ok(()),
    }
}

#[cfg(test)]
mod tests;
