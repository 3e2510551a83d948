//! One of several controllers: it waits for its turn to lead, and leads.

use std::{fmt, time::Duration};

use jiff::Timestamp;
use knmstate_core::lease::Terms;
use kube::{Client, Config};
use tokio::sync::watch;

use crate::{leader, lease, sources::LiveWorld};

/// The lease that the controllers of a cluster share.
pub const LEASE: &str = "nmstate-controller";

/// What a controller works with.
#[derive(Clone)]
pub struct Options {
    pub client: Client,
    /// Its own namespace, where the lease is, and the pods of handlers.
    pub namespace: String,
    /// Different for every process.
    pub identity: String,
    pub now: fn() -> Timestamp,
}

impl fmt::Debug for Options {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Options")
            .field("namespace", &self.namespace)
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

/// A client that leaves it to us when to try again.
pub fn client(mut config: Config) -> kube::Result<Client> {
    config.connect_timeout = Some(Duration::from_secs(5));
    config.default_retry = false;
    Client::try_from(config)
}

/// Works until `stop` becomes true, and gives the lease back then. `world` is what it knows while it leads.
pub async fn run(options: Options, world: LiveWorld, mut stop: watch::Receiver<bool>) {
    let Options { client, namespace, identity, now } = options;
    let lease = lease::Options {
        namespace: namespace.clone(),
        name: LEASE.to_owned(),
        identity,
        terms: Terms::default(),
        now,
    };
    let keeper = lease::Keeper::start(client.clone(), lease);
    let mut leadership = keeper.leadership();
    let work = leader::Options { client, namespace, now };
    loop {
        tokio::select! {
            () = leadership.gained() => {}
            _ = stop.wait_for(|stop| *stop) => break,
        }
        let mut stopped = stop.clone();
        let stopping = async move {
            let _ = stopped.wait_for(|stop| *stop).await;
        };
        leader::lead(&work, &world, leadership.clone(), stopping).await;
        // What is not kept up to date any more is nobody's knowledge.
        world.forget();
        if *stop.borrow() {
            break;
        }
    }
    keeper.give_back().await;
}
