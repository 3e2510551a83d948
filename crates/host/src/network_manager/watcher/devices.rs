//! What NetworkManager alone knows of an interface: whether it manages it, and by which profile.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::select;
use tokio::time::{Instant, sleep};
use zbus::{AsyncDrop as _, Connection, MessageStream};

use super::super::service::NAME;
use super::super::service_watch::rule;
use crate::events::{Announcer, Changes, Topic};

/// More signals than this within a [`SPELL`] are a storm: every veth of a pod brings three or four.
const MOST_SIGNALS: u32 = 16;
const SPELL: Duration = Duration::from_secs(2);

/// The signals that tell of it.
pub(super) struct Devices<'a> {
    connection: &'a Connection,
    states: MessageStream,
    profiles: MessageStream,
}

impl<'a> Devices<'a> {
    /// Returns when no signal can be missed any more.
    pub(super) async fn listen(connection: &'a Connection) -> zbus::Result<Self> {
        let states = rule(NAME, "org.freedesktop.NetworkManager.Device")?.member("StateChanged")?.build();
        let profiles =
            rule(NAME, "org.freedesktop.NetworkManager.Settings.Connection")?.member("Updated")?.build();
        Ok(Self {
            connection,
            states: MessageStream::for_match_rule(states, connection, None).await?,
            profiles: MessageStream::for_match_rule(profiles, connection, None).await?,
        })
    }

    /// Announces them until the bus is gone. A signal costs ten times as much as a message of the kernel, so in a storm
    /// the bus is asked to send none for a while; what was missed counts as a change.
    pub(super) async fn announce_to(mut self, announcer: &Announcer) -> zbus::Result<()> {
        let link = Changes::default().with(Topic::Link);
        loop {
            let mut signals = select(&mut self.states, &mut self.profiles);
            let (mut since, mut heard) = (Instant::now(), 0);
            while heard < MOST_SIGNALS {
                let Some(signal) = signals.next().await else { return Ok(()) };
                signal?;
                announcer.announce(link);
                if since.elapsed() > SPELL {
                    (since, heard) = (Instant::now(), 0);
                }
                heard += 1;
            }
            self.states.async_drop().await;
            self.profiles.async_drop().await;
            sleep(SPELL).await;
            self = Self::listen(self.connection).await?;
            announcer.announce(link);
        }
    }
}
