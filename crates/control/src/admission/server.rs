//! Listening for the API server's questions.

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

use super::review::{Question, answer};
use crate::{catalogue::Latest, tls::Tls, tls_listener::TlsListener};

/// The largest question. The largest object that etcd takes is 1.5 MiB, and an update brings two.
const LARGEST: usize = 4 * 1024 * 1024;
/// How many questions are worked on at once; more wait.
const AT_ONCE: usize = 16;
/// The API server waits for ten seconds by default. Whoever waits longer here has no listener any more.
const LIMIT: Duration = Duration::from_secs(9);
/// How long open questions may take once the server is told to stop.
const GRACE: Duration = Duration::from_secs(10);

/// What is needed to answer.
#[derive(Clone, Debug)]
pub struct Questions {
    catalogue: Latest,
    now: fn() -> Timestamp,
    room: Arc<Semaphore>,
}

impl Questions {
    pub fn new(catalogue: Latest, now: fn() -> Timestamp) -> Self {
        Self { catalogue, now, room: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    /// The paths of admission and of probes.
    pub fn router(&self) -> Router {
        let mut router =
            Router::new().route("/readyz", get(async || "ok")).route("/healthz", get(async || "ok"));
        for question in Question::ALL {
            let questions = self.clone();
            let asked = async move |request: Request| questions.answer(question, request).await;
            router = router.route(question.path(), post(asked));
        }
        router
    }

    async fn answer(&self, question: Question, request: Request) -> Response {
        match timeout(LIMIT, self.answer_in_time(question, request)).await {
            Ok(response) => response,
            Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "too many questions at once").into_response(),
        }
    }

    async fn answer_in_time(&self, question: Question, request: Request) -> Response {
        let Ok(body) = to_bytes(request.into_body(), LARGEST).await else {
            return (StatusCode::PAYLOAD_TOO_LARGE, "the question is too large or was cut off")
                .into_response();
        };
        let Ok(_room) = self.room.acquire().await else {
            return StatusCode::SERVICE_UNAVAILABLE.into_response();
        };
        let catalogue = self.catalogue.borrow().clone();
        let now = (self.now)();
        // Comparing policies for a thousand nodes is work, and must not hold up the handshakes of others.
        let work = move || answer(question, &body, catalogue.as_deref(), now);
        match tokio::task::spawn_blocking(work).await {
            Ok(Ok(review)) => match serde_json::to_vec(&review) {
                Ok(body) => ([(CONTENT_TYPE, "application/json")], body).into_response(),
                Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
            },
            Ok(Err(unreadable)) => (StatusCode::BAD_REQUEST, unreadable.to_string()).into_response(),
            Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        }
    }
}

/// Answers until `stop`, and what is open then for a moment longer. `others` are paths that the same port serves, such as
/// metrics; none of them may be one of ours.
pub async fn serve(
    listener: TcpListener,
    tls: Tls,
    questions: Questions,
    others: Router,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let listener = TlsListener::start(listener, tls)?;
    let (told, stopped) = oneshot::channel();
    let stop = async move {
        stop.await;
        let _ = told.send(());
    };
    let server = axum::serve(listener, questions.router().merge(others)).with_graceful_shutdown(stop);
    let out_of_patience = async {
        if stopped.await.is_err() {
            std::future::pending::<()>().await;
        }
        sleep(GRACE).await;
    };
    tokio::select! {
        ended = server.into_future() => ended,
        () = out_of_patience => Ok(()),
    }
}

#[cfg(test)]
mod tests;
