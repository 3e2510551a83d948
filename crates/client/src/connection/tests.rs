//! What a quiet watch costs the API server, counted by a server in memory.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{StreamExt as _, stream};
use http_body_util::{Full, StreamBody, combinators::BoxBody};
use hyper::body::{Bytes, Frame};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, core::DeserializeGuard};
use tokio::time::{Instant, sleep, timeout};

use super::*;
use crate::watch::{ObjectEvent, Selection, follow};

/// A server that responds to lists and watches of nothing, sends a bookmark every minute, and ends watches when it is
/// asked to.
#[derive(Clone)]
struct FakeServer {
    version: Version,
    /// The kinds of the requests so far, with the time since the start.
    requests: Arc<Mutex<Vec<(Duration, &'static str)>>>,
    start: Instant,
    /// When it stops responding.
    freezes_at: Option<Duration>,
}

type FakeBody = BoxBody<Bytes, Infallible>;

impl FakeServer {
    fn new(version: Version) -> Self {
        Self { version, requests: Arc::default(), start: Instant::now(), freezes_at: None }
    }

    fn client(&self) -> Client {
        Client::new(Transport::new(self.clone(), self.clone()), "default")
    }

    fn count(&self, what: &str) -> usize {
        self.requests.lock().unwrap().iter().filter(|(_, kind)| *kind == what).count()
    }

    fn is_frozen(&self) -> bool {
        self.freezes_at.is_some_and(|time| self.start.elapsed() >= time)
    }

    fn watch(&self, seconds: u64) -> FakeBody {
        let server = self.clone();
        let lines = stream::unfold((server, 0), move |(server, sent)| async move {
            let next = (sent + 60).min(seconds);
            sleep(Duration::from_secs(next - sent)).await;
            if server.is_frozen() {
                return std::future::pending().await;
            }
            let bookmark = r#"{"type":"BOOKMARK","object":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"resourceVersion":"2"}}}"#;
            (next > sent).then(|| (Ok(Frame::data(Bytes::from(format!("{bookmark}\n")))), (server, next)))
        });
        BoxBody::new(StreamBody::new(lines.map(|line: Result<_, Infallible>| line)))
    }
}

impl Service<Request<Body>> for FakeServer {
    type Response = Response<FakeBody>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<FakeBody>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        if self.is_frozen() {
            return std::future::pending().boxed();
        }
        let query = request.uri().query().unwrap_or_default();
        let seconds = query.split('&').find_map(|parameter| parameter.strip_prefix("timeoutSeconds="));
        let (kind, body) = if query.contains("watch=true") {
            ("watch", self.watch(seconds.unwrap().parse().unwrap()))
        } else {
            let list =
                r#"{"apiVersion":"v1","kind":"ConfigMapList","metadata":{"resourceVersion":"1"},"items":[]}"#;
            ("list", BoxBody::new(Full::new(Bytes::from(list))))
        };
        self.requests.lock().unwrap().push((self.start.elapsed(), kind));
        let response = Response::builder().version(self.version).body(body).unwrap();
        async move { Ok(response) }.boxed()
    }
}

/// Follows an object for this time; the times at which the server was found to respond or not to.
async fn follow_for(server: &FakeServer, time: Duration) -> Vec<(Duration, bool)> {
    let known = Mutex::new(Vec::new());
    let api: Api<DeserializeGuard<ConfigMap>> = Api::all(server.client());
    let connected = |connected| {
        let mut known = known.lock().unwrap();
        if known.last().is_none_or(|(_, last)| *last != connected) {
            known.push((server.start.elapsed(), connected));
        }
    };
    let _ =
        timeout(time, follow(api, Selection::All, "watch", connected, |_: ObjectEvent<ConfigMap>| {})).await;
    known.into_inner().unwrap()
}

const HOUR: Duration = Duration::from_secs(3599);

#[tokio::test(start_paused = true)]
async fn a_quiet_watch_costs_fifteen_requests_an_hour_at_most() {
    let server = FakeServer::new(Version::HTTP_2);
    assert_eq!(follow_for(&server, HOUR).await, [(Duration::ZERO, true)]);
    assert_eq!(server.count("list"), 1);
    // The first one is short, as the version is not known yet.
    let watches = server.count("watch");
    assert!((10..=16).contains(&watches), "{watches} requests");
}

#[tokio::test(start_paused = true)]
async fn where_there_are_no_pings_watches_are_short() {
    let server = FakeServer::new(Version::HTTP_11);
    assert_eq!(follow_for(&server, HOUR).await, [(Duration::ZERO, true)]);
    assert_eq!((server.count("list"), server.count("watch")), (1, 120));
}

#[tokio::test(start_paused = true)]
async fn where_there_are_no_pings_a_frozen_server_is_noticed_by_its_silence() {
    let frozen = Duration::from_mins(10) + Duration::from_secs(1);
    let server = FakeServer { freezes_at: Some(frozen), ..FakeServer::new(Version::HTTP_11) };
    let known = follow_for(&server, HOUR).await;
    let [(_, true), (noticed, false)] = known[..] else { panic!("{known:?}") };
    assert!(noticed <= frozen + SHORT_WATCH_TIMEOUT, "{noticed:?}");
}

#[test]
fn a_short_watch_keeps_its_other_parameters() {
    let uri =
        "/api/v1/nodes?&watch=true&timeoutSeconds=290&fieldSelector=metadata.name%3Da&resourceVersion=7";
    let expected =
        "/api/v1/nodes?&watch=true&fieldSelector=metadata.name%3Da&resourceVersion=7&timeoutSeconds=30";
    assert_eq!(shortened(&uri.parse().unwrap()).unwrap().to_string(), expected);
}
