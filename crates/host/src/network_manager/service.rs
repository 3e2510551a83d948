//! NetworkManager on the bus, as far as nmstate does not show it: its checkpoints, and which NetworkManager it is.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use tokio::time::timeout;
use zbus::fdo::DBusProxy;
use zbus::names::{BusName, OwnedUniqueName, UniqueName};
use zbus::proxy::CacheProperties;
use zbus::zvariant::{ObjectPath, OwnedObjectPath};

use super::classify;
use super::preflight::{Facts, Version};
use crate::error::HostError;
use crate::host::Operation;

pub(super) const NAME: &str = "org.freedesktop.NetworkManager";

/// NetworkManager's number for its plugin for Open vSwitch.
const OPEN_VSWITCH: u32 = 2;
/// NetworkManager's bit for forwarding on single interfaces.
const FORWARDING: u32 = 1 << 1;

#[zbus::proxy(interface = "org.freedesktop.NetworkManager", default_path = "/org/freedesktop/NetworkManager")]
pub(super) trait Manager {
    #[zbus(property)]
    fn version(&self) -> zbus::Result<String>;
    /// Numbers that name plugins.
    #[zbus(property)]
    fn capabilities(&self) -> zbus::Result<Vec<u32>>;
    /// The version, and then bits that name abilities which a version alone does not show. Since 1.42.
    #[zbus(property)]
    fn version_info(&self) -> zbus::Result<Vec<u32>>;
    #[zbus(property)]
    fn checkpoints(&self) -> zbus::Result<Vec<OwnedObjectPath>>;
    fn get_device_by_ip_iface(&self, name: &str) -> zbus::Result<OwnedObjectPath>;
    fn checkpoint_destroy(&self, checkpoint: &ObjectPath<'_>) -> zbus::Result<()>;
    fn checkpoint_rollback(&self, checkpoint: &ObjectPath<'_>) -> zbus::Result<HashMap<String, u32>>;
    fn checkpoint_adjust_rollback_timeout(
        &self,
        checkpoint: &ObjectPath<'_>,
        add_timeout: u32,
    ) -> zbus::Result<()>;
}

#[zbus::proxy(interface = "org.freedesktop.NetworkManager.Device")]
trait Device {
    #[zbus(property)]
    fn state(&self) -> zbus::Result<u32>;
}

#[zbus::proxy(interface = "org.freedesktop.NetworkManager.Checkpoint")]
trait CheckpointObject {
    #[zbus(property)]
    fn created(&self) -> zbus::Result<i64>;
    #[zbus(property)]
    fn rollback_timeout(&self) -> zbus::Result<u32>;
}

/// A checkpoint as NetworkManager shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) path: String,
    pub(super) created_ms: i64,
    /// `None`: never, by itself.
    pub(super) rolls_back_in: Option<Duration>,
}

/// What NetworkManager is doing with an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hold {
    /// Nothing.
    None,
    /// It has been configured.
    Active,
    /// It is being configured, or NetworkManager is about to stop to manage it.
    Changing,
}

/// One running NetworkManager. When it is restarted, this is the way to one that does not exist any more: nothing
/// that is meant for this one can reach the next by mistake, although that one gives out the same names.
#[derive(Debug, Clone)]
pub(super) struct Service {
    connection: zbus::Connection,
    owner: OwnedUniqueName,
    identity: String,
    limit: Duration,
}

impl Service {
    /// The NetworkManager that runs now. [`HostError::Unavailable`] when there is none.
    pub(super) async fn find(limit: Duration) -> Result<Self, HostError> {
        let find = async {
            let connection = zbus::connection::Builder::system()?.method_timeout(limit).build().await?;
            let bus = DBusProxy::new(&connection).await?;
            let owner = bus.get_name_owner(BusName::try_from(NAME)?).await?;
            let identity = format!("{} {owner}", bus.get_id().await?);
            Ok::<_, zbus::Error>(Self { connection, owner, identity, limit })
        };
        match timeout(limit, find).await {
            Ok(found) => found.map_err(|error| classify::bus(&error)),
            Err(_) => Err(HostError::Unavailable { why: "the system bus does not answer".to_owned() }),
        }
    }

    /// Names this one start of NetworkManager: the bus, and the name that the bus gave it and never gives again.
    pub(super) fn identity(&self) -> &str {
        &self.identity
    }

    pub(super) fn connection(&self) -> &zbus::Connection {
        &self.connection
    }

    /// The name on the bus that only this start of NetworkManager has.
    pub(super) fn owner(&self) -> UniqueName<'_> {
        self.owner.as_ref()
    }

    async fn manager(&self) -> zbus::Result<ManagerProxy<'_>> {
        ManagerProxy::builder(&self.connection)
            .destination(self.owner.as_ref())?
            .cache_properties(CacheProperties::No)
            .build()
            .await
    }

    /// What it is able to do. What it does not answer in time is not known.
    pub(super) async fn facts(&self) -> Facts {
        let ask = async {
            let manager = self.manager().await?;
            let version = Version::parse(&manager.version().await?);
            // An old one has no such property, and none of its bits.
            let bits = manager.version_info().await.unwrap_or_default();
            Ok::<_, zbus::Error>((version, manager.capabilities().await?, bits))
        };
        let Ok(Ok((network_manager, plugins, bits))) = timeout(self.limit, ask).await else {
            return Facts::default();
        };
        Facts {
            network_manager,
            open_vswitch: network_manager
                .filter(|version| version.names_open_vswitch())
                .map(|_| plugins.contains(&OPEN_VSWITCH)),
            forwarding: bits.get(1).is_some_and(|bits| bits & FORWARDING != 0),
            ..Facts::default()
        }
    }

    /// All checkpoints that are open, the oldest first.
    pub(super) async fn checkpoints(&self) -> Result<Vec<Held>, HostError> {
        self.bounded(Operation::Observe, async {
            let mut held = Vec::new();
            for path in self.manager().await?.checkpoints().await? {
                let object = CheckpointObjectProxy::builder(&self.connection)
                    .destination(self.owner.as_ref())?
                    .path(&path)?
                    .cache_properties(CacheProperties::No)
                    .build()
                    .await?;
                // One that is settled between the list and this request is not open.
                let (Ok(created_ms), Ok(seconds)) = (object.created().await, object.rollback_timeout().await)
                else {
                    continue;
                };
                held.push(Held {
                    path: path.to_string(),
                    created_ms,
                    rolls_back_in: time_left(created_ms, seconds, boot_time_ms()),
                });
            }
            held.sort_by_key(|held| held.created_ms);
            Ok(held)
        })
        .await
    }

    /// Restarts the timer. False when there is no such checkpoint.
    pub(super) async fn restart_timer(&self, path: &str, deadline: Duration) -> Result<bool, HostError> {
        let path = object_path(path)?;
        let seconds = whole_seconds(deadline);
        self.bounded_if_there(Operation::Begin, async {
            self.manager().await?.checkpoint_adjust_rollback_timeout(&path, seconds).await
        })
        .await
    }

    /// Keeps the change. False when there is no such checkpoint.
    pub(super) async fn commit(&self, path: &str) -> Result<bool, HostError> {
        let path = object_path(path)?;
        self.bounded_if_there(Operation::Commit, async {
            self.manager().await?.checkpoint_destroy(&path).await
        })
        .await
    }

    /// Undoes the change. False when there is no such checkpoint.
    pub(super) async fn roll_back(&self, path: &str) -> Result<bool, HostError> {
        let path = object_path(path)?;
        // What it says about single devices is not needed: the state is read afterwards.
        self.bounded_if_there(Operation::RollBack, async {
            self.manager().await?.checkpoint_rollback(&path).await.map(drop)
        })
        .await
    }

    /// What NetworkManager is doing with an interface.
    pub(super) async fn hold_on(&self, interface: &str) -> Result<Hold, HostError> {
        self.bounded(Operation::Observe, async {
            let path = match self.manager().await?.get_device_by_ip_iface(interface).await {
                Ok(path) => path,
                Err(error) if classify::is_no_such_object(&error) => return Ok(Hold::None),
                Err(error) => return Err(error),
            };
            let device = DeviceProxy::builder(&self.connection)
                .destination(self.owner.as_ref())?
                .path(&path)?
                .cache_properties(CacheProperties::No)
                .build()
                .await?;
            Ok(match device.state().await {
                Ok(0..=30) => Hold::None,
                Ok(100) => Hold::Active,
                Ok(_) => Hold::Changing,
                // It has gone between the two questions, as a bridge does that is being rolled back.
                Err(error) if classify::is_no_such_object(&error) => Hold::None,
                Err(error) => return Err(error),
            })
        })
        .await
    }

    pub(super) async fn bounded_if_there(
        &self,
        operation: Operation,
        call: impl Future<Output = zbus::Result<()>>,
    ) -> Result<bool, HostError> {
        let call = async {
            match call.await {
                Ok(()) => Ok(true),
                Err(error) if classify::is_settled_or_forgotten(&error) => Ok(false),
                Err(error) => Err(error),
            }
        };
        self.bounded(operation, call).await
    }

    pub(super) async fn bounded<T>(
        &self,
        operation: Operation,
        call: impl Future<Output = zbus::Result<T>>,
    ) -> Result<T, HostError> {
        match timeout(self.limit, call).await {
            Ok(result) => result.map_err(|error| classify::bus(&error)),
            Err(_) => Err(HostError::Timeout { operation, after: self.limit }),
        }
    }
}

fn object_path(path: &str) -> Result<ObjectPath<'_>, HostError> {
    ObjectPath::try_from(path)
        .map_err(|_| HostError::CheckpointGone { checkpoint: crate::host::Checkpoint::new(path) })
}

/// NetworkManager counts in whole seconds, and takes 0 for "never".
pub(super) fn whole_seconds(deadline: Duration) -> u32 {
    let seconds = deadline.as_secs().saturating_add(u64::from(deadline.subsec_nanos() > 0));
    u32::try_from(seconds).unwrap_or(u32::MAX).max(1)
}

/// Which start of the machine this is; empty when that is not known.
pub(super) fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map_or_else(|_| String::new(), |id| id.trim().to_owned())
}

/// The clock by which NetworkManager stamps its checkpoints.
pub(super) fn boot_time_ms() -> i64 {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(0, |time| time.tv_sec() * 1000 + time.tv_nsec() / 1_000_000)
}

/// NetworkManager in its first second after boot reports a creation time close to `i64::MAX`: a time in the future
/// counts as now.
fn time_left(created_ms: i64, timeout_seconds: u32, now_ms: i64) -> Option<Duration> {
    let end = created_ms.min(now_ms).saturating_add(i64::from(timeout_seconds) * 1000);
    (timeout_seconds > 0)
        .then(|| Duration::from_millis(u64::try_from(end.saturating_sub(now_ms)).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_never_taken_for_no_deadline() {
        for (millis, seconds) in [(0, 1), (10, 1), (1_000, 1), (1_001, 2), (60_000, 60), (u64::MAX, u32::MAX)]
        {
            assert_eq!(whole_seconds(Duration::from_millis(millis)), seconds, "{millis} ms");
        }
    }

    /// A NetworkManager that knows one interface, whose device has just gone.
    struct Forgetful {
        knows: &'static str,
    }

    #[zbus::interface(name = "org.freedesktop.NetworkManager")]
    impl Forgetful {
        fn get_device_by_ip_iface(&self, name: &str) -> zbus::fdo::Result<OwnedObjectPath> {
            if name == self.knows {
                let path = "/org/freedesktop/NetworkManager/Devices/6";
                return OwnedObjectPath::try_from(path).map_err(|error| zbus::Error::from(error).into());
            }
            Err(zbus::fdo::Error::AccessDenied(format!("only {} is known", self.knows)))
        }
    }

    #[tokio::test]
    async fn a_device_that_goes_while_it_is_asked_about_is_not_held() {
        let (ours, theirs) = tokio::net::UnixStream::pair().expect("a pair of sockets");
        let guid = zbus::Guid::generate();
        let manager = zbus::connection::Builder::unix_stream(theirs)
            .server(guid)
            .expect("a server")
            .p2p()
            .serve_at("/org/freedesktop/NetworkManager", Forgetful { knows: "br0" })
            .expect("an object");
        let client = zbus::connection::Builder::unix_stream(ours).p2p();
        let (_manager, connection) = tokio::try_join!(manager.build(), client.build()).expect("they meet");
        let service = Service {
            connection,
            owner: OwnedUniqueName::try_from(":1.7").expect("a name"),
            identity: String::new(),
            limit: Duration::from_secs(10),
        };
        assert_eq!(service.hold_on("br0").await, Ok(Hold::None));
        let refused = service.hold_on("br1").await;
        assert!(refused.is_err(), "not every error means that there is no such device: {refused:?}");
    }

    #[test]
    fn the_time_left_counts_from_the_creation() {
        assert_eq!(time_left(1_000, 10, 4_000), Some(Duration::from_secs(7)));
        assert_eq!(time_left(1_000, 10, 90_000), Some(Duration::ZERO));
        assert_eq!(time_left(1_000, 0, 4_000), None);
    }

    #[test]
    fn a_creation_in_the_future_counts_as_now() {
        for created in [5_000, i64::MAX - 500, i64::MAX] {
            assert_eq!(time_left(created, 10, 4_000), Some(Duration::from_secs(10)), "created at {created}");
        }
        assert_eq!(time_left(i64::MIN, 10, 4_000), Some(Duration::ZERO));
    }
}
