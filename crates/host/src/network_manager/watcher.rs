//! The thread that reports changes: those of the kernel from netlink's groups, those of NetworkManager from D-Bus.

mod devices;

use std::collections::HashSet;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use futures::StreamExt as _;
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{AsyncSocket as _, AsyncSocketExt as _, SocketAddr, TokioSocket};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep, timeout};
use zbus::MessageStream;
use zbus::proxy::CacheProperties;

use self::devices::Devices;
use super::service::{ManagerProxy, NAME};
use super::service_watch::rule;
use super::worker::runtime;
use crate::error::HostError;
use crate::events::{Announcer, Changes, EventSource, Events, Topic};

/// The pause after a source of events has broken, so that one that stays broken costs nothing.
const PAUSE: Duration = Duration::from_secs(1);

/// While messages of the kernel keep coming they are looked at this rarely: soon after the first one, so that a single
/// change is known as a whole, then ever later.
const FIRST_LOOK: Duration = Duration::from_millis(20);
const LAST_LOOK: Duration = Duration::from_millis(250);

/// The most messages that are read at one look; the kernel has room for a few hundred.
const MOST_MESSAGES: usize = 4096;

/// The numbers of the groups, from linux/rtnetlink.h: links, then addresses, routes and rules of IPv4 and IPv6.
const GROUPS: [u32; 7] = [1, 5, 9, 7, 11, 8, 19];

/// Silence of this length means that the thread hangs.
const LONGEST_SILENCE: Duration = Duration::from_mins(1);

/// What the thread has found out. It does not keep the thread's announcer alive: when the thread ends, so do the events.
#[derive(Debug)]
pub(super) struct Watcher {
    events: EventSource,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    version: Mutex<Option<String>>,
    pulse: Pulse,
}

/// What the thread owns.
#[derive(Debug)]
struct Watching {
    announcer: Announcer,
    shared: Arc<Shared>,
}

/// Ends the thread when it is dropped.
#[derive(Debug)]
pub(super) struct StopOnDrop(#[expect(dead_code, reason = "dropped, never used")] oneshot::Sender<()>);

impl StopOnDrop {
    pub(super) fn new() -> (Self, oneshot::Receiver<()>) {
        let (sender, receiver) = oneshot::channel();
        (Self(sender), receiver)
    }
}

impl Watcher {
    /// Returns when no change of the kernel can be missed any more, and NetworkManager's version is known or it has
    /// not answered within `limit`.
    pub(super) async fn start(limit: Duration) -> Result<(Self, StopOnDrop), HostError> {
        let announcer = Announcer::new();
        let watcher = Self { events: announcer.source(), shared: Arc::default() };
        let (stop, stopped) = StopOnDrop::new();
        let (ready, listening) = oneshot::channel();
        let runtime = runtime()?;
        let watching = Watching { announcer, shared: watcher.shared.clone() };
        thread::Builder::new()
            .name("network-watcher".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    tokio::select! {
                        () = watch_kernel(&watching.announcer, ready) => {}
                        () = watch_service(&watching) => {}
                        () = watching.shared.pulse.answer() => {}
                        _ = stopped => {}
                    }
                });
            })
            .map_err(|error| unwatched(&error))?;
        match listening.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(unwatched(&error)),
            Err(error) => return Err(unwatched(&error)),
        }
        let mut events = watcher.events();
        let version_is_known = async {
            while watcher.network_manager_version().is_none() {
                events.next().await;
            }
        };
        // NetworkManager need not run yet, so the wait for it is short.
        let _ = timeout(limit.min(Duration::from_secs(1)), version_is_known).await;
        Ok((watcher, stop))
    }

    pub(super) fn events(&self) -> Events {
        self.events.subscribe()
    }

    /// Makes streams of the same events.
    pub(super) fn source(&self) -> EventSource {
        self.events.clone()
    }

    pub(super) fn network_manager_version(&self) -> Option<String> {
        self.shared.version.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether the thread has not answered for a while. Each call asks it.
    pub(super) fn is_hung(&self) -> bool {
        self.shared.pulse.is_late()
    }
}

impl Watching {
    fn set_version(&self, version: Option<String>) {
        *self.shared.version.lock().unwrap_or_else(PoisonError::into_inner) = version;
    }
}

/// Whether the thread answers. It costs nothing as long as no one asks.
#[derive(Debug, Default)]
struct Pulse {
    asked: Notify,
    /// Since when a question is not answered.
    since: Mutex<Option<Instant>>,
}

impl Pulse {
    fn is_late(&self) -> bool {
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(asked) = *since {
            return asked.elapsed() > LONGEST_SILENCE;
        }
        *since = Some(Instant::now());
        self.asked.notify_one();
        false
    }

    /// Answers each question, on the thread that is asked for.
    async fn answer(&self) {
        loop {
            self.asked.notified().await;
            *self.since.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }
}

fn unwatched(why: &dyn std::fmt::Display) -> HostError {
    HostError::Unavailable { why: format!("changes of the network cannot be watched: {why}") }
}

async fn watch_kernel(announcer: &Announcer, ready: oneshot::Sender<io::Result<()>>) {
    let mut socket = match listen() {
        Ok(socket) => socket,
        Err(error) => {
            let _ = ready.send(Err(error));
            return;
        }
    };
    let _ = ready.send(Ok(()));
    let mut buffer = Vec::with_capacity(64 * 1024);
    loop {
        let mut changes = next_message(&socket, &mut buffer).await;
        let mut pause = FIRST_LOOK;
        // The first message after quiet is announced at once. Then the kernel keeps what comes until the next look, as
        // long as something comes: a storm of messages costs a few looks per second, and what the kernel has no room
        // for, need not be read.
        loop {
            match changes {
                Ok(changes) if changes.is_empty() => break,
                Ok(changes) => announcer.announce(changes),
                Err(_) => {
                    sleep(PAUSE).await;
                    if let Ok(again) = listen() {
                        socket = again;
                    }
                    announcer.announce(anything());
                }
            }
            sleep(pause).await;
            pause = (pause * 2).min(LAST_LOOK);
            changes = waiting_messages(&socket, &mut buffer);
        }
    }
}

/// Waits for a message.
async fn next_message(socket: &TokioSocket, buffer: &mut Vec<u8>) -> io::Result<Changes> {
    loop {
        buffer.clear();
        let changes = heard(socket.recv(buffer).await, buffer)?;
        if !changes.is_empty() {
            return Ok(changes);
        }
    }
}

/// Reads what has come meanwhile, without waiting for more.
fn waiting_messages(socket: &TokioSocket, buffer: &mut Vec<u8>) -> io::Result<Changes> {
    let mut changes = Changes::default();
    for _ in 0..MOST_MESSAGES {
        buffer.clear();
        match socket.socket_ref().recv(buffer, 0) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            received => {
                changes = changes.topics().chain(heard(received.map(drop), buffer)?.topics()).collect();
            }
        }
    }
    Ok(changes)
}

fn heard(received: io::Result<()>, buffer: &[u8]) -> io::Result<Changes> {
    match received {
        Ok(()) => Ok(topics(buffer)),
        // The kernel had more to say than there was room for. What was lost is not known.
        Err(error) if error.raw_os_error() == Some(nix::errno::Errno::ENOBUFS as i32) => Ok(anything()),
        Err(error) => Err(error),
    }
}

/// Every topic that the kernel announces.
fn anything() -> Changes {
    [Topic::Link, Topic::Address, Topic::Route, Topic::Rule].into_iter().collect()
}

fn listen() -> io::Result<TokioSocket> {
    let mut socket = TokioSocket::new(NETLINK_ROUTE)?;
    socket.socket_mut().bind(&SocketAddr::new(0, 0))?;
    for group in GROUPS {
        socket.socket_mut().add_membership(group)?;
    }
    Ok(socket)
}

/// The topics of the messages in a datagram, by their types alone.
fn topics(mut datagram: &[u8]) -> Changes {
    let mut changes = Changes::default();
    while let Some((length, kind)) = header(datagram) {
        changes = match kind {
            16 | 17 => changes.with(Topic::Link),
            20 | 21 => changes.with(Topic::Address),
            24 | 25 => changes.with(Topic::Route),
            32 | 33 => changes.with(Topic::Rule),
            _ => changes,
        };
        datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    changes
}

/// Length and type of the first message; `None` when there is none that could be right.
fn header(datagram: &[u8]) -> Option<(usize, u16)> {
    let length = u32::from_ne_bytes(datagram.get(0..4)?.try_into().ok()?);
    let kind = u16::from_ne_bytes(datagram.get(4..6)?.try_into().ok()?);
    let length = usize::try_from(length).ok()?;
    (length >= 16).then_some((length, kind))
}

/// Announces NetworkManager's coming and going, and what only it knows. Starts over when the bus goes.
async fn watch_service(watching: &Watching) {
    let mut was_there = false;
    loop {
        let _ = follow_bus(watching, &mut was_there).await;
        watching.set_version(None);
        if was_there {
            was_there = false;
            watching.announcer.announce(Changes::default().with(Topic::ServiceGone));
        }
        sleep(PAUSE).await;
    }
}

async fn follow_bus(watching: &Watching, was_there: &mut bool) -> zbus::Result<()> {
    const PROPERTIES: &str = "org.freedesktop.DBus.Properties";
    let connection = zbus::Connection::system().await?;
    let owner = rule("org.freedesktop.DBus", "org.freedesktop.DBus")?
        .member("NameOwnerChanged")?
        .arg(0, NAME)?
        .build();
    let resolver = rule(NAME, PROPERTIES)?.path("/org/freedesktop/NetworkManager/DnsManager")?.build();
    let hostname = rule(NAME, PROPERTIES)?.path("/org/freedesktop/NetworkManager/Settings")?.build();
    let mut owner = MessageStream::for_match_rule(owner, &connection, None).await?;
    let mut resolver = MessageStream::for_match_rule(resolver, &connection, None).await?;
    let mut hostname = MessageStream::for_match_rule(hostname, &connection, None).await?;
    let devices = Devices::listen(&connection).await?;

    let manager = ManagerProxy::builder(&connection)
        .destination(NAME)?
        .cache_properties(CacheProperties::No)
        .build()
        .await?;
    if let Ok(Ok(version)) = timeout(PAUSE, manager.version()).await {
        watching.set_version(Some(version));
        // Those who watched before the bus was lost have heard that the service is gone.
        watching.announcer.announce(Changes::default().with(Topic::ServiceBack));
        *was_there = true;
    }
    let devices = devices.announce_to(&watching.announcer);
    tokio::pin!(devices);
    loop {
        let changes = tokio::select! {
            ended = &mut devices => return ended,
            message = owner.next() => {
                let Some(message) = message else { return Ok(()) };
                let (_, before, now): (String, String, String) = message?.body().deserialize()?;
                let topics: HashSet<_> = [(&before, Topic::ServiceGone), (&now, Topic::ServiceBack)]
                    .into_iter()
                    .filter_map(|(owner, topic)| (!owner.is_empty()).then_some(topic))
                    .collect();
                *was_there = topics.contains(&Topic::ServiceBack);
                let version = if *was_there { timeout(PAUSE, manager.version()).await.ok() } else { None };
                watching.set_version(version.and_then(Result::ok));
                topics.into_iter().collect()
            }
            Some(message) = resolver.next() => message.map(|_| Changes::default().with(Topic::Resolver))?,
            Some(message) = hostname.next() => {
                let (_, changed, _): (String, std::collections::HashMap<String, zbus::zvariant::OwnedValue>, Vec<String>) =
                    message?.body().deserialize()?;
                // The list of profiles is announced here, too.
                if changed.contains_key("Hostname") { Changes::default().with(Topic::Hostname) } else { continue }
            }
        };
        watching.announcer.announce(changes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, body: usize) -> Vec<u8> {
        let length = u32::try_from(16 + body).expect("short");
        let mut bytes = [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), &[0; 10]].concat();
        bytes.resize((16 + body).next_multiple_of(4), 0);
        bytes
    }

    #[tokio::test(start_paused = true)]
    async fn a_thread_that_does_not_answer_is_noticed() {
        let pulse = Pulse::default();
        let ask_for_an_hour = async {
            for _ in 0..120 {
                assert!(!pulse.is_late(), "it answers");
                sleep(Duration::from_secs(30)).await;
            }
        };
        tokio::select! {
            () = ask_for_an_hour => {}
            () = pulse.answer() => {}
        }
        assert!(!pulse.is_late());
        tokio::time::advance(LONGEST_SILENCE).await;
        assert!(!pulse.is_late());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(pulse.is_late());
    }

    #[test]
    fn a_datagram_is_read_by_the_types_of_its_messages() {
        let table = [
            (vec![], vec![]),
            (vec![message(16, 40)], vec![Topic::Link]),
            (vec![message(20, 3), message(25, 0)], vec![Topic::Address, Topic::Route]),
            (vec![message(33, 9), message(28, 8), message(17, 0)], vec![Topic::Rule, Topic::Link]),
            // Cut short, or nonsense: no message, and no end of the world.
            (vec![vec![1, 2, 3]], vec![]),
            (vec![vec![0; 16], message(16, 0)], vec![]),
        ];
        for (messages, expected) in table {
            let expected: Changes = expected.into_iter().collect();
            assert_eq!(topics(&messages.concat()), expected, "{messages:?}");
        }
    }
}
