//! The connection profiles of NetworkManager.

use std::collections::HashMap;

use zbus::zvariant::{OwnedObjectPath, OwnedValue, Value};

use super::service::Service;
use crate::error::HostError;
use crate::host::Operation;

/// Keep it in memory, and do not bring it up because of this; as NetworkManager numbers them.
const IN_MEMORY: u32 = 0x2;
const BLOCK_AUTOCONNECT: u32 = 0x20;

#[zbus::proxy(
    interface = "org.freedesktop.NetworkManager.Settings",
    default_path = "/org/freedesktop/NetworkManager/Settings"
)]
trait ProfileList {
    fn list_connections(&self) -> zbus::Result<Vec<OwnedObjectPath>>;
}

type ProfileSettings = HashMap<String, HashMap<String, OwnedValue>>;

#[zbus::proxy(interface = "org.freedesktop.NetworkManager.Settings.Connection")]
trait Profile {
    fn get_settings(&self) -> zbus::Result<ProfileSettings>;
    fn delete(&self) -> zbus::Result<()>;
    fn update2(
        &self,
        settings: ProfileSettings,
        flags: u32,
        arguments: HashMap<&str, Value<'_>>,
    ) -> zbus::Result<HashMap<String, OwnedValue>>;
}

/// A connection profile of NetworkManager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KnownProfile {
    pub(super) uuid: String,
    pub(super) interface: Option<String>,
    /// The controller that it brings up with itself, by interface or by profile.
    pub(super) controller: Option<String>,
    /// Whether NetworkManager brings it up by itself.
    pub(super) autoconnect: bool,
    path: OwnedObjectPath,
}

/// The profiles by which an interface may come up by itself: its own, and those of its ports.
pub(super) fn that_bring_up<'a>(profiles: &'a [KnownProfile], interface: &str) -> Vec<&'a KnownProfile> {
    let is_own = |profile: &&KnownProfile| profile.interface.as_deref() == Some(interface);
    let own: Vec<&str> = profiles.iter().filter(is_own).map(|profile| &*profile.uuid).collect();
    let is_port = |profile: &&KnownProfile| {
        profile.controller.as_deref().is_some_and(|name| name == interface || own.contains(&name))
    };
    profiles.iter().filter(|profile| profile.autoconnect && (is_own(profile) || is_port(profile))).collect()
}

impl Service {
    pub(super) async fn profiles(&self) -> Result<Vec<KnownProfile>, HostError> {
        self.bounded(Operation::Observe, async {
            let settings =
                ProfileListProxy::builder(self.connection()).destination(self.owner())?.build().await?;
            let mut profiles = Vec::new();
            for path in settings.list_connections().await? {
                let Ok(settings) = self.profile(&path).await?.get_settings().await else { continue };
                let value = |key: &str| settings.get("connection")?.get(key)?.try_clone().ok();
                let text = |key: &str| String::try_from(value(key)?).ok();
                // What is not said is the default, which is yes.
                let autoconnect =
                    value("autoconnect").and_then(|value| bool::try_from(value).ok()).unwrap_or(true);
                if let Some(uuid) = text("uuid") {
                    profiles.push(KnownProfile {
                        uuid,
                        interface: text("interface-name"),
                        // Its name since NetworkManager 1.46, and before.
                        controller: text("controller").or_else(|| text("master")),
                        autoconnect,
                        path,
                    });
                }
            }
            Ok(profiles)
        })
        .await
    }

    pub(super) async fn delete_profile(&self, profile: &KnownProfile) -> Result<bool, HostError> {
        self.bounded_if_there(Operation::RollBack, async {
            self.profile(&profile.path).await?.delete().await
        })
        .await
    }

    /// Keeps NetworkManager from bringing a profile up by itself, until the next boot: the one on disk stays as it is.
    pub(super) async fn prevent_activation(&self, profile: &KnownProfile) -> Result<bool, HostError> {
        self.bounded_if_there(Operation::Begin, async {
            let proxy = self.profile(&profile.path).await?;
            let mut settings = proxy.get_settings().await?;
            let connection = settings.entry("connection".to_owned()).or_default();
            connection.insert("autoconnect".to_owned(), OwnedValue::from(false));
            // Secrets are not in what was read; NetworkManager keeps those that it has when none are given.
            proxy.update2(settings, IN_MEMORY | BLOCK_AUTOCONNECT, HashMap::new()).await.map(drop)
        })
        .await
    }

    async fn profile<'a>(&'a self, path: &'a OwnedObjectPath) -> zbus::Result<ProfileProxy<'a>> {
        ProfileProxy::builder(self.connection()).destination(self.owner())?.path(path)?.build().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_comes_up_by_its_own_profile_and_by_those_of_its_ports() {
        let profile = |uuid: &str, interface: &str, controller: Option<&str>, autoconnect| KnownProfile {
            uuid: uuid.to_owned(),
            interface: Some(interface.to_owned()),
            controller: controller.map(str::to_owned),
            autoconnect,
            path: OwnedObjectPath::default(),
        };
        let profiles = [
            profile("1", "br0", None, true),
            profile("2", "br0", None, false),
            profile("3", "eth1", Some("br0"), true),
            profile("4", "eth2", Some("2"), true),
            profile("5", "eth3", Some("br0"), false),
            profile("6", "eth4", Some("br1"), true),
            profile("7", "eth5", None, true),
        ];
        let found: Vec<&str> = that_bring_up(&profiles, "br0").iter().map(|one| &*one.uuid).collect();
        assert_eq!(found, ["1", "3", "4"]);
    }
}
