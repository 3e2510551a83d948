//! The connections of one listener: how many may be open, and which of them ends to make room for a new one.
//!
//! A client without credentials can open as many connections as it likes and send nothing. So a new connection is never
//! refused for idle ones: of those, one ends, of the peer that has the most connections.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};

/// The open connections. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Connections(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    most: usize,
    open: Mutex<Open>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    entries: BTreeMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    peer: IpAddr,
    /// Whether a request is under way.
    is_busy: bool,
    since: Instant,
    /// Dropping it closes the connection.
    _open: oneshot::Sender<()>,
}

/// The place of one connection, which is free when this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    id: u64,
    connections: Connections,
    /// `None` once the place was taken away.
    open: Option<oneshot::Receiver<()>>,
}

impl Connections {
    pub(crate) fn at_most(most: usize) -> Self {
        Self(Arc::new(Shared { most, open: Mutex::default(), changed: Notify::new() }))
    }

    /// A place for a connection of this peer, if need be that of another connection. `None` while a request is under way
    /// on each of them; the next change may make room.
    pub(crate) fn enter(&self, peer: IpAddr) -> Option<Place> {
        let mut open = self.lock();
        if open.entries.len() >= self.0.most {
            let victim = victim(&open.entries, self.0.most)?;
            open.entries.remove(&victim);
        }
        let id = open.next;
        open.next += 1;
        let (sender, receiver) = oneshot::channel();
        let peer = peer.to_canonical();
        open.entries.insert(id, Entry { peer, is_busy: false, since: Instant::now(), _open: sender });
        Some(Place { id, connections: self.clone(), open: Some(receiver) })
    }

    /// Waits until a connection has ended or has become idle.
    pub(crate) async fn changed(&self) {
        self.0.changed.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The connection that ends to make room: of the peer with the most connections, the one that has been idle for longest.
/// Without any idle one, a peer that has more than half of all places loses its oldest.
fn victim(entries: &BTreeMap<u64, Entry>, most: usize) -> Option<u64> {
    let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
    for entry in entries.values() {
        *counts.entry(entry.peer).or_default() += 1;
    }
    let count = |entry: &Entry| counts.get(&entry.peer).copied().unwrap_or_default();
    let may_end = |entry: &&Entry| !entry.is_busy || count(entry) > most / 2;
    let candidates = entries.iter().filter(|(_, entry)| may_end(entry));
    candidates
        .min_by_key(|(_, entry)| (entry.is_busy, usize::MAX - count(entry), entry.since))
        .map(|(id, _)| *id)
}

impl Place {
    /// Sets whether a request is under way on the connection.
    pub(crate) fn set_busy(&self, is_busy: bool) {
        if let Some(entry) = self.connections.lock().entries.get_mut(&self.id) {
            entry.is_busy = is_busy;
            entry.since = Instant::now();
        }
        self.connections.0.changed.notify_one();
    }

    /// Whether the place was taken away; wakes the task when it is.
    pub(crate) fn poll_taken(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let taken = self.open.as_mut().is_none_or(|open| Pin::new(open).poll(context).is_ready());
        if !taken {
            return Poll::Pending;
        }
        self.open = None;
        Poll::Ready(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.lock().entries.remove(&self.id);
        self.connections.0.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, time::Duration};

    use tokio::time::advance;

    use super::*;

    fn peer(number: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, number])
    }

    /// Which of these places were taken away.
    async fn taken(places: &mut [Place]) -> Vec<usize> {
        let mut taken = Vec::new();
        for (index, place) in places.iter_mut().enumerate() {
            if poll_fn(|context| Poll::Ready(place.poll_taken(context))).await.is_ready() {
                taken.push(index);
            }
        }
        taken
    }

    /// Connections of these peers, each a second after the one before; those of `busy` have a request under way.
    async fn full(peers: &[u8], busy: &[usize]) -> (Connections, Vec<Place>) {
        let connections = Connections::at_most(peers.len());
        let mut places = Vec::new();
        for (index, number) in peers.iter().enumerate() {
            let place = connections.enter(peer(*number)).expect("there is room");
            if busy.contains(&index) {
                place.set_busy(true);
            }
            places.push(place);
            advance(Duration::from_secs(1)).await;
        }
        (connections, places)
    }

    #[tokio::test(start_paused = true)]
    async fn the_peer_with_the_most_connections_makes_room() {
        for (peers, busy, newcomer, expected) in [
            (&[1, 2, 2, 1, 2][..], &[][..], 3, Some(1)),
            // Also for a connection of its own.
            (&[1, 2, 2, 1, 2], &[], 1, Some(1)),
            (&[1, 2, 2, 1, 2], &[1], 2, Some(2)),
            // Idle ones end first, also of a peer that has fewer.
            (&[1, 2, 2, 1, 2, 3], &[1, 2, 4], 4, Some(0)),
            // All are busy: a peer that has more than half of them loses its oldest.
            (&[1, 2, 2, 1, 2], &[0, 1, 2, 3, 4], 3, Some(1)),
            (&[1, 2, 2, 1], &[0, 1, 2, 3], 3, None),
        ] {
            let (connections, mut places) = full(peers, busy).await;
            let entered = connections.enter(peer(newcomer));
            assert_eq!(entered.is_some(), expected.is_some(), "{peers:?} {busy:?}");
            assert_eq!(taken(&mut places).await, Vec::from_iter(expected), "{peers:?} {busy:?}");
            assert_eq!(connections.lock().entries.len(), peers.len());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_is_free_when_its_connection_ends_or_becomes_idle() {
        let (connections, mut places) = full(&[1, 2], &[0, 1]).await;
        assert!(connections.enter(peer(3)).is_none());
        places[1].set_busy(false);
        connections.changed().await;
        let new = connections.enter(peer(3)).expect("that of the idle one");
        new.set_busy(true);
        assert_eq!(taken(&mut places).await, [1]);
        assert_eq!(taken(&mut places).await, [1], "it stays so");
        assert!(connections.enter(peer(4)).is_none());
        places.remove(0);
        connections.changed().await;
        assert!(connections.enter(peer(4)).is_some());
    }

    #[test]
    fn both_families_of_an_address_are_one_peer() {
        let connections = Connections::at_most(2);
        let _one = connections.enter(peer(1));
        let _same = connections.enter("::ffff:10.0.0.1".parse().expect("an address"));
        let peers: Vec<_> = connections.lock().entries.values().map(|entry| entry.peer).collect();
        assert_eq!(peers, [peer(1), peer(1)]);
    }
}
