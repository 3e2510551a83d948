//! What happens to NetworkManager while a change is applied.

use futures::StreamExt as _;
use futures::stream::{BoxStream, select};
use zbus::MatchRule;
use zbus::message::Type;

use super::classify;
use super::service::{NAME, Service};
use crate::error::HostError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServiceEvent {
    /// The list of checkpoints has changed, or something else of the kind.
    Properties,
    /// It was stopped, restarted, or the bus is gone.
    Gone,
}

/// From now on. The stream ends with [`ServiceEvent::Gone`].
pub(super) async fn watch(service: &Service) -> Result<BoxStream<'static, ServiceEvent>, HostError> {
    let open = async {
        let owner = rule("org.freedesktop.DBus", "org.freedesktop.DBus")?
            .member("NameOwnerChanged")?
            .arg(0, NAME)?
            .build();
        let properties =
            rule(NAME, "org.freedesktop.DBus.Properties")?.path("/org/freedesktop/NetworkManager")?.build();
        let connection = service.connection();
        let owner = zbus::MessageStream::for_match_rule(owner, connection, None).await?;
        let properties = zbus::MessageStream::for_match_rule(properties, connection, None).await?;
        Ok::<_, zbus::Error>((owner, properties))
    };
    let (owner, properties) = open.await.map_err(|error| classify::bus(&error))?;
    let owner = owner.map(|_| ServiceEvent::Gone).chain(futures::stream::iter([ServiceEvent::Gone]));
    let properties = properties.filter_map(async |message| message.ok().map(|_| ServiceEvent::Properties));
    Ok(select(owner, properties.boxed()).boxed())
}

pub(super) fn rule<'a>(sender: &'a str, interface: &'a str) -> zbus::Result<zbus::match_rule::Builder<'a>> {
    MatchRule::builder().msg_type(Type::Signal).sender(sender)?.interface(interface)
}
