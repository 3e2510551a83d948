//! One interface: its keys, and how a desired one is merged into it.

use std::borrow::Cow;

use knmstate_document::{
    Place,
    address::IpNet,
    references::{self, ReferenceKind},
    scalar,
};
use serde_json::{Map, Value, json};

use super::ip;
use super::kind::Kind;
use knmstate_host::HostError;

/// The smallest and the largest frame that any simulated link carries.
const MTU_RANGE: std::ops::RangeInclusive<i64> = 68..=65_535;
/// The smallest that IPv6 can work with.
const IPV6_MTU: i64 = 1280;

/// Keys that every kind of interface may have.
const COMMON_KEYS: [&str; 26] = [
    "name",
    "profile-name",
    "description",
    "type",
    "driver",
    "state",
    "identifier",
    "mac-address",
    "permanent-mac-address",
    "pci-address",
    "mtu",
    "min-mtu",
    "max-mtu",
    "wait-ip",
    "ipv4",
    "ipv6",
    "mptcp",
    "controller",
    "accept-all-mac-addresses",
    "copy-mac-from",
    "ovs-db",
    "802.1x",
    "lldp",
    "ethtool",
    "dispatch",
    "alt-names",
];

/// Keys of a desired interface that are not merged: they identify the interface, name its controller, or are read-only.
const NOT_MERGED: [&str; 10] = [
    "name",
    "type",
    "state",
    "controller",
    "identifier",
    "copy-mac-from",
    "permanent-mac-address",
    "min-mtu",
    "max-mtu",
    "driver",
];

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Interface {
    pub(super) kind: Kind,
    /// As it is shown, except for `controller`, which follows from the lists of ports.
    pub(super) keys: Map<String, Value>,
}

impl Interface {
    /// An interface as the kernel makes it, without any configuration.
    pub(super) fn fresh(name: &str, kind: Kind, machine: &str) -> Self {
        let mac = mac_address(machine, name);
        let mut keys = Map::new();
        keys.insert("name".to_owned(), json!(name));
        keys.insert("type".to_owned(), json!(kind.name()));
        keys.insert("state".to_owned(), json!("up"));
        if kind != Kind::Loopback {
            keys.insert("mac-address".to_owned(), json!(mac));
        }
        if kind == Kind::Ethernet {
            keys.insert("permanent-mac-address".to_owned(), json!(mac));
        }
        keys.insert("mtu".to_owned(), json!(if kind == Kind::Loopback { 65_536 } else { 1500 }));
        keys.insert("ipv4".to_owned(), ip::disabled());
        keys.insert("ipv6".to_owned(), ip::disabled());
        let section = match kind {
            _ if kind.is_controller() => Some(json!({ "port": [] })),
            Kind::Vlan => Some(json!({ "protocol": "802.1q", "reorder-headers": true })),
            _ => None,
        };
        if let (Some(key), Some(section)) = (kind.section(), section) {
            keys.insert(key.to_owned(), section);
        }
        Self { kind, keys }
    }

    /// The loopback interface, which has its addresses from the start.
    pub(super) fn loopback(machine: &str) -> Self {
        let mut lo = Self::fresh("lo", Kind::Loopback, machine);
        lo.keys.insert(
            "ipv4".to_owned(),
            json!({ "enabled": true, "dhcp": false, "address": [{ "ip": "127.0.0.1", "prefix-length": 8 }] }),
        );
        lo.keys.insert(
            "ipv6".to_owned(),
            json!({
                "enabled": true, "dhcp": false, "autoconf": false,
                "address": [{ "ip": "::1", "prefix-length": 128 }]
            }),
        );
        lo
    }

    /// This interface merged with a desired one: keys that it does not name stay, lists that it names are replaced.
    pub(super) fn merged_with(&self, target: &Map<String, Value>, place: &Place) -> Result<Self, HostError> {
        let mut target: Map<String, Value> = target
            .iter()
            .filter(|(key, value)| !NOT_MERGED.contains(&key.as_str()) && !value.is_null())
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        if let Cow::Owned(renamed) = references::with_main_keys(&target) {
            target = renamed;
        }
        self.refuse_foreign_keys(&target, place)?;
        self.check_section(&mut target, place)?;

        let mut merged = self.clone();
        merged.keys.insert("state".to_owned(), json!("up"));
        if let Some(section) = self.kind.section().filter(|_| self.kind == Kind::Bond) {
            merged.forget_options_of_another_mode(&target, section);
        }
        merge(&mut merged.keys, &target);
        if self.kind == Kind::LinuxBridge {
            merged.keep_unnamed_port_keys(self);
        }
        for (key, family) in [("ipv4", ip::Family::V4), ("ipv6", ip::Family::V6)] {
            let section = ip::settled(merged.keys.get(key), family, &place.below(key))?;
            merged.keys.insert(key.to_owned(), section);
        }
        merged.settle_link(place)?;
        Ok(merged)
    }

    /// Hardware that is not used any more: what it is stays, what it was configured to do goes.
    pub(super) fn unconfigured(&self, machine: &str) -> Self {
        if self.kind == Kind::Loopback {
            return Self::loopback(machine);
        }
        let mut bare = Self::fresh(self.name(), self.kind, machine);
        bare.keys.insert("state".to_owned(), json!("down"));
        bare
    }

    pub(super) fn name(&self) -> &str {
        knmstate_document::interface_name(&self.keys)
    }

    pub(super) fn is_up(&self) -> bool {
        self.text("state") == "up"
    }

    fn text(&self, key: &str) -> &str {
        self.keys.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    pub(super) fn mac_address(&self) -> Option<&Value> {
        self.keys.get("mac-address")
    }

    /// The value at `key` inside the section that only this kind has.
    pub(super) fn own(&self, key: &str) -> Option<&Value> {
        self.keys.get(self.kind.section()?)?.get(key).filter(|value| !value.is_null())
    }

    fn own_mut(&mut self, key: &str) -> Option<&mut Value> {
        self.keys.get_mut(self.kind.section()?)?.get_mut(key)
    }

    /// The interface that this one sends its packets through.
    pub(super) fn base(&self) -> Option<&str> {
        self.referred(ReferenceKind::Base)
    }

    /// The other end of a veth pair.
    pub(super) fn peer(&self) -> Option<&str> {
        self.referred(ReferenceKind::Peer)
    }

    fn referred(&self, kind: ReferenceKind) -> Option<&str> {
        let references = references::of_interface(&self.keys);
        references.into_iter().find(|reference| reference.kind == kind).map(|reference| reference.name)
    }

    pub(super) fn ports(&self) -> Vec<&str> {
        references::ports(&self.keys)
    }

    pub(super) fn add_port(&mut self, name: &str) {
        let entry = if self.kind.describes_its_ports() { json!({ "name": name }) } else { json!(name) };
        if let Some(ports) = self.own_mut("port").and_then(Value::as_array_mut) {
            ports.push(entry);
        }
    }

    pub(super) fn remove_port(&mut self, name: &str) {
        if !self.kind.is_controller() {
            return;
        }
        if let Some(ports) = self.own_mut("port").and_then(Value::as_array_mut) {
            ports.retain(|port| port_name(port) != Some(name));
        }
    }

    /// Whether it can carry routes of this family.
    pub(super) fn speaks(&self, family: ip::Family) -> bool {
        self.is_up() && self.keys.get(family.key()).is_some_and(ip::is_enabled)
    }

    pub(super) fn addresses(&self, family: ip::Family) -> Vec<IpNet> {
        self.keys.get(family.key()).map(ip::addresses).unwrap_or_default()
    }

    fn refuse_foreign_keys(&self, target: &Map<String, Value>, place: &Place) -> Result<(), HostError> {
        let section = self.kind.section();
        match target.keys().find(|key| !COMMON_KEYS.contains(&key.as_str()) && section != Some(key)) {
            Some(key) => Err(HostError::invalid(
                place.below(key),
                format!("an interface of type {} has no such key", self.kind.name()),
            )),
            None => Ok(()),
        }
    }

    /// Checks the section of the kind and its list of ports, and removes what has no effect.
    fn check_section(&self, target: &mut Map<String, Value>, place: &Place) -> Result<(), HostError> {
        let Some(key) = self.kind.section() else { return Ok(()) };
        let Some(section) = target.get_mut(key) else { return Ok(()) };
        let place = place.below(key);
        let Some(section) = section.as_object_mut() else {
            return Err(HostError::invalid(place, "a map of keys is expected here"));
        };
        if !self.kind.is_controller() {
            return Ok(());
        }
        section.shift_remove("allow-extra-ports");
        let place = place.below("port");
        match section.get("port") {
            None => Ok(()),
            Some(Value::Null) => {
                section.shift_remove("port");
                Ok(())
            }
            Some(Value::Array(ports)) => {
                let mut seen = std::collections::BTreeSet::new();
                for (index, port) in ports.iter().enumerate() {
                    let name =
                        port_name(port).filter(|_| port.is_object() == self.kind.describes_its_ports());
                    let Some(name) = name else {
                        let form =
                            if self.kind.describes_its_ports() { "a map with a name" } else { "a name" };
                        return Err(HostError::invalid(
                            place.entry(index),
                            format!("a port is written as {form}"),
                        ));
                    };
                    if !seen.insert(name) {
                        return Err(HostError::invalid(
                            place.entry(index),
                            format!("{name} is listed twice"),
                        ));
                    }
                }
                Ok(())
            }
            Some(_) => Err(HostError::invalid(place, "a list of ports is expected here")),
        }
    }

    fn forget_options_of_another_mode(&mut self, target: &Map<String, Value>, section: &str) {
        let wanted = target.get(section).and_then(|bond| bond.get("mode"));
        if wanted.is_some()
            && wanted != self.own("mode")
            && let Some(bond) = self.keys.get_mut(section).and_then(Value::as_object_mut)
        {
            bond.shift_remove("options");
        }
    }

    /// A port that stays in the list keeps the keys that the desired one does not name.
    fn keep_unnamed_port_keys(&mut self, before: &Self) {
        let known: Vec<_> = before.own("port").and_then(Value::as_array).cloned().unwrap_or_default();
        let Some(ports) = self.own_mut("port").and_then(Value::as_array_mut) else { return };
        for port in ports {
            let before = known.iter().find(|known| port_name(known) == port_name(port));
            if let (Some(Value::Object(before)), Value::Object(port)) = (before, port) {
                for (key, value) in before {
                    port.entry(key.clone()).or_insert_with(|| value.clone());
                }
            }
        }
    }

    fn settle_link(&mut self, place: &Place) -> Result<(), HostError> {
        if let Some(mac) = self.keys.get_mut("mac-address") {
            let text = mac.as_str().unwrap_or_default().to_ascii_uppercase();
            if !is_mac_address(&text) {
                return Err(HostError::invalid(
                    place.below("mac-address"),
                    format!("{mac} is not a hardware address like 02:00:5E:10:00:01"),
                ));
            }
            *mac = Value::String(text);
        }
        let place = place.below("mtu");
        let Some(mtu) = self.keys.get_mut("mtu") else { return Ok(()) };
        let Some(number) = scalar::number(mtu) else {
            return Err(HostError::invalid(place, format!("{mtu} is not a number")));
        };
        *mtu = json!(number);
        if self.kind != Kind::Loopback && !MTU_RANGE.contains(&number) {
            let (least, most) = (MTU_RANGE.start(), MTU_RANGE.end());
            return Err(HostError::invalid(place, format!("{number} is outside {least} to {most}")));
        }
        if number < IPV6_MTU && self.keys.get("ipv6").is_some_and(ip::is_enabled) {
            return Err(HostError::invalid(
                place,
                format!("{number} is too small for IPv6, which needs {IPV6_MTU}"),
            ));
        }
        Ok(())
    }
}

/// Merges `target` into `there`: maps key by key, everything else is replaced; `null` is skipped.
fn merge(there: &mut Map<String, Value>, target: &Map<String, Value>) {
    for (key, wanted) in target {
        match (there.get_mut(key), wanted) {
            (_, Value::Null) => {}
            (Some(Value::Object(there)), Value::Object(wanted)) => merge(there, wanted),
            (Some(there), wanted) => *there = wanted.clone(),
            (None, wanted) => {
                there.insert(key.clone(), wanted.clone());
            }
        }
    }
}

fn port_name(port: &Value) -> Option<&str> {
    port.get("name").unwrap_or(port).as_str().filter(|name| !name.is_empty())
}

/// The same name on the same machine always gets the same address (by the FNV-1a hash), so that runs can be compared.
fn mac_address(machine: &str, interface: &str) -> String {
    let hash =
        machine.bytes().chain([0]).chain(interface.bytes()).fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
    let bytes = hash.to_be_bytes().map(|byte| format!("{byte:02X}"));
    format!("02:{}", bytes[..5].join(":"))
}

fn is_mac_address(text: &str) -> bool {
    let mut bytes = 0;
    text.split(':').all(|byte| {
        bytes += 1;
        byte.len() == 2 && byte.bytes().all(|digit| digit.is_ascii_hexdigit())
    }) && bytes == 6
}
