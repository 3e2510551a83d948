use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{sync::watch, time::Instant};

use super::*;
use crate::call::CallError;

const NOW: Schedule = Schedule { urgency: Urgency::Now, not_before: None, min_interval: Duration::ZERO };
const SOON: Schedule = Schedule { urgency: Urgency::Soon, ..NOW };
const LATER: Schedule = Schedule { urgency: Urgency::Later, ..NOW };
const INTERVAL: Duration = Duration::from_secs(1);

type TestOutbox = Outbox<&'static str, &'static str>;

fn take(outbox: &mut TestOutbox) -> Option<&'static str> {
    outbox.take(Instant::now()).map(|(_, update)| update)
}

fn fail(outbox: &mut TestOutbox) -> &'static str {
    let (key, update) = outbox.take(Instant::now()).unwrap();
    outbox.failed(key, update, Instant::now());
    update
}

#[tokio::test(start_paused = true)]
async fn the_most_urgent_update_is_first() {
    let mut outbox = Outbox::default();
    for (key, schedule) in [("a", LATER), ("b", SOON), ("d", NOW), ("c", NOW)] {
        outbox.put(key, key, schedule);
    }
    let taken: Vec<_> = std::iter::from_fn(|| take(&mut outbox)).collect();
    assert_eq!(taken, ["c", "d", "b", "a"]);
}

#[tokio::test(start_paused = true)]
async fn two_writes_of_one_key_are_one_after_the_other() {
    let mut outbox = Outbox::default();
    outbox.put("a", "first", SOON);
    assert_eq!(take(&mut outbox), Some("first"));
    outbox.put("a", "second", SOON);
    outbox.put("a", "third", NOW);
    assert_eq!(outbox.len(), 1, "the newer one replaces the one before");
    assert_eq!(take(&mut outbox), None, "not before the first is done");
    outbox.done(&"a");
    assert_eq!(take(&mut outbox), Some("third"));
}

#[tokio::test(start_paused = true)]
async fn a_write_that_failed_is_tried_again_unless_there_is_a_newer_one() {
    let mut outbox = Outbox::default();
    outbox.put("a", "first", NOW);
    fail(&mut outbox);
    assert_eq!(take(&mut outbox), None, "after a pause");
    tokio::time::advance(Duration::from_secs(30)).await;
    let (key, update) = outbox.take(Instant::now()).unwrap();
    outbox.put("a", "second", NOW);
    outbox.failed(key, update, Instant::now());
    assert_eq!(take(&mut outbox), Some("second"));
    assert!(outbox.is_empty());
}

#[tokio::test(start_paused = true)]
async fn each_key_backs_off_for_itself_and_longer_each_time() {
    let mut outbox = Outbox::default();
    for key in ["a", "b", "c"] {
        outbox.put(key, key, NOW);
    }
    assert_eq!(fail(&mut outbox), "a");
    assert_eq!(take(&mut outbox), Some("b"));
    assert_eq!(take(&mut outbox), Some("c"));
    let first = outbox.next_at().unwrap() - Instant::now();
    assert!((1..=2).contains(&first.as_secs()), "{first:?}");
    for _ in 0..5 {
        tokio::time::advance(Duration::from_secs(30)).await;
        assert_eq!(fail(&mut outbox), "a");
    }
    let last = outbox.next_at().unwrap() - Instant::now();
    assert!(last > first && last <= Duration::from_secs(30), "{last:?}");
    outbox.retry_now();
    assert_eq!(take(&mut outbox), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn a_key_is_written_once_per_interval_at_most() {
    let mut outbox = Outbox::default();
    let schedule = Schedule { min_interval: INTERVAL, ..LATER };
    outbox.put("a", "first", schedule);
    assert_eq!(take(&mut outbox), Some("first"));
    outbox.put("a", "second", schedule);
    outbox.done(&"a");
    assert_eq!(take(&mut outbox), None);
    assert_eq!(outbox.next_at(), Some(Instant::now() + INTERVAL));
    outbox.retry_now();
    assert_eq!(take(&mut outbox), None, "that is no back-off");
    tokio::time::advance(INTERVAL).await;
    assert_eq!(take(&mut outbox), Some("second"));
}

#[tokio::test(start_paused = true)]
async fn an_update_waits_for_its_time() {
    let mut outbox = Outbox::default();
    let soon = Instant::now() + INTERVAL;
    outbox.put("a", "a", Schedule { not_before: Some(soon), ..NOW });
    outbox.put("b", "b", LATER);
    assert_eq!(take(&mut outbox), Some("b"));
    assert_eq!(take(&mut outbox), None);
    assert_eq!(outbox.next_at(), Some(soon));
    assert_eq!(outbox.take(soon), Some(("a", "a")));
    assert_eq!(outbox.next_at(), None);
}

#[tokio::test(start_paused = true)]
async fn what_was_cancelled_is_not_written() {
    let mut outbox = Outbox::default();
    for key in ["a", "b", "c"] {
        outbox.put(key, key, NOW);
    }
    outbox.cancel(&"a");
    outbox.retain(|key, _| *key != "b");
    assert_eq!(outbox.keys().collect::<Vec<_>>(), [&"c"]);
    assert_eq!((outbox.get(&"b"), outbox.get(&"c")), (None, Some(&"c")));
    assert_eq!(take(&mut outbox), Some("c"));
    outbox.cancel(&"c");
    outbox.done(&"c");
    assert_eq!(take(&mut outbox), None);
}

/// Reported texts by key, each of which is written once.
#[derive(Default)]
struct Reports(TestOutbox);

impl Pending for Reports {
    type Key = &'static str;
    type Update = &'static str;

    fn outbox(&mut self) -> &mut TestOutbox {
        &mut self.0
    }

    fn is_delivered(&self) -> bool {
        self.0.is_empty() && self.0.under_way.is_empty()
    }
}

/// A server that fails in the ways given for each key, and records the requests with their times.
#[derive(Clone, Default)]
struct FakeServer {
    failures: Arc<Mutex<BTreeMap<&'static str, Vec<CallError>>>>,
    requests: Arc<Mutex<Vec<(u64, &'static str)>>>,
}

impl Writer<Reports> for (FakeServer, Instant) {
    async fn write(
        &self,
        _: &SharedOutbox<Reports>,
        key: &&'static str,
        update: &'static str,
    ) -> Result<(), CallError> {
        let (server, start) = self;
        server.requests.lock().unwrap().push((start.elapsed().as_secs(), update));
        let failure = server.failures.lock().unwrap().get_mut(key).and_then(Vec::pop);
        failure.map_or(Ok(()), Err)
    }
}

impl FakeServer {
    fn fail(&self, key: &'static str, failures: impl IntoIterator<Item = CallError>) {
        self.failures.lock().unwrap().insert(key, failures.into_iter().collect());
    }

    fn requests(&self) -> Vec<(u64, &'static str)> {
        self.requests.lock().unwrap().clone()
    }
}

fn refused() -> CallError {
    let status = kube::core::Status { code: 403, reason: "Forbidden".to_owned(), ..Default::default() };
    kube::Error::Api(status.boxed()).into()
}

/// A shared outbox whose writer runs, and the sender of whether the server is connected.
fn start(server: &FakeServer) -> (Arc<SharedOutbox<Reports>>, watch::Sender<bool>) {
    let outbox = Arc::new(SharedOutbox::new(Reports::default()));
    let (connected, receiver) = watch::channel(true);
    let (shared, writer) = (outbox.clone(), (server.clone(), Instant::now()));
    tokio::spawn(async move { shared.run(writer, receiver, "write").await });
    (outbox, connected)
}

#[tokio::test(start_paused = true)]
async fn what_is_put_is_delivered() {
    let server = FakeServer::default();
    let (outbox, _connected) = start(&server);
    outbox.delivered().await;
    outbox.change(|reports| reports.0.put("a", "1", SOON));
    outbox.delivered().await;
    assert_eq!(server.requests(), [(0, "1")]);
}

#[tokio::test(start_paused = true)]
async fn an_update_that_is_refused_does_not_hold_up_the_others() {
    let server = FakeServer::default();
    server.fail("a", [refused()]);
    let (outbox, _connected) = start(&server);
    outbox.change(|reports| {
        reports.0.put("a", "1", SOON);
        reports.0.put("b", "2", SOON);
    });
    outbox.delivered().await;
    let order: Vec<_> = server.requests().into_iter().map(|(_, update)| update).collect();
    assert_eq!(order, ["1", "2", "1"]);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_tried_while_the_server_does_not_respond() {
    let server = FakeServer::default();
    server.fail("a", std::iter::repeat_with(|| CallError::NoAnswer).take(4));
    let (outbox, connected) = start(&server);
    outbox.change(|reports| {
        reports.0.put("a", "1", SOON);
        reports.0.put("b", "2", SOON);
    });
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(server.requests(), [(0, "1")], "not the other one either");
    connected.send_replace(false);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(server.requests().len(), 1);
    connected.send_replace(true);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(server.requests(), [(0, "1"), (0, "1")], "at once when it is back");
    outbox.delivered().await;
    let times: Vec<u64> = server.requests().into_iter().map(|(time, _)| time).collect();
    assert!(times[2] - times[1] >= 2 && times[3] - times[2] >= 4, "longer each time: {times:?}");
}
