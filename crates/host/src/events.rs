//! Waking up when something changes.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tokio_stream::{Stream, StreamExt};

/// What kind of thing has changed. Not what it is now: that is read with [`Host::observe`](crate::Host::observe).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Topic {
    /// An interface came, went, or changed in anything but its addresses.
    Link,
    Address,
    Route,
    Rule,
    Resolver,
    Hostname,
    /// The service that configures the network has ended. A change that was open has lost its checkpoint.
    ServiceGone,
    /// The service that configures the network has started again.
    ServiceBack,
}

impl Topic {
    pub const ALL: [Self; 8] = [
        Self::Link,
        Self::Address,
        Self::Route,
        Self::Rule,
        Self::Resolver,
        Self::Hostname,
        Self::ServiceGone,
        Self::ServiceBack,
    ];
}

/// A set of [`Topic`]s in which something has changed.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Changes(u8);

impl Changes {
    pub fn contains(self, topic: Topic) -> bool {
        self.0 & (1 << topic as u8) != 0
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn topics(self) -> impl Iterator<Item = Topic> {
        Topic::ALL.into_iter().filter(move |topic| self.contains(*topic))
    }

    /// The same set with `topic` in it.
    #[must_use]
    pub fn with(self, topic: Topic) -> Self {
        Self(self.0 | 1 << topic as u8)
    }
}

impl FromIterator<Topic> for Changes {
    fn from_iter<I: IntoIterator<Item = Topic>>(topics: I) -> Self {
        topics.into_iter().fold(Self::default(), Self::with)
    }
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.topics()).finish()
    }
}

/// The stream of changes of one machine.
///
/// It has no queue that could run full and nothing is ever dropped: what changes between two reads is merged into
/// the next item, so a reader that lags gets one item that names everything it has missed. The order inside an item
/// is lost; one with both [`Topic::ServiceGone`] and [`Topic::ServiceBack`] means a restart.
///
/// The stream ends when the machine, or the way to it, is gone for good.
pub struct Events {
    counters: WatchStream<Counters>,
    seen: Counters,
}

impl Events {
    /// Waits for the next changes; `None` when there will be no more. Nothing is lost when the future is dropped.
    pub async fn next(&mut self) -> Option<Changes> {
        StreamExt::next(self).await
    }
}

impl Stream for Events {
    type Item = Changes;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Changes>> {
        loop {
            match Pin::new(&mut self.counters).poll_next(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Ready(Some(now)) => {
                    let changes = self.seen.moved_to(now);
                    self.seen = now;
                    if !changes.is_empty() {
                        return Poll::Ready(Some(changes));
                    }
                }
            }
        }
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

/// How often each topic has been announced; a reader gets the topics whose counter has moved since its last read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Counters([u64; Topic::ALL.len()]);

impl Counters {
    fn moved_to(self, now: Self) -> Changes {
        Topic::ALL.into_iter().filter(|topic| self.0[*topic as usize] != now.0[*topic as usize]).collect()
    }
}

/// The sending end of [`Events`].
#[derive(Debug, Default)]
pub struct Announcer(watch::Sender<Counters>);

impl Announcer {
    pub fn new() -> Self {
        Self(watch::Sender::new(Counters::default()))
    }

    pub fn announce(&self, changes: Changes) {
        if !changes.is_empty() {
            self.0.send_modify(|counters| {
                for topic in changes.topics() {
                    counters.0[topic as usize] += 1;
                }
            });
        }
    }

    pub fn subscribe(&self) -> Events {
        self.source().subscribe()
    }

    /// Makes further streams, also for those who must not keep this alive.
    pub(crate) fn source(&self) -> EventSource {
        EventSource(self.0.subscribe())
    }
}

/// Makes streams of the events of one [`Announcer`]. They end with it.
#[derive(Debug, Clone)]
pub(crate) struct EventSource(watch::Receiver<Counters>);

impl EventSource {
    pub(crate) fn subscribe(&self) -> Events {
        let mut receiver = self.0.clone();
        // The value and the mark "seen up to here" have to be taken together, or a change between the two is lost.
        let seen = *receiver.borrow_and_update();
        Events { counters: WatchStream::from_changes(receiver), seen }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(topic: Topic) -> Changes {
        Changes::default().with(topic)
    }

    #[tokio::test]
    async fn what_a_slow_reader_missed_comes_merged_into_one_item() {
        let announcer = Announcer::new();
        let mut events = announcer.subscribe();
        for _ in 0..10_000 {
            announcer.announce(only(Topic::Link));
        }
        announcer.announce(only(Topic::ServiceGone));
        announcer.announce(only(Topic::ServiceBack));
        let missed = [Topic::Link, Topic::ServiceGone, Topic::ServiceBack].into_iter().collect();
        assert_eq!(events.next().await, Some(missed));

        announcer.announce(only(Topic::Rule));
        assert_eq!(events.next().await, Some(only(Topic::Rule)));
    }

    #[tokio::test]
    async fn each_reader_has_its_own_view_from_the_moment_it_subscribed() {
        let announcer = Announcer::new();
        let mut early = announcer.subscribe();
        announcer.announce(only(Topic::Link));
        let mut late = announcer.subscribe();
        announcer.announce(only(Topic::Route));
        assert_eq!(early.next().await, Some([Topic::Link, Topic::Route].into_iter().collect()));
        assert_eq!(late.next().await, Some(only(Topic::Route)));
    }

    #[tokio::test]
    async fn the_last_changes_are_delivered_before_the_stream_ends() {
        let announcer = Announcer::new();
        let mut events = announcer.subscribe();
        announcer.announce(only(Topic::Address));
        announcer.announce(Changes::default());
        let source = announcer.source();
        drop(announcer);
        assert_eq!(events.next().await, Some(only(Topic::Address)));
        assert_eq!(events.next().await, None);
        assert_eq!(source.subscribe().next().await, None, "its source does not keep it alive");
    }

    #[tokio::test]
    async fn a_source_makes_streams_of_what_comes_from_then_on() {
        let announcer = Announcer::new();
        let source = announcer.source();
        announcer.announce(only(Topic::Link));
        let mut events = source.subscribe();
        announcer.announce(only(Topic::Route));
        assert_eq!(events.next().await, Some(only(Topic::Route)));
    }
}
