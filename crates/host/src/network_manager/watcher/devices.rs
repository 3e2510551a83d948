//! What NetworkManager alone knows of an interface: whether it manages it, by which profile, and who is at the other
//! end.

use std::collections::HashMap;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::select_all;
use tokio::time::{Instant, sleep};
use zbus::zvariant::OwnedValue;
use zbus::{AsyncDrop as _, Connection, Message, MessageStream};

use super::super::service::NAME;
use super::super::service_watch::rule;
use crate::events::{Announcer, Changes, Topic};

const DEVICE: &str = "org.freedesktop.NetworkManager.Device";
const PROPERTIES_CHANGED: &str = "PropertiesChanged";

/// More signals than this within a [`SPELL`] are a storm: every veth of a pod brings up to ten.
const MOST_SIGNALS: u32 = 32;
const SPELL: Duration = Duration::from_secs(2);

/// The signals that announce it.
pub(super) struct Devices<'a> {
    connection: &'a Connection,
    streams: Vec<MessageStream>,
}

impl<'a> Devices<'a> {
    /// Returns when no signal can be missed any more.
    pub(super) async fn listen(connection: &'a Connection) -> zbus::Result<Self> {
        let states = rule(NAME, DEVICE)?.member("StateChanged")?;
        let profiles = rule(NAME, "org.freedesktop.NetworkManager.Settings.Connection")?.member("Updated")?;
        let properties = rule(NAME, "org.freedesktop.DBus.Properties")?
            .member(PROPERTIES_CHANGED)?
            .path_namespace("/org/freedesktop/NetworkManager/Devices")?
            .arg(0, DEVICE)?;
        let mut streams = Vec::new();
        for rule in [states, profiles, properties] {
            streams.push(MessageStream::for_match_rule(rule.build(), connection, None).await?);
        }
        Ok(Self { connection, streams })
    }

    /// Announces them until the bus is gone. A signal costs ten times as much as a message of the kernel, so in a storm
    /// the bus is asked to send none for a while; what was missed counts as a change.
    pub(super) async fn announce_to(mut self, announcer: &Announcer) -> zbus::Result<()> {
        let link = Changes::default().with(Topic::Link);
        loop {
            let mut signals = select_all(self.streams.iter_mut());
            let (mut since, mut heard) = (Instant::now(), 0);
            while heard < MOST_SIGNALS {
                let Some(signal) = signals.next().await else { return Ok(()) };
                if is_news(&signal?) {
                    announcer.announce(link);
                }
                if since.elapsed() > SPELL {
                    (since, heard) = (Instant::now(), 0);
                }
                heard += 1;
            }
            drop(signals);
            for stream in self.streams {
                stream.async_drop().await;
            }
            sleep(SPELL).await;
            self = Self::listen(self.connection).await?;
            announcer.announce(link);
        }
    }
}

/// The kernel announces all relevant properties of a device but its neighbours.
fn is_news(signal: &Message) -> bool {
    if signal.header().member().is_none_or(|member| member.as_str() != PROPERTIES_CHANGED) {
        return true;
    }
    let changed = signal.body().deserialize::<(String, HashMap<String, OwnedValue>, Vec<String>)>();
    changed.map_or(true, |(_, changed, _)| changed.contains_key("LldpNeighbors"))
}
