//! The HTTPS server of the webhooks.

use std::{future::IntoFuture as _, io, sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Bytes, to_bytes},
    extract::Request,
    http::{
        StatusCode,
        header::{CONTENT_LENGTH, CONTENT_TYPE},
    },
    response::{IntoResponse, Response},
    routing::{get, post},
};
use jiff::Timestamp;
use serde::Serialize;
use tokio::{
    net::TcpListener,
    sync::{Semaphore, oneshot},
    task::spawn_blocking,
    time::{Instant, sleep, timeout, timeout_at},
};

use super::review::{Endpoint, NotReviewed, respond, respond_without_review};
use crate::{
    admission::policy_index::Latest,
    known_checks::KnownChecks,
    refusal::{CANNOT_BE_CHECKED, takes_too_long},
    tls::Tls,
    tls_listener::TlsListener,
};

/// The largest request body. etcd stores objects of up to 1.5 MiB, and an update sends two.
const MAX_BODY: usize = 4 * 1024 * 1024;
/// A larger body is a large review, which does not delay small ones.
const LARGE: usize = 128 * 1024;
/// How many small reviews are worked on at the same time; further ones wait.
const MAX_SMALL: usize = 16;
/// How many large ones.
const MAX_LARGE: usize = 2;
/// How many large ones are in memory at the same time; further ones are not read.
const MAX_LARGE_BODIES: usize = 8;
/// The API server gives up after ten seconds by default, so a later response is of no use.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(9);
/// How much of that time a review may wait for others.
const WAIT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long open requests may take once the server has been asked to stop.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(10);

const BUSY: &str = "this policy was not checked, because the webhook has too much to check at the moment; the controller \
                    checks it before any node applies it";

/// Answers admission reviews.
#[derive(Clone, Debug)]
pub struct AdmissionServer {
    index: Latest,
    known: KnownChecks,
    now: fn() -> Timestamp,
    small: Arc<Semaphore>,
    large: Arc<Semaphore>,
    large_bodies: Arc<Semaphore>,
}

impl AdmissionServer {
    /// Policies are compared with those in `index`. Until there is one, responses have a warning instead.
    pub fn new(index: Latest, now: fn() -> Timestamp) -> Self {
        Self {
            index,
            known: KnownChecks::default(),
            now,
            small: Arc::new(Semaphore::new(MAX_SMALL)),
            large: Arc::new(Semaphore::new(MAX_LARGE)),
            large_bodies: Arc::new(Semaphore::new(MAX_LARGE_BODIES)),
        }
    }

    /// Uses these results of earlier checks, and adds to them.
    pub(crate) fn sharing(self, known: KnownChecks) -> Self {
        Self { known, ..self }
    }

    /// The paths of the webhooks, and `/readyz` and `/healthz`, which other clients than kubelet may use.
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
        let end = Instant::now() + REVIEW_TIMEOUT;
        let length =
            request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let is_small = length.is_some_and(|length: usize| length <= LARGE);
        let _body_room = if is_small {
            None
        } else {
            match timeout(WAIT_TIMEOUT, self.large_bodies.acquire()).await {
                Ok(Ok(room)) => Some(room),
                _ => {
                    return (StatusCode::SERVICE_UNAVAILABLE, "too many large reviews at once")
                        .into_response();
                }
            }
        };
        match timeout_at(end, to_bytes(request.into_body(), MAX_BODY)).await {
            Ok(Ok(body)) => {
                // Mutations take no time, whatever their size.
                let is_quick = is_small || endpoint != Endpoint::ValidatePolicy;
                let room = if is_quick { &self.small } else { &self.large };
                self.review(endpoint, body, room.clone(), end).await
            }
            Ok(Err(_)) => {
                (StatusCode::PAYLOAD_TOO_LARGE, "the request is too large or incomplete").into_response()
            }
            Err(_) => (StatusCode::REQUEST_TIMEOUT, "the request is incomplete").into_response(),
        }
    }

    async fn review(&self, endpoint: Endpoint, body: Bytes, room: Arc<Semaphore>, end: Instant) -> Response {
        let Ok(Ok(place)) = timeout(WAIT_TIMEOUT, room.acquire_owned()).await else {
            return not_reviewed(endpoint, &body, NotReviewed::Allowed(BUSY.to_owned()));
        };
        let (index, known) = (self.index.borrow().clone(), self.known.clone());
        let now = (self.now)();
        let whole = body.clone();
        // Comparing policies for a thousand nodes takes CPU time, which must not delay other connections. The place is
        // occupied until the thread ends, also if the response does not wait for it.
        let work = spawn_blocking(move || {
            let _place = place;
            respond(endpoint, &whole, index.as_deref(), &known, now)
        });
        match timeout_at(end, work).await {
            Ok(Ok(Ok(review))) => json(&review),
            Ok(Ok(Err(error))) => (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
            Ok(Err(_)) => not_reviewed(endpoint, &body, NotReviewed::Refused(CANNOT_BE_CHECKED.to_owned())),
            Err(_) => not_reviewed(
                endpoint,
                &body,
                NotReviewed::Refused(takes_too_long(REVIEW_TIMEOUT.saturating_sub(WAIT_TIMEOUT))),
            ),
        }
    }
}

/// The response to a review that was not carried out. The API server goes on without a mutation.
fn not_reviewed(endpoint: Endpoint, body: &[u8], outcome: NotReviewed) -> Response {
    let review = (endpoint == Endpoint::ValidatePolicy).then(|| respond_without_review(body, outcome));
    match review.flatten() {
        Some(review) => json(&review),
        None => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

fn json(review: &impl Serialize) -> Response {
    match serde_json::to_vec(review) {
        Ok(body) => ([(CONTENT_TYPE, "application/json")], body).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
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
    let listener = TlsListener::new(listener, tls);
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
